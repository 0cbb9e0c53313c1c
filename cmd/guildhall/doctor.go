package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"guildhall/internal/certificate"
	"guildhall/internal/chat"
	"guildhall/internal/doctor"
	"guildhall/internal/logging"
	"guildhall/internal/output"
	"guildhall/internal/tracing"
)

type doctorCommand struct {
	Settings `set:"default_env=live" set:"default_log=info,json" set:"default_webhook_allow="` //nolint:staticcheck // kong reads every set
	connection
	ListenURL string   `name:"listen-url" env:"GUILDHALL_LISTEN_URL" help:"A direct way to the same database, where a pooler stands between." placeholder:"URL"`
	Guild     []string `sep:"none" help:"Look at this guild's rights, endpoints and books only; repeat it for more." placeholder:"ID"`
	Books     bool     `help:"Hold every balance against the sum of its ledger, guild by guild."`
	JSON      bool     `help:"Print one JSON object."`
}

// examined is what `--json` prints.
type examined struct {
	Status   string           `json:"status"` // the worst of the findings'
	Findings []doctor.Finding `json:"findings"`
}

// Run fails when a check has; a warning is no failure.
func (c *doctorCommand) Run(ctx context.Context, io streams) error {
	all := examined{Status: doctor.OK, Findings: []doctor.Finding{}}
	var failed []string
	var printing error
	tell := func(f doctor.Finding) {
		f.Message = oneLine(logging.Redact(f.Message))
		all.Findings = append(all.Findings, f)
		switch {
		case f.Status == doctor.Fail:
			all.Status = doctor.Fail
			failed = append(failed, f.Check)
		case f.Status == doctor.Warn && all.Status == doctor.OK:
			all.Status = doctor.Warn
		}
		if !c.JSON && printing == nil {
			printing = output.Say(io.out, "%s %s %s", fmt.Sprintf("%-4s", f.Status), fmt.Sprintf("%-13s", f.Check), f.Message)
		}
	}
	f, err := c.find()
	if err != nil {
		return err
	}
	c.likeDev(f)
	if err := c.examine(ctx, f.DatabaseURL, tell); err != nil {
		return err
	}
	if c.JSON {
		printing = output.JSON(io.out, all)
	}
	if printing == nil && len(failed) > 0 {
		printing = fmt.Errorf("%d of %d checks failed: %s", len(failed), len(all.Findings), strings.Join(failed, ", "))
	}
	return printing
}

func (c *doctorCommand) examine(ctx context.Context, databaseURL string, tell func(doctor.Finding)) error {
	settings, err := c.check()
	if err != nil {
		tell(doctor.Finding{Status: doctor.Fail, Check: doctor.Settings, About: []string{}, Message: err.Error() + "; nothing else was checked"})
		return nil //nolint:nilerr // the finding says it
	}
	tell(doctor.Finding{Status: doctor.OK, Check: doctor.Settings, About: []string{}, Message: "the settings can be used"})
	cfg := doctor.Config{
		DatabaseURL: databaseURL, ListenURL: cmp.Or(c.ListenURL, databaseURL),
		Box: settings.box, RedisURL: c.RedisURL, CertFile: c.TLSCert, KeyFile: c.TLSKey, Guard: settings.hooks.Guard,
		Guilds: c.Guild, Books: c.Books,
	}
	if tracing.Wanted() {
		cfg.Traces = tracing.Probe
	}
	if u, err := url.Parse(c.PublicURL); err == nil && u.Host != "" {
		cfg.Hosts = append(cfg.Hosts, u.Hostname())
	}
	if settings.pages != nil {
		cfg.Hosts = append(cfg.Hosts, settings.pages.Hostname())
	}
	if c.DiscordToken != "" {
		cfg.Chat, err = chat.NewDiscord(chat.Config{Token: c.DiscordToken, URL: c.DiscordURL, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
	}
	return doctor.Examine(ctx, cfg, tell)
}

// likeDev takes the settings that a running dev makes for itself.
func (c *doctorCommand) likeDev(f found) {
	if f.Env == "" {
		c.withoutKey()
		return
	}
	c.Env = f.Env
	c.SecretKey = cmp.Or(c.SecretKey, f.SecretKey)
	if len(c.WebhookAllow) == 0 {
		c.WebhookAllow = []string{loopback}
	}
	files := certificate.LocalPaths(c.Dir)
	if _, err := os.Stat(files.Cert); err == nil && c.TLSCert == "" {
		c.TLSCert, c.TLSKey = files.Cert, files.Key
	}
}
