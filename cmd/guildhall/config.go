package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"

	"guildhall/internal/api"
	"guildhall/internal/auth"
	"guildhall/internal/fault"
	"guildhall/internal/ratelimit"
	"guildhall/internal/seal"
	"guildhall/internal/webhooks"
)

// Settings is what a running server can be told. Flags and environment
// variables are the same settings; README.md's table is checked against this.
type Settings struct {
	Env            string   `env:"GUILDHALL_ENV" enum:"live,test" default:"${default_env}" help:"The environment that tokens are made for and accepted in: live or test."`
	HTTPSListen    string   `name:"https-listen" env:"GUILDHALL_HTTPS_LISTEN" help:"Address for HTTPS. The default is :8443 when a certificate is set." placeholder:"ADDRESS"`
	TLSCert        string   `name:"tls-cert" env:"GUILDHALL_TLS_CERT" help:"Certificate file (PEM, with its chain). A renewed file is picked up within a minute." placeholder:"FILE"`
	TLSKey         string   `name:"tls-key" env:"GUILDHALL_TLS_KEY" help:"The certificate's private key (PEM)." placeholder:"FILE"`
	HTTPListen     string   `name:"http-listen" env:"GUILDHALL_HTTP_LISTEN" default:":8080" help:"Address for plain HTTP, for trusted proxies: every other caller gets https_required. off closes it."`
	TrustedProxies []string `env:"GUILDHALL_TRUSTED_PROXIES" sep:"none" help:"CIDRs whose X-Forwarded-Proto and X-Forwarded-For are believed." placeholder:"CIDR"`
	OpsListen      string   `env:"GUILDHALL_OPS_LISTEN" default:"127.0.0.1:9090" help:"Address for /livez, /readyz and /metrics, which need no token."`
	RateRead       string   `env:"GUILDHALL_RATE_READ" default:"600/1m" help:"Reads per token, or off."`
	RateWrite      string   `env:"GUILDHALL_RATE_WRITE" default:"120/1m" help:"Writes per token, or off."`
	RateLogin      string   `env:"GUILDHALL_RATE_LOGIN" default:"100/1m" help:"Failed authentications per address, or off."`
	RedisURL       string   `name:"redis-url" env:"GUILDHALL_REDIS_URL" help:"Redis or Valkey for limits that several nodes share. Without it each node counts for itself." placeholder:"URL"`
	DiscordToken   string   `env:"GUILDHALL_DISCORD_TOKEN" help:"The bot's token. Without it the chat platform is a local stand-in that accepts every call and logs it." placeholder:"TOKEN"`
	DiscordURL     string   `name:"discord-url" env:"GUILDHALL_DISCORD_URL" default:"https://discord.com/api/v10" help:"Base of the chat platform's API."`
	SecretKey      string   `env:"GUILDHALL_SECRET_KEY" help:"Base64 of 32 bytes; encrypts signing secrets at rest. Required in live." placeholder:"KEY"`
	WebhookAllow   []string `env:"GUILDHALL_WEBHOOK_ALLOW" sep:"none" default:"${default_webhook_allow}" help:"CIDRs of otherwise refused addresses that webhooks may call, over http too." placeholder:"CIDR"`
	WebhookCA      string   `name:"webhook-ca" env:"GUILDHALL_WEBHOOK_CA" help:"File of further CA certificates for webhook receivers." placeholder:"FILE"`
	WebhookRetries string   `env:"GUILDHALL_WEBHOOK_RETRIES" help:"Delays between delivery attempts, comma separated. The default is 5s,30s,2m,10m,30m,1h,2h,4h,8h,12h,20h,24h." placeholder:"DELAYS"`
	Log            string   `env:"GUILDHALL_LOG" default:"${default_log}" help:"Level (debug, info, warn, error) and format (json, text) of the log."`
	CheckAnswers   string   `env:"GUILDHALL_CHECK_ANSWERS" enum:"off,log" default:"off" help:"log: hold every answer against the contract and log an error where they disagree. For staging: it costs a copy of each answer."`
}

// checked is Settings in the types of those who use them.
type checked struct {
	Settings
	proxies []netip.Prefix
	quotas  api.Quotas
	box     *seal.Box
	hooks   webhooks.Config // Box, Guard, Schedule and Authorities
}

// check turns settings into what they mean. The error names the setting.
func (s Settings) check() (checked, error) {
	c := checked{Settings: s}
	var errs []error
	about := func(variable string, err error) {
		if f, ok := fault.As(err); ok {
			err = errors.New(f.Message) // what was typed wrong here is a setting, not the command
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", variable, err))
		}
	}
	var err error
	if (s.TLSCert == "") != (s.TLSKey == "") {
		about("GUILDHALL_TLS_CERT", errors.New("the certificate and its key (GUILDHALL_TLS_KEY) belong together; one is missing"))
	}
	if s.HTTPSListen != "" && s.TLSCert == "" {
		about("GUILDHALL_HTTPS_LISTEN", errors.New("HTTPS needs a certificate: set GUILDHALL_TLS_CERT and GUILDHALL_TLS_KEY"))
	}
	if s.HTTPSListen == "" && s.TLSCert != "" {
		c.HTTPSListen = ":8443"
	}
	if s.HTTPListen == "off" {
		c.HTTPListen = ""
	}
	if c.HTTPListen == "" && c.HTTPSListen == "" {
		about("GUILDHALL_HTTP_LISTEN", errors.New("with plain HTTP off a certificate is needed: set GUILDHALL_TLS_CERT and GUILDHALL_TLS_KEY"))
	}
	about("GUILDHALL_HTTPS_LISTEN", address(c.HTTPSListen))
	about("GUILDHALL_HTTP_LISTEN", address(c.HTTPListen))
	about("GUILDHALL_OPS_LISTEN", address(c.OpsListen))
	c.proxies, err = auth.ParsePrefixes(s.TrustedProxies...)
	about("GUILDHALL_TRUSTED_PROXIES", err)
	c.quotas.Read, err = ratelimit.ParseQuota(s.RateRead)
	about("GUILDHALL_RATE_READ", err)
	c.quotas.Write, err = ratelimit.ParseQuota(s.RateWrite)
	about("GUILDHALL_RATE_WRITE", err)
	c.quotas.Login, err = ratelimit.ParseQuota(s.RateLogin)
	about("GUILDHALL_RATE_LOGIN", err)
	about("GUILDHALL_REDIS_URL", location(s.RedisURL, "redis", "rediss", "unix"))
	about("GUILDHALL_DISCORD_URL", location(s.DiscordURL, "http", "https"))
	c.box, err = box(s.SecretKey)
	about("GUILDHALL_SECRET_KEY", err)
	c.hooks, err = s.receivers(c.box)
	if err != nil {
		errs = append(errs, err)
	}
	_, err = newLogger(os.Stderr, s.Log)
	about("GUILDHALL_LOG", err)
	if len(errs) > 0 {
		return checked{}, errors.Join(errs...)
	}
	return c, nil
}

// receivers is what the settings say of webhooks.
func (s Settings) receivers(box *seal.Box) (webhooks.Config, error) {
	c := webhooks.Config{Box: box}
	allow, err := webhooks.ParseAllow(strings.Join(s.WebhookAllow, ","))
	if err != nil {
		return c, fmt.Errorf("GUILDHALL_WEBHOOK_ALLOW: %w", err)
	}
	c.Guard = webhooks.NewGuard(allow, nil)
	if c.Schedule, err = webhooks.ParseSchedule(s.WebhookRetries); err != nil {
		return c, fmt.Errorf("GUILDHALL_WEBHOOK_RETRIES: %w", err)
	}
	if s.WebhookCA == "" {
		return c, nil
	}
	pem, err := os.ReadFile(s.WebhookCA)
	if err != nil {
		return c, fmt.Errorf("GUILDHALL_WEBHOOK_CA: %w", err)
	}
	if c.Authorities, err = webhooks.Authorities(pem); err != nil {
		return c, fmt.Errorf("GUILDHALL_WEBHOOK_CA: %w", err)
	}
	return c, nil
}

// box reads a secret key. The error does not repeat it.
func box(key string) (*seal.Box, error) {
	if key == "" {
		return nil, errors.New("a key is needed to keep signing secrets: make one with `openssl rand -base64 32`")
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(key))
	if err != nil || len(raw) != seal.KeySize {
		return nil, fmt.Errorf("the key must be base64 of %d bytes: make one with `openssl rand -base64 32`", seal.KeySize)
	}
	return seal.New(raw)
}

// address checks a place to listen on; empty is none.
func address(s string) error {
	if s == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%q is not an address to listen on: write host:port or :port", s)
	}
	return nil
}

// location checks a URL's scheme; empty is none. The error does not repeat the
// URL, which may hold a password.
func location(s string, schemes ...string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	if err == nil {
		for _, scheme := range schemes {
			if u.Scheme == scheme && (u.Host != "" || u.Path != "") {
				return nil
			}
		}
	}
	return fmt.Errorf("the URL must begin with %s://", strings.Join(schemes, ":// or "))
}
