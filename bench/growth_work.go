package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/access/idempotency"
	"guildhall/internal/access/usage"
	"guildhall/internal/base/db"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/server/dashboard"
	"guildhall/internal/service/cases"
	"guildhall/internal/service/giveaways"
	"guildhall/internal/service/leaderboard"
	"guildhall/internal/service/tickets"
)

// times is how often a sweep is run; before that it is run until Postgres has
// settled for plans.
const times, settling = 30, 10

// sweeps runs each sweep in turn, with nothing due, and the keeper of leaderboards
// with one that was asked for. Those of the delivery engine, and the engine's looks,
// are what an idle node does.
func (p *population) sweeps(ctx context.Context, _ growthOptions) (lines []line, err error) {
	log := slog.New(slog.DiscardHandler)
	platform := chat.NewStandIn(log)
	keeper := &leaderboard.Keeper{DB: p.DB, Log: log}
	pruning := func(kinds []db.Outlived) func(context.Context) error {
		return func(ctx context.Context) error {
			for _, o := range kinds {
				if _, err := db.PruneOf(ctx, p.DB, o, 1000); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for _, s := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"giveaway transitions", func(ctx context.Context) error { return giveaways.Transitions(ctx, p.DB) }},
		{"giveaway announcements", func(ctx context.Context) error { return giveaways.SweepAnnouncements(ctx, p.DB) }},
		{"ticket messages", func(ctx context.Context) error {
			return tickets.SweepIntents(ctx, tickets.Config{DB: p.DB, Chat: platform})
		}},
		{"ticket channels", func(ctx context.Context) error { return tickets.SweepChannels(ctx, p.DB) }},
		{"case expiry", func(ctx context.Context) error { return cases.Expire(ctx, p.DB) }},
		{"pruning of keys", pruning(idempotency.Outlived())},
		{"pruning of intents", pruning(chat.Outlived())},
		{"pruning of the audit log", pruning(audit.Outlived())},
		{"pruning of counters", pruning(usage.Outlived())},
		{"pruning of sessions", pruning(dashboard.Outlived())},
		{"keeper, nothing asked for", keeper.Maintain},
		{"keeper, one leaderboard asked for", func(ctx context.Context) error {
			if err := p.Exec(ctx, []string{`INSERT INTO rank_requests (guild_id, board) SELECT $1, 'levels' FROM generate_series(1, 32)`}, p.middle()); err != nil {
				return err
			}
			return keeper.Maintain(ctx)
		}},
	} {
		again := func(n int) func() error {
			return func() error {
				for range n {
					if err := s.run(ctx); err != nil {
						return fmt.Errorf("%s: %w", s.name, err)
					}
				}
				return nil
			}
		}
		if err := again(settling)(); err != nil {
			return nil, err
		}
		c, err := p.spent(ctx, again(times))
		if err != nil {
			return nil, err
		}
		lines = append(lines, line{s.name, c.each(times)})
	}
	return lines, nil
}

// requests sends requests about one guild to a node that does nothing else.
func (p *population) requests(ctx context.Context, o growthOptions) (lines []line, err error) {
	const change = `{"user_id":"1","delta":1}`
	return lines, p.serve(ctx, o.server, "api", func(address string) error {
		for _, r := range []struct{ name, method, path, body string }{
			{"getGuild", http.MethodGet, "/guild", ""},
			{"getWallet", http.MethodGet, "/economy/wallet/1", ""},
			{"getEconomyRank", http.MethodGet, "/economy/rank/1", ""},
			{"leaderboard", http.MethodGet, "/economy/leaderboard", ""},
			{"listLedgerEntries", http.MethodGet, "/economy/ledger", ""},
			{"listCases", http.MethodGet, "/cases?status=active&type=warn", ""},
			{"listTickets", http.MethodGet, "/tickets", ""},
			{"listGiveaways", http.MethodGet, "/giveaways", ""},
			{"adjustBalance", http.MethodPost, "/economy/adjust", change},
			{"adjustBalance with a key", http.MethodPost, "/economy/adjust", change},
			{"adjustXp", http.MethodPost, "/levelling/adjust", change},
			{"createCase", http.MethodPost, "/cases", `{"user_id":"1","moderator_id":"2","type":"warn","reason":"measured"}`},
		} {
			sent := 0
			again := func(n int) func() error {
				return func() error {
					for range n {
						sent++
						key := ""
						if strings.HasSuffix(r.name, "key") {
							key = "growth-" + strconv.Itoa(sent)
						}
						if err := call(ctx, address, p.token, key, r.method, r.path, r.body, nil); err != nil {
							return err
						}
					}
					return nil
				}
			}
			if err := again(settling)(); err != nil {
				return err
			}
			c, err := p.spent(ctx, again(o.requests))
			if err != nil {
				return err
			}
			lines = append(lines, line{r.name, c.each(float64(o.requests))})
		}
		return nil
	})
}

// idleNode is what idle measures.
const idleNode = "a second of an idle node"

// idle watches a node that nobody asks for anything.
func (p *population) idle(ctx context.Context, o growthOptions) (lines []line, err error) {
	return lines, p.serve(ctx, o.server, "api,worker", func(string) error {
		if err := pause(ctx, 5*time.Second); err != nil {
			return err
		}
		c, err := p.spent(ctx, func() error { return pause(ctx, o.idle) })
		if err != nil {
			return err
		}
		lines = append(lines, line{idleNode, c.each(o.idle.Seconds())})
		if o.verbose {
			return p.Statements(ctx, "")
		}
		return nil
	})
}
