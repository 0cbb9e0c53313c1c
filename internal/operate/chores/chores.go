// Package chores assembles a worker's background work besides sending deliveries: it posts
// announcements, updates the channels of tickets, draws giveaways, runs the sweeps, maintains the
// rank indexes of leaderboards, and deletes expired rows.
package chores

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/errgroup"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db"
	"guildhall/internal/base/lanes"
	"guildhall/internal/base/tracing"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/server/api"
	"guildhall/internal/service/cases"
	"guildhall/internal/service/giveaways"
	"guildhall/internal/service/guilds"
	"guildhall/internal/service/leaderboard"
	"guildhall/internal/service/levelling"
	"guildhall/internal/service/records"
	"guildhall/internal/service/removal"
	"guildhall/internal/service/tickets"
	"guildhall/internal/service/webhooks"
)

// Config holds what the chores need.
type Config struct {
	DB      *db.DB
	Chat    chat.Platform
	Sealer  idempotency.Sealer // encrypts stored responses
	Expired []db.Expiry        // expiries of further packages' tables
	Log     *slog.Logger
	Metrics prometheus.Registerer
	Tracer  *tracing.Tracer // nil: no traces
}

// Chores is the background work of one node.
type Chores struct {
	jobs, giveaways *lanes.Worker
	sweeper         *lanes.Sweeper
	maintainer      *leaderboard.Maintainer
}

// New returns the chores.
func New(c Config) (*Chores, error) {
	jobs := &lanes.Worker{
		DB: c.DB, Log: c.Log, Tracer: c.Tracer,
		Outcomes: lanes.NewOutcomes(c.Metrics, "guildhall_jobs_total", "Attempts of jobs, by kind and outcome: done, failed (tried again) or given_up."),
		Lanes:    []lanes.Lane{giveaways.Announcing(c.DB, c.Chat), tickets.Following(c.DB, c.Chat)},
	}
	sweeper, err := lanes.NewSweeper(c.Log, c.Metrics, append(c.sweeps(), c.oldest(jobs.Lanes))...)
	if err != nil {
		return nil, err
	}
	return &Chores{
		jobs: jobs,
		giveaways: &lanes.Worker{
			DB: c.DB, Log: c.Log, Tracer: c.Tracer,
			Outcomes: lanes.NewOutcomes(c.Metrics, "guildhall_giveaway_work_total",
				"Work on giveaways by kind (draw, gather, react, edit) and outcome: done, failed (tried again) or given_up."),
			Lanes: giveaways.Lanes(c.DB, c.Chat),
		},
		sweeper:    sweeper,
		maintainer: &leaderboard.Maintainer{DB: c.DB, Log: c.Log},
	}, nil
}

// Run does the work until ctx ends.
func (c *Chores) Run(ctx context.Context) error {
	var all errgroup.Group
	for _, run := range []func(context.Context) error{c.jobs.Run, c.giveaways.Run, c.sweeper.Run, c.maintainer.Run} {
		all.Go(func() error { return run(ctx) })
	}
	return all.Wait()
}

// oldestInterval is how often the age of each lane's oldest row is measured.
const oldestInterval = 15 * time.Second

// oldest returns the sweep that measures how long the oldest row of each lane has waited.
func (c Config) oldest(list []lanes.Lane) lanes.Sweep {
	ages := promauto.With(c.Metrics).NewGaugeVec(prometheus.GaugeOpts{
		Name: "guildhall_jobs_oldest_seconds", Help: "Age of the oldest unfinished job of a kind, over all nodes.",
	}, []string{"kind"})
	for _, l := range list {
		ages.WithLabelValues(l.Kind)
	}
	return lanes.Sweep{Name: "gauges of the jobs", Interval: oldestInterval, Run: func(ctx context.Context) error {
		for _, l := range list {
			_, age, err := l.Queue.Waiting(ctx, c.DB.Reader())
			if err != nil {
				return err
			}
			ages.WithLabelValues(l.Kind).Set(age.Seconds())
		}
		return nil
	}}
}

// sweeps returns the work that runs at intervals.
func (c Config) sweeps() []lanes.Sweep {
	d, platform := c.DB, c.Chat
	keys := api.TicketKeys{Keys: idempotency.Keys{Sealer: c.Sealer}}
	sweeps := []lanes.Sweep{
		{Name: "giveaway transitions", Interval: time.Second, Run: func(ctx context.Context) error {
			return giveaways.Transitions(ctx, d)
		}},
		{Name: "ticket messages", Interval: 5 * time.Second, Run: func(ctx context.Context) error {
			return tickets.SweepIntents(chat.Background(ctx), tickets.Config{DB: d, Chat: platform, Keys: keys})
		}},
		{Name: "case expiry", Interval: 5 * time.Second, Run: func(ctx context.Context) error {
			return cases.Expire(ctx, d)
		}},
		{Name: "guilds that have left", Interval: 5 * time.Second, Run: func(ctx context.Context) error {
			return removal.Guilds(ctx, d)
		}},
		{Name: "members to be forgotten", Interval: 5 * time.Second, Run: func(ctx context.Context) error {
			return removal.Members(ctx, d)
		}},
		{Name: "work for the bot", Interval: 5 * time.Second, Run: func(ctx context.Context) error {
			return api.Work().Expire(ctx, d)
		}},
		{Name: "tokens that expire", Interval: time.Hour, Run: func(ctx context.Context) error {
			return webhooks.EmitExpiringTokens(ctx, d)
		}},
		{Name: "XP by week and month", Interval: time.Second, Run: func(ctx context.Context) error {
			return levelling.FoldMoves(ctx, d)
		}},
		{Name: "streams of the bot", Interval: time.Second, Run: func(ctx context.Context) error {
			return delivery.BackfillStreams(ctx, d, c.Log)
		}},
		{Name: "pruning", Interval: time.Minute, Run: newPruner(d, c.Metrics, c.Expired...).sweep},
	}
	if platform, asked := platform.(guilds.AboutGuilds); asked {
		facts := guilds.NewFacts(d, platform, records.Curve, c.Log, c.Metrics)
		sweeps = append(sweeps, lanes.Sweep{Name: "facts of guilds", Interval: time.Second, Run: facts.Sweep})
	}
	return sweeps
}
