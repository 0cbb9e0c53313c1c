package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"guildhall/internal/base/certificate"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/logging"
	"guildhall/internal/base/output"
	"guildhall/internal/base/tracing"
	"guildhall/internal/base/wire"
	"guildhall/internal/operate/doctor"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/server/api"
)

type doctorCommand struct {
	connection
	listenURL
	roles
	Settings `set:"default_env=live" set:"default_log=info,json" set:"default_webhook_allow="` //nolint:staticcheck // kong reads every set
	Guild    []string                                                                          `sep:"none" help:"Look at this guild's rights, endpoints and books only; repeat it, or list several with commas." placeholder:"ID"`
	Books    bool                                                                              `help:"Hold every balance against the sum of its ledger, guild by guild."`
	JSON     bool                                                                              `help:"Print one JSON object."`
}

// Help describes the output.
func (c *doctorCommand) Help() string {
	return "Run it with the servers' own settings. It prints ok, warn or fail, the check's name and a sentence, " +
		"keeps nothing of what it tries, and exits with 1 when a check fails, not for warnings."
}

// examined is the command's JSON.
type examined struct {
	Status   string           `json:"status"` // the worst status of a finding
	Findings []doctor.Finding `json:"findings"`
}

// Run fails if a check has failed; warnings are no failure.
func (c *doctorCommand) Run(ctx context.Context, io streams, unknown noSettings) error {
	all := examined{Status: doctor.OK, Findings: []doctor.Finding{}}
	var failed []string
	var printing error
	report := func(f doctor.Finding) {
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
	if err := c.examine(ctx, string(unknown), report); err != nil {
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

func (c *doctorCommand) examine(ctx context.Context, unknown string, report func(doctor.Finding)) error {
	f, settings, note, err := c.settings(ctx)
	notes := slices.DeleteFunc([]string{
		note, unknown, settings.unreachable(), settings.withoutEffect(c.DashboardURL != "" || f.Env != ""), db.Unneeded(f.DatabaseURL), db.Unneeded(c.ListenURL),
	}, func(n string) bool { return n == "" })
	note = strings.Join(notes, "; ")
	found := doctor.Finding{Status: doctor.OK, Check: doctor.Settings, About: []string{}, Message: "the settings can be used"}
	switch {
	case err != nil:
		found.Status, found.Message = doctor.Fail, err.Error()+"; nothing else was checked"
		report(found)
		return nil //nolint:nilerr // the finding says it
	case note != "":
		found.Status, found.Message = doctor.Warn, note
	}
	report(found)
	cfg := doctor.Config{
		DatabaseURL: f.DatabaseURL, ListenURL: cmp.Or(c.ListenURL, f.DatabaseURL), Distributed: settings.DBDistributed == "on",
		Box: settings.box, RedisURL: c.RedisURL, Certificate: c.certificate(), Guard: settings.hooks.Guard,
		Guilds: wire.Items(c.Guild...), Books: c.Books, Connections: settings.share.sum(c.api()),
	}
	if tracing.Wanted() {
		cfg.Traces = tracing.Probe
	}
	if u, err := url.Parse(settings.PublicURL); err == nil && u.Host != "" {
		cfg.Hosts, cfg.Probe = append(cfg.Hosts, u.Hostname()), settings.PublicURL+api.Prefix+"/me"
	}
	if settings.pages != nil {
		cfg.Hosts = append(cfg.Hosts, settings.pages.Hostname())
	}
	cfg.ChatOff, cfg.ChatByBot = c.off(), c.byBot()
	if settings.DiscordToken != "" && !c.apart() {
		cfg.Chat, err = chat.NewDiscord(chat.Config{Token: settings.DiscordToken, URL: c.DiscordURL, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
	}
	return doctor.Examine(ctx, cfg, report)
}

// schemaTimeout is how long reading the schema's state may take.
const schemaTimeout = 5 * time.Second

// settings returns the settings with which a node would start. note is what a node would warn of.
// If the database does not respond, there is no note.
func (c *doctorCommand) settings(ctx context.Context) (f targetDatabase, settings checked, note string, err error) {
	if f, err = c.find(); err != nil {
		return f, settings, "", err
	}
	c.likeDev(f)
	if settings, err = c.check(c.roles); err != nil {
		return f, settings, "", err
	}
	if err = db.CheckURL(f.DatabaseURL); err != nil {
		return f, settings, "", fault.Wrap(err, "GUILDHALL_DATABASE_URL")
	}
	if err = settings.checkListenURL(c.ListenURL); err != nil {
		return f, settings, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, schemaTimeout)
	defer cancel()
	if schema, err := db.CheckSchema(ctx, f.DatabaseURL); err == nil {
		note, err = settings.distribution(schema.Distributed)
		return f, settings, note, err
	}
	return f, settings, "", nil
}

// likeDev sets the settings that a running dev chooses itself.
func (c *doctorCommand) likeDev(f targetDatabase) {
	if f.Env == "" {
		c.withoutKey()
		return
	}
	c.Env = f.Env
	c.SecretKey = cmp.Or(c.SecretKey, f.SecretKey)
	if strings.Join(c.WebhookAllow, "") == "" { // the default is a list with one empty value
		c.WebhookAllow = []string{loopback}
	}
	files := certificate.LocalPaths(c.Dir)
	if _, err := os.Stat(files.Cert); err == nil && c.TLSCert == "" {
		c.TLSCert, c.TLSKey = files.Cert, files.Key
	}
}
