package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/user"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/access/auth"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/db"
	"guildhall/internal/base/output"
	"guildhall/internal/base/wire"
	"guildhall/internal/operate/monitor"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/server/api"
	"guildhall/internal/server/dashboard"
	"guildhall/internal/service/webhooks"
)

// openPages opens the dashboard's own connections, so that it takes none from the API. It returns
// nil if there is no dashboard.
func (n *node) openPages() (*db.DB, error) {
	if n.pages == nil && !n.local {
		return nil, nil //nolint:nilnil // no dashboard, no connections
	}
	d, err := db.Open(db.Config{
		URL: n.databaseURL, Writers: n.share.pageWrites, Readers: n.share.pageRead, Name: "guildhall-pages", Distributed: n.DBDistributed == "on",
	})
	if err == nil {
		n.metrics.MustRegister(monitor.NewPools("pages", d))
	}
	return d, err
}

// dashboardURL returns the URL of the dashboard, or "" if there is none.
func (n *node) dashboardURL() string {
	switch {
	case n.pageDB == nil:
		return ""
	case n.pages == nil:
		return dashboard.Prefix + "/"
	}
	return n.pages.String() + "/"
}

// withDashboard adds the dashboard, if there is one, to the API's handler.
func (n *node) withDashboard(next http.Handler, limits *ratelimit.Limiter, wake func(guild string)) (http.Handler, error) {
	if n.pageDB == nil {
		return next, nil
	}
	d := n.pageDB
	cfg := dashboard.Config{
		DB: d, URL: n.pages, Env: n.Env, Limits: limits, Login: n.quotas.Login, Session: n.sessions, Sealer: n.box,
		Webhooks: webhooks.Config{DB: d, Box: n.hooks.Box, Guard: n.hooks.Guard}, Wake: wake, Proxies: n.proxies, CAFile: n.caFile, Log: n.log, Metrics: n.metrics,
		Version: version,
	}
	var err error
	switch {
	case n.ClientID != "" && !n.apart():
		bot, _ := n.chat.(*chat.Discord) // nil with a stand-in for Discord, in which case it is not needed
		cfg.Discord, err = dashboard.NewDiscord(dashboard.DiscordConfig{
			ClientID: n.ClientID, ClientSecret: n.ClientSecret, AuthorizeURL: n.AuthorizeURL, URL: n.DiscordURL, Bot: bot, Tracer: n.tracer,
		})
	case n.local:
		cfg.Discord, err = dashboard.NewStandIn(d)
	}
	if err != nil {
		return nil, err
	}
	operations, err := api.Summaries()
	if err != nil {
		return nil, err
	}
	for _, o := range operations {
		cfg.Operations = append(cfg.Operations, dashboard.Operation(o))
	}
	samples, err := api.EventSamples()
	if err != nil {
		return nil, err
	}
	for _, e := range samples {
		cfg.Events = append(cfg.Events, dashboard.EventSample(e))
	}
	s, err := dashboard.New(cfg)
	if err != nil {
		return nil, err
	}
	return s.Beside(next), nil
}

// atShell returns the actor of a command for the audit log.
func atShell() audit.Actor {
	a := audit.Actor{Type: audit.CommandLine, Name: "unknown"}
	if u, err := user.Current(); err == nil {
		a.ID, a.Name = u.Uid, u.Username
	}
	if host, err := os.Hostname(); err == nil {
		a.Address = host
	}
	return a
}

type dashboardCommands struct {
	Link     dashboardLink     `cmd:"" help:"Print a link that opens the dashboard of a guild, once; or take unused links back."`
	Sessions dashboardSessions `cmd:"" help:"List who is signed in to the dashboard."`
	End      dashboardEnd      `cmd:"" help:"End a session of the dashboard, or all."`
}

type dashboardLink struct {
	connection
	Guild        string `help:"The guild's id. Required, but for --revoke." placeholder:"ID"`
	Revoke       bool   `help:"Make no link, but take back those that nobody has used: the guild's, or without --guild all."`
	ExpiresIn    string `default:"10m" help:"Time until the link is worth nothing: a number and s, m, h or d." placeholder:"10m"`
	DashboardURL string `name:"dashboard-url" env:"GUILDHALL_DASHBOARD_URL" help:"Public address of the dashboard. Default: that of the running guildhall dev." placeholder:"URL"`
	JSON         bool   `help:"Print one JSON object."`
}

// madeLink is the JSON of a new link.
type madeLink struct {
	URL       string    `json:"url"`
	GuildID   string    `json:"guild_id"`
	ExpiresAt wire.Time `json:"expires_at"`
}

// longestLink is the longest validity of a link.
const longestLink = 24 * time.Hour

func (c *dashboardLink) Run(ctx context.Context, io streams) error {
	if c.Revoke {
		return c.revoke(ctx, io)
	}
	if c.Guild == "" {
		return usageError{errors.New("missing flags: --guild=ID")}
	}
	expiresIn, err := auth.ParseExpiresIn(c.ExpiresIn)
	if err != nil {
		return err
	}
	if expiresIn > longestLink {
		return usageError{errors.New("--expires-in: a link is of use for 24h at most")}
	}
	d, f, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	base := f.Dashboard
	if c.DashboardURL != "" {
		u, err := dashboard.ParseURL(c.DashboardURL)
		if err != nil {
			return usageError{err}
		}
		base = "https://" + u.Host
	}
	if base == "" {
		return errors.New("GUILDHALL_DASHBOARD_URL: say where the dashboard is, as in https://guildhall.example")
	}
	return showOnce(ctx, d, func(ctx context.Context, d db.Doer) error {
		l, err := dashboard.NewLink(ctx, d, c.Guild, expiresIn)
		if err != nil {
			return err
		}
		return io.secret(c.JSON, madeLink{base + l.Path, c.Guild, wire.At(l.ExpiresAt)}, "%s\n\nIt works once, until %s.", base+l.Path, output.Instant(&l.ExpiresAt, ""))
	})
}
