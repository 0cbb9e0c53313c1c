// Package chores is what a worker does without being asked, besides delivering: it does
// what requests have left for later, looks for what is due, draws giveaways, keeps the
// maps of leaderboards, and deletes what nobody can ask for any more.
package chores

import (
	"context"
	"database/sql"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db"
	"guildhall/internal/base/jobs"
	"guildhall/internal/base/tracing"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/server/api"
	"guildhall/internal/service/cases"
	"guildhall/internal/service/giveaways"
	"guildhall/internal/service/guilds"
	"guildhall/internal/service/leaderboard"
	"guildhall/internal/service/records"
	"guildhall/internal/service/removal"
	"guildhall/internal/service/tickets"
)

// Config is what chores need of their host.
type Config struct {
	DB      *db.DB
	Queue   *sql.DB // of the jobs
	Chat    chat.Platform
	Sealer  idempotency.Sealer // of the responses that are kept
	Expired []db.Expiry        // expiries of tables of other packages
	Log     *slog.Logger
	Metrics prometheus.Registerer
	Tracer  *tracing.Tracer // nil where traces are off
}

// Chores are those of a node.
type Chores struct {
	jobs   *jobs.Runner
	drawer *giveaways.Worker
	keeper *leaderboard.Keeper
}

// New returns the chores.
func New(c Config) (*Chores, error) {
	runner, err := c.jobs()
	if err != nil {
		return nil, err
	}
	return &Chores{
		jobs:   runner,
		drawer: &giveaways.Worker{DB: c.DB, Chat: c.Chat, Log: c.Log, Metrics: c.Metrics},
		keeper: &leaderboard.Keeper{DB: c.DB, Log: c.Log},
	}, nil
}

// Run does them until ctx ends.
func (c *Chores) Run(ctx context.Context) error {
	var all errgroup.Group
	all.Go(func() error { return c.jobs.Run(ctx) })
	all.Go(func() error { return c.drawer.Run(ctx) })
	all.Go(func() error { return c.keeper.Run(ctx) })
	return all.Wait()
}

// jobs is the work that is asked for and the work that is looked for.
func (c Config) jobs() (*jobs.Runner, error) {
	d, platform := c.DB, c.Chat
	keys := api.TicketKeys{Keys: idempotency.Keys{Sealer: c.Sealer}}
	cfg := jobs.Config{
		DB: c.Queue, Log: c.Log, Metrics: c.Metrics, Tracer: c.Tracer,
		Work: []jobs.Work{
			jobs.Do(func(ctx context.Context, a giveaways.Announcement) error {
				return giveaways.Announce(chat.Background(ctx), d, platform, a)
			}),
			jobs.Do(func(ctx context.Context, a tickets.ChannelJob) error {
				return tickets.SyncChannel(chat.Background(ctx), d, platform, a.GuildID, a.TicketID)
			}),
		},
		Sweeps: []jobs.Sweep{
			{Name: "giveaway transitions", Interval: time.Second, Run: func(ctx context.Context) error {
				return giveaways.Transitions(ctx, d)
			}},
			{Name: "ticket messages", Interval: 5 * time.Second, Run: func(ctx context.Context) error {
				return tickets.SweepIntents(chat.Background(ctx), tickets.Config{DB: d, Chat: platform, Keys: keys})
			}},
			{Name: "giveaway announcements", Interval: 5 * time.Second, Run: func(ctx context.Context) error {
				return giveaways.SweepAnnouncements(ctx, d)
			}},
			{Name: "ticket channels", Interval: 30 * time.Second, Run: func(ctx context.Context) error {
				return tickets.SweepChannels(ctx, d)
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
			{Name: "streams of the bot", Interval: time.Second, Run: func(ctx context.Context) error {
				return delivery.BackfillStreams(ctx, d, c.Log)
			}},
			{Name: "pruning", Interval: time.Minute, Run: newPruner(d, c.Metrics, c.Expired...).sweep},
		},
	}
	if platform, asked := platform.(guilds.AboutGuilds); asked {
		facts := guilds.NewFacts(d, platform, records.Curve, c.Log, c.Metrics)
		cfg.Sweeps = append(cfg.Sweeps, jobs.Sweep{Name: "facts of guilds", Interval: time.Second, Run: facts.Sweep})
	}
	return jobs.New(cfg)
}
