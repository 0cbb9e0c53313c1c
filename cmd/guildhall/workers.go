package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/db"
	"guildhall/internal/base/jobs"
	"guildhall/internal/operate/installation"
	"guildhall/internal/operate/monitor"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/server/api"
	"guildhall/internal/service/cases"
	"guildhall/internal/service/giveaways"
	"guildhall/internal/service/guilds"
	"guildhall/internal/service/leaderboard"
	"guildhall/internal/service/records"
	"guildhall/internal/service/removal"
	botstreams "guildhall/internal/service/streams"
	"guildhall/internal/service/tickets"
	"guildhall/internal/service/webhooks"
)

// localMembers react to every message on the stand-in, so that a giveaway that is tried
// out there has winners.
var localMembers = []string{"190320984123768832", "201547710032117760", "263117890457255936", "318804417920565248", "402187554310021120"}

// platform is the chat platform: Discord, or a stand-in that says so, or none. Where the
// operator's bot does the work it is nil, and handing makes one for each pool.
func (n *node) platform() (chat.Platform, error) {
	if n.off() {
		n.log.Warn("GUILDHALL_DISCORD_URL is off: ticket messages are refused (discord_send_failed), giveaways are neither posted nor announced and are drawn " +
			"from the entries that are there, closed tickets leave their channels alone, and the dashboard has operators' links only")
		return chat.Off{}, nil
	}
	if n.byBot() {
		n.log.Warn("GUILDHALL_DISCORD_URL is bot: the chat platform is never called; what needs it is handed to the operator's bot in the stream work " +
			"(docs/bot/work.md), and the dashboard has operators' links only")
		return nil, nil
	}
	if n.DiscordToken == "" {
		n.log.Warn("no GUILDHALL_DISCORD_TOKEN: the chat platform is a local stand-in that accepts every call and logs it")
		return chat.NewStandIn(n.log, localMembers...), nil
	}
	refusals, err := ratelimit.NewWindows(ratelimit.Config{RedisURL: n.RedisURL, Log: n.log, Traced: n.tracer != nil}, chat.RefusalWindow)
	if err != nil {
		return nil, err
	}
	return chat.NewDiscord(chat.Config{Token: n.DiscordToken, URL: n.DiscordURL, Log: n.log, Metrics: n.metrics, Tracer: n.tracer, Refusals: refusals})
}

// handing is the chat platform where the operator's bot does the work, for those who use
// the pool; asked is called after the bot has been asked for something.
func (n *node) handing(d *db.DB, asked func(guild string)) *chat.Work {
	if !n.byBot() {
		return nil
	}
	return chat.NewWork(d, n.log, asked)
}

// services are the domains that need something of the host.
func (n *node) services(d *db.DB, platform chat.Platform, waiters *delivery.Waiters) (s api.Services, err error) {
	if s.Tickets, err = tickets.New(tickets.Config{DB: d, Chat: platform, Keys: api.TicketKeys{Keys: idempotency.Keys{Sealer: installation.Responses{Box: n.box}}}}); err != nil {
		return s, err
	}
	s.Giveaways = &giveaways.Service{Chat: platform}
	s.Streams = &botstreams.Service{Waiters: waiters}
	s.Webhooks, err = webhooks.New(webhooks.Config{DB: d, Box: n.hooks.Box, Guard: n.hooks.Guard, Waiters: waiters})
	return s, err
}

// startWorkers starts what works without being asked, on connections of its
// own: the webhook deliverer, the jobs and the leaderboards' maps. The function it returns wakes the
// deliverer of this process for a guild.
func (n *node) startWorkers(ctx context.Context, g *errgroup.Group) (wake func(guild string), err error) {
	if !n.worker() {
		return func(string) {}, nil
	}
	d, err := db.Open(db.Config{URL: n.databaseURL, Writers: n.share.workWrites, Readers: n.share.workRead, Name: "guildhall-worker", Distributed: n.DBDistributed == "on"})
	if err != nil {
		return nil, err
	}
	n.metrics.MustRegister(monitor.NewPools("worker", d))
	queue, err := db.OpenSQL(n.databaseURL, "guildhall-jobs", n.share.jobs)
	if err != nil {
		return nil, err
	}
	deliverer, err := delivery.New(n.deliveryConfig(d))
	if err != nil {
		return nil, err
	}
	platform := n.chat
	if work := n.handing(d, nil); work != nil {
		platform = work
	}
	runner, err := n.jobs(d, platform, queue)
	if err != nil {
		return nil, err
	}
	drawer := &giveaways.Worker{DB: d, Chat: platform, Log: n.log, Metrics: n.metrics}
	g.Go(func() error {
		work, _ := errgroup.WithContext(ctx)
		work.Go(func() error { return deliverer.Run(ctx) })
		work.Go(func() error { return runner.Run(ctx) })
		work.Go(func() error { return drawer.Run(ctx) })
		work.Go(func() error { return (&leaderboard.Keeper{DB: d, Log: n.log}).Run(ctx) })
		return errors.Join(work.Wait(), queue.Close(), d.Close())
	})
	return deliverer.Wake, nil
}

// jobs is the work that is asked for and the work that is looked for.
func (n *node) jobs(d *db.DB, platform chat.Platform, queue *sql.DB) (*jobs.Runner, error) {
	keys := api.TicketKeys{Keys: idempotency.Keys{Sealer: installation.Responses{Box: n.box}}}
	cfg := jobs.Config{
		DB: queue, Log: n.log, Metrics: n.metrics, Tracer: n.tracer,
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
				return delivery.TellStreams(ctx, d, n.log)
			}},
			{Name: "pruning", Interval: time.Minute, Run: newPruner(d, n.metrics).sweep},
		},
	}
	if platform, asked := n.chat.(guilds.AboutGuilds); asked {
		facts := guilds.NewFacts(d, platform, records.Curve, n.log, n.metrics)
		cfg.Sweeps = append(cfg.Sweeps, jobs.Sweep{Name: "facts of guilds", Interval: time.Second, Run: facts.Sweep})
	}
	return jobs.New(cfg)
}
