package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/access/seal"
	"guildhall/internal/base/certificate"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/logging"
	"guildhall/internal/base/tracing"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/egress"
	"guildhall/internal/server/api"
	"guildhall/internal/server/dashboard"
)

// Settings holds the settings of a server. Each is a flag and an environment variable. The text of
// a setting is here: help prints it, and `go generate` makes the reference pages from it, in the
// order and the groups of the fields.
type Settings struct {
	Env            string   `group:"Process" env:"GUILDHALL_ENV" default:"${default_env}" help:"live or test: the environment that tokens are made for and accepted in, svc_live_… or svc_test_…. dev uses test."`
	PublicURL      string   `group:"Listening" name:"public-url" env:"GUILDHALL_PUBLIC_URL" help:"Base URL that the served documents name as their server, as in https://api.example.com. Without it they stay relative." placeholder:"URL"`
	HTTPListen     string   `group:"Listening" name:"http-listen" env:"GUILDHALL_HTTP_LISTEN" default:":8080" help:"Plain HTTP, for trusted proxies that say a request came over HTTPS; every other caller gets https_required. off closes it."`
	TrustedProxies []string `group:"Listening" env:"GUILDHALL_TRUSTED_PROXIES" sep:"none" help:"CIDRs whose X-Forwarded-Proto and X-Forwarded-For are believed; at most a /8 (IPv4) or a /32 (IPv6) each." placeholder:"CIDR"`
	HTTPSListen    string   `group:"Listening" name:"https-listen" env:"GUILDHALL_HTTPS_LISTEN" help:"Address for HTTPS. The default is :8443 when a certificate is set, else none." placeholder:"ADDRESS"`
	TLSCert        string   `group:"Listening" name:"tls-cert" env:"GUILDHALL_TLS_CERT" help:"Certificate file with its chain, PEM. A renewed file is served within a minute, without a restart. dev makes its own." placeholder:"FILE"`
	TLSKey         string   `group:"Listening" name:"tls-key" env:"GUILDHALL_TLS_KEY" help:"The certificate's private key, PEM." placeholder:"FILE"`
	OpsListen      string   `group:"Listening" env:"GUILDHALL_OPS_LISTEN" default:"127.0.0.1:9190" help:"/livez, /readyz and /metrics for Prometheus, without a token and never on the public listeners. off closes it."`
	OpsHosts       []string `group:"Listening" env:"GUILDHALL_OPS_HOSTS" sep:"none" help:"Names under which that listener answers, besides addresses and localhost; any other Host gets 421." placeholder:"NAME"`
	Pprof          string   `group:"Listening" env:"GUILDHALL_PPROF" help:"on or off: profiles under that listener's /debug/pprof/, which show memory, secrets included. The default is on at a loopback address."`
	DBConnections  string   `group:"Database" name:"db-connections" env:"GUILDHALL_DB_CONNECTIONS" default:"29" help:"All connections to Postgres of this process, which divides them by their work."`
	DBDistributed  string   `group:"Database" name:"db-distributed" env:"GUILDHALL_DB_DISTRIBUTED" help:"on: no statement changes several guilds, as Citus needs. A server finds out by itself and refuses to start where off is wrong."`
	RateRead       string   `group:"Limits" env:"GUILDHALL_RATE_READ" default:"600/1m" help:"Reads per token, or off."`
	RateWrite      string   `group:"Limits" env:"GUILDHALL_RATE_WRITE" default:"120/1m" help:"Writes per token, or off."`
	RateBot        string   `group:"Limits" env:"GUILDHALL_RATE_BOT" default:"3000/1m" help:"Reads, and writes, per bot key and guild, or off."`
	RateLogin      string   `group:"Limits" env:"GUILDHALL_RATE_LOGIN" default:"100/1m" help:"Failed authentications, and documents read, per address, or off."`
	RateDashboard  string   `group:"Limits" env:"GUILDHALL_RATE_DASHBOARD" default:"300/1m" help:"Requests of one session of the dashboard, or off."`
	RedisURL       string   `group:"Limits" name:"redis-url" env:"GUILDHALL_REDIS_URL" help:"Redis or Valkey for limits that several nodes share. Without it each node counts for itself." placeholder:"URL"`
	DiscordToken   string   `group:"Discord" env:"GUILDHALL_DISCORD_TOKEN" help:"The bot's token, required in live unless GUILDHALL_DISCORD_URL is off or bot. In test without it, a local stand-in accepts every call and logs it." placeholder:"TOKEN"`
	DiscordURL     string   `group:"Discord" name:"discord-url" env:"GUILDHALL_DISCORD_URL" default:"https://discord.com/api/v10" help:"Base of Discord's API. off: it is never called, and operations do without or are refused. bot: the work goes to your bot."`
	DashboardURL   string   `group:"Dashboard" name:"dashboard-url" env:"GUILDHALL_DASHBOARD_URL" help:"Public address of the dashboard, https://host, under which alone it answers. Empty: there is none; dev has one on this machine." placeholder:"URL"`
	ClientID       string   `group:"Dashboard" name:"discord-client-id" env:"GUILDHALL_DISCORD_CLIENT_ID" help:"Discord application with which people sign in; needs the bot's token as well. Empty: operators' links only; dev has a stand-in." placeholder:"ID"`
	ClientSecret   string   `group:"Dashboard" name:"discord-client-secret" env:"GUILDHALL_DISCORD_CLIENT_SECRET" help:"The application's secret." placeholder:"SECRET"`
	AuthorizeURL   string   `group:"Dashboard" name:"discord-authorize-url" env:"GUILDHALL_DISCORD_AUTHORIZE_URL" default:"https://discord.com/oauth2/authorize" help:"Page on which people consent to sign in; everything else goes to GUILDHALL_DISCORD_URL."`
	WebhookAllow   []string `group:"Webhooks" env:"GUILDHALL_WEBHOOK_ALLOW" sep:"none" default:"${default_webhook_allow}" help:"CIDRs of otherwise refused addresses that webhooks may call, over http too. dev allows loopback." placeholder:"CIDR"`
	WebhookCA      string   `group:"Webhooks" name:"webhook-ca" env:"GUILDHALL_WEBHOOK_CA" help:"File of further CA certificates for receivers." placeholder:"FILE"`
	WebhookRetries string   `group:"Webhooks" env:"GUILDHALL_WEBHOOK_RETRIES" help:"Delays between attempts, comma separated. The default is the contract's, three days: 5s,30s,2m,10m,30m,1h,2h,4h,8h,12h,20h,24h." placeholder:"DELAYS"`
	SecretKey      string   `group:"Keys" env:"GUILDHALL_SECRET_KEY" help:"Base64 of 32 bytes (openssl rand -base64 32), seals secrets and stored answers. Several, comma separated: the first seals, all open. Required in live." placeholder:"KEYS"`
	Log            string   `group:"Log" env:"GUILDHALL_LOG" default:"${default_log}" help:"Level (debug, info, warn, error) and format (json, text). dev uses info,text."`
	CheckAnswers   string   `group:"Log" env:"GUILDHALL_CHECK_ANSWERS" default:"off" help:"log: hold every answer against the contract and log an error where they disagree. For staging: it costs a copy of each answer."`
}

// databaseURL is the setting that names the database.
type databaseURL struct {
	DatabaseURL string `group:"Database" name:"database-url" env:"GUILDHALL_DATABASE_URL" help:"Postgres 15 or newer; several servers with target_session_attrs=read-write. serve requires it; other commands default to the dev of --dir." placeholder:"URL"`
}

// listenURL is the setting for a direct connection to the same database.
type listenURL struct {
	ListenURL string `group:"Database" name:"listen-url" env:"GUILDHALL_LISTEN_URL" help:"A direct connection to the same database for notifications and migrations, where a pooler stands between. The default is the database's URL." placeholder:"URL"`
}

// direct calls use with the URL of a direct connection, and names the setting in its error if it is not
// the database's.
func (l listenURL) direct(database string, use func(url string) error) error {
	if l.ListenURL == "" {
		return use(database)
	}
	return fault.Wrap(use(l.ListenURL), "over GUILDHALL_LISTEN_URL")
}

// roles are the roles of a process.
type roles struct {
	Roles []string `group:"Process" env:"GUILDHALL_ROLES" default:"api,worker" help:"The work of this process: api, worker, or both. doctor judges the settings for it."`
}

var bothRoles = roles{[]string{"api", "worker"}}

func (r roles) api() bool    { return slices.Contains(r.Roles, "api") }
func (r roles) worker() bool { return slices.Contains(r.Roles, "worker") }

// valid refuses unknown roles, and no role at all: such a node would run and do nothing.
func (r roles) valid() error {
	if len(r.Roles) == 0 {
		return usageError{errors.New("is empty: write api, worker, or both")}
	}
	for _, role := range r.Roles {
		if err := oneOf(role, "api", "worker"); err != nil {
			return err
		}
	}
	return nil
}

// checked is Settings parsed into the types that the program uses.
type checked struct {
	Settings
	roles
	share    connections
	opsHosts map[string]bool
	proxies  []netip.Prefix
	quotas   api.Quotas
	sessions ratelimit.Quota // rate limit of the dashboard's sessions
	box      *seal.Box
	hooks    delivery.Config // Box, Guard, Schedule and Authorities only
	pages    *url.URL        // URL of the dashboard; nil: no dashboard
}

// problems are errors in settings.
type problems []error

// check parses the settings of a process with these roles. The error names each setting that is
// wrong.
func (s Settings) check(r roles) (checked, error) {
	c := checked{Settings: s, roles: r}
	var found problems
	var err error
	found.about("GUILDHALL_ENV", oneOf(s.Env, "live", "test"))
	found.about("GUILDHALL_ROLES", r.valid())
	found.about("GUILDHALL_PPROF", oneOf(s.Pprof, "on", "off", ""))
	found.about("GUILDHALL_DB_DISTRIBUTED", oneOf(s.DBDistributed, "on", "off", ""))
	found.about("GUILDHALL_CHECK_ANSWERS", oneOf(s.CheckAnswers, "off", "log"))
	c.checkListeners(&found)
	c.opsHosts, err = hostNames(s.OpsHosts)
	found.about("GUILDHALL_OPS_HOSTS", err)
	c.proxies, err = proxies(s.TrustedProxies)
	found.about("GUILDHALL_TRUSTED_PROXIES", err)
	c.checkRates(&found)
	c.share, err = parseConnections(s.DBConnections, r, s.DashboardURL != "")
	found.about("GUILDHALL_DB_CONNECTIONS", err)
	c.PublicURL, err = publicURL(s.PublicURL)
	found.about("GUILDHALL_PUBLIC_URL", err)
	if s.RedisURL != "" {
		found.about("GUILDHALL_REDIS_URL", ratelimit.CheckURL(s.RedisURL))
	}
	if !s.apart() {
		found.about("GUILDHALL_DISCORD_URL", location(s.DiscordURL))
	}
	c.DiscordToken, err = cleanSecret(s.DiscordToken)
	found.about("GUILDHALL_DISCORD_TOKEN", err)
	c.ClientSecret, err = cleanSecret(s.ClientSecret)
	found.about("GUILDHALL_DISCORD_CLIENT_SECRET", err)
	if s.Env == "live" && strings.TrimSpace(s.DiscordToken) == "" && !s.apart() {
		found.about("GUILDHALL_DISCORD_TOKEN", errors.New("live needs the bot's token, else messages would be answered for that nobody gets; GUILDHALL_DISCORD_URL=off does without the chat platform, and GUILDHALL_DISCORD_URL=bot leaves it to your bot"))
	}
	found.about("GUILDHALL_DISCORD_AUTHORIZE_URL", location(s.AuthorizeURL))
	if s.DashboardURL != "" {
		c.pages, err = dashboard.ParseURL(s.DashboardURL)
		found.about("GUILDHALL_DASHBOARD_URL", err)
	}
	if s.ClientID != "" && !s.apart() && (s.ClientSecret == "" || s.DiscordToken == "") {
		found.about("GUILDHALL_DISCORD_CLIENT_ID", errors.New("signing in needs the application's secret (GUILDHALL_DISCORD_CLIENT_SECRET) and the bot's token (GUILDHALL_DISCORD_TOKEN)"))
	}
	c.box, err = box(s.SecretKey, s.Env)
	found.about("GUILDHALL_SECRET_KEY", err)
	if c.hooks, err = s.receivers(c.box); err != nil {
		found = append(found, err)
	}
	_, err = logging.New(os.Stderr, s.Log)
	found.about("GUILDHALL_LOG", err)
	if err := tracing.Check(); err != nil {
		found = append(found, err) // the error names the variable, which belongs to OpenTelemetry
	}
	if len(found) > 0 {
		return checked{}, errors.Join(found...)
	}
	return c, nil
}

// checkRates parses the rate limits.
func (c *checked) checkRates(found *problems) {
	for _, q := range []struct {
		name, text string
		to         *ratelimit.Quota
	}{
		{"READ", c.RateRead, &c.quotas.Read},
		{"WRITE", c.RateWrite, &c.quotas.Write},
		{"BOT", c.RateBot, &c.quotas.Bot},
		{"LOGIN", c.RateLogin, &c.quotas.Login},
		{"DASHBOARD", c.RateDashboard, &c.sessions},
	} {
		var err error
		*q.to, err = ratelimit.ParseQuota(q.text)
		found.about("GUILDHALL_RATE_"+q.name, err)
	}
}

// off reports whether the chat platform is switched off.
func (s Settings) off() bool { return s.DiscordURL == "off" }

// byBot reports whether the operator's bot acts on the chat platform.
func (s Settings) byBot() bool { return s.DiscordURL == "bot" }

// apart reports whether the program never calls the chat platform.
func (s Settings) apart() bool { return s.off() || s.byBot() }

// about adds an error about a variable, if err is not nil.
func (p *problems) about(variable string, err error) {
	if f, ok := fault.As(err); ok {
		err = errors.New(f.Message) // only the message, since its place refers to a command's options
	}
	if err != nil {
		*p = append(*p, fault.Wrap(err, variable))
	}
}

// checkListeners parses the listeners' addresses; empty: no listener.
func (c *checked) checkListeners(found *problems) {
	switch {
	case c.TLSCert != "" && c.TLSKey == "":
		found.about("GUILDHALL_TLS_KEY", errors.New("is missing: the certificate (GUILDHALL_TLS_CERT) is of no use without its private key"))
	case c.TLSCert == "" && c.TLSKey != "":
		found.about("GUILDHALL_TLS_CERT", errors.New("is missing: the private key (GUILDHALL_TLS_KEY) is of no use without its certificate"))
	}
	switch {
	case c.HTTPSListen != "" && c.TLSCert == "":
		found.about("GUILDHALL_HTTPS_LISTEN", errors.New("HTTPS needs a certificate: set GUILDHALL_TLS_CERT and GUILDHALL_TLS_KEY"))
	case c.HTTPSListen == "" && c.TLSCert != "":
		c.HTTPSListen = ":8443"
	}
	if c.HTTPListen == "off" {
		c.HTTPListen = ""
	}
	if c.api() && c.HTTPListen == "" && c.HTTPSListen == "" {
		found.about("GUILDHALL_HTTP_LISTEN", errors.New("with plain HTTP off a certificate is needed: set GUILDHALL_TLS_CERT and GUILDHALL_TLS_KEY"))
	}
	found.about("GUILDHALL_HTTPS_LISTEN", address(c.HTTPSListen))
	found.about("GUILDHALL_HTTP_LISTEN", address(c.HTTPListen))
	switch c.OpsListen {
	case "":
		found.about("GUILDHALL_OPS_LISTEN", errors.New("is empty: write host:port, or off for no such listener"))
	case "off":
		c.OpsListen = ""
	default:
		found.about("GUILDHALL_OPS_LISTEN", address(c.OpsListen))
	}
}

// certificate returns the files of the certificate.
func (s Settings) certificate() certificate.Files {
	return certificate.Files{Cert: s.TLSCert, Key: s.TLSKey, CertSetting: "GUILDHALL_TLS_CERT", KeySetting: "GUILDHALL_TLS_KEY"}
}

// unreachable returns a warning if the API refuses every request: the node has no certificate, and
// plain HTTP is only for trusted proxies.
func (c checked) unreachable() string {
	if !c.api() || c.HTTPSListen != "" || len(c.proxies) > 0 {
		return ""
	}
	return "every request is refused (https_required): set GUILDHALL_TRUSTED_PROXIES to the address of the proxy that has the certificate, " +
		"or GUILDHALL_TLS_CERT and GUILDHALL_TLS_KEY"
}

// withoutEffect returns a warning about settings that another setting cancels, or "". dashboard says
// whether there is a dashboard: that of dev has no public address.
func (c checked) withoutEffect(dashboard bool) string {
	var notes []string
	cancels := func(cause string, settings ...[2]string) { // each setting with its value
		var names []string
		for _, s := range settings {
			if s[1] != "" {
				names = append(names, s[0])
			}
		}
		switch len(names) {
		case 0:
			return
		case 1:
			notes = append(notes, names[0]+" has no effect, since "+cause)
		default:
			notes = append(notes, strings.Join(names, " and ")+" have no effect, since "+cause)
		}
	}
	id, secret := [2]string{"GUILDHALL_DISCORD_CLIENT_ID", c.ClientID}, [2]string{"GUILDHALL_DISCORD_CLIENT_SECRET", c.ClientSecret}
	if c.apart() {
		cancels("GUILDHALL_DISCORD_URL is "+c.DiscordURL, [2]string{"GUILDHALL_DISCORD_TOKEN", c.DiscordToken})
	}
	switch {
	case !c.api(): // nobody signs in at a worker, which may share the settings of the other nodes
	case !dashboard:
		cancels("GUILDHALL_DASHBOARD_URL is not set", id, secret)
	case c.ClientID == "":
		cancels("GUILDHALL_DISCORD_CLIENT_ID is not set", secret)
	case c.apart():
		cancels("GUILDHALL_DISCORD_URL is "+c.DiscordURL+" and nobody can sign in with Discord", id, secret)
	}
	if c.OpsListen == "" {
		pprof := ""
		if c.Pprof == "on" {
			pprof = c.Pprof
		}
		cancels("GUILDHALL_OPS_LISTEN is off", [2]string{"GUILDHALL_OPS_HOSTS", strings.Join(wire.Items(c.OpsHosts...), "")}, [2]string{"GUILDHALL_PPROF", pprof})
	}
	return strings.Join(notes, "; ")
}

// checkListenURL refuses a URL over which no notifications would arrive; empty stands for the database
// URL.
func (c checked) checkListenURL(listenURL string) error {
	if listenURL == "" || !c.api() {
		return nil
	}
	return fault.Wrap(db.CheckURL(listenURL), "GUILDHALL_LISTEN_URL")
}

// distribution sets whether the tables are distributed, from what was found in the database. note
// is for the log and may be empty.
func (s *Settings) distribution(found bool) (note string, err error) {
	switch {
	case found && s.DBDistributed == "off":
		return "", errors.New("GUILDHALL_DB_DISTRIBUTED: is off, but the tables of this database are distributed by guild: leave it out, or write on")
	case found:
		s.DBDistributed = "on"
	case s.DBDistributed == "on":
		note = "GUILDHALL_DB_DISTRIBUTED is on, but the tables of this database are not distributed: leave it out; writes of several guilds would share a statement"
	}
	return note, nil
}

// receivers returns the delivery configuration from the settings about webhooks.
func (s Settings) receivers(box *seal.Box) (delivery.Config, error) {
	c := delivery.Config{Box: box}
	allow, err := egress.ParseAllow(strings.Join(s.WebhookAllow, ","))
	if err != nil {
		return c, fault.Wrap(err, "GUILDHALL_WEBHOOK_ALLOW")
	}
	c.Guard = egress.NewGuard(allow, nil)
	if c.Schedule, err = delivery.ParseSchedule(s.WebhookRetries); err != nil {
		return c, fault.Wrap(err, "GUILDHALL_WEBHOOK_RETRIES")
	}
	if s.WebhookCA == "" {
		return c, nil
	}
	pem, err := os.ReadFile(s.WebhookCA)
	if err != nil {
		return c, fault.Wrap(err, "GUILDHALL_WEBHOOK_CA")
	}
	c.Authorities, err = egress.Authorities(pem)
	return c, fault.Wrap(err, "GUILDHALL_WEBHOOK_CA")
}

// The shortest prefixes that may be trusted as proxies, in bits. A wider range contains other
// people's machines, which could then claim any client address.
const (
	widestProxies4 = 8
	widestProxies6 = 32
)

// proxies parses the ranges whose forwarding headers are trusted.
func proxies(lists []string) ([]netip.Prefix, error) {
	all, err := auth.ParsePrefixes(lists...)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		widest := widestProxies6
		if p.Addr().Is4() {
			widest = widestProxies4
		}
		if p.Bits() < widest {
			return nil, fmt.Errorf("%s is too wide: everyone in it could name any address as the client's; "+
				"name your proxies' own addresses, at most a /%d (IPv4) or a /%d (IPv6)", p, widestProxies4, widestProxies6)
		}
	}
	return all, nil
}

// hostNames parses a list of host names without ports.
func hostNames(lists []string) (map[string]bool, error) {
	names := map[string]bool{}
	for _, name := range wire.Items(lists...) {
		if strings.ContainsAny(name, ":/*@[]") {
			return nil, fmt.Errorf("%q is not a host name: write it without scheme, port or path", name)
		}
		names[strings.ToLower(strings.TrimSuffix(name, "."))] = true
	}
	return names, nil
}

// cleanSecret returns a secret of Discord's without the white space around it, which files of
// secrets add. It refuses what people copy along with a secret, since a call with it fails
// as if the outcome were unknown. The error does not repeat the secret.
func cleanSecret(secret string) (string, error) {
	secret = strings.TrimSpace(secret)
	switch {
	case strings.ContainsAny(secret, "\"'`"):
		return "", errors.New("has a quotation mark in it: write it without quotes")
	case len(secret) > 4 && strings.EqualFold(secret[:4], "Bot "):
		return "", errors.New("begins with Bot: write what follows it alone")
	case strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", errors.New("has white space or a character in it that no such secret has: copy it once more")
	}
	return secret, nil
}

// oneOf returns an error if s is none of the choices.
func oneOf(s string, choices ...string) error {
	if slices.Contains(choices, s) {
		return nil
	}
	return usageError{fmt.Errorf("is %q: write %s", s, strings.TrimSuffix(strings.Join(choices, " or "), " or "))}
}

// address checks an address to listen on; empty: none.
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

// publicURL checks the base URL of the documents and removes a trailing slash.
func publicURL(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.Contains(s, "?") || u.Fragment != "" || u.String() != s {
		return "", errors.New("must be https:// and a host, with a port or a path if need be, and nothing else")
	}
	base := strings.TrimRight(s, "/")
	if strings.HasSuffix(base, api.Prefix) {
		return "", errors.New("write it without " + api.Prefix + ", which the documents add")
	}
	return base, nil
}

// location checks a URL that the program calls or that people are sent to; empty: none. The error
// does not repeat the URL, which may contain a password.
func location(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return errors.New("the URL must begin with http:// or https:// and a host")
	}
	return nil
}
