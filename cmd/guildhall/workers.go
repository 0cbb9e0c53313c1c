package main

import (
	"context"
	"errors"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"guildhall/internal/api"
	"guildhall/internal/cases"
	"guildhall/internal/chat"
	"guildhall/internal/db"
	"guildhall/internal/giveaways"
	"guildhall/internal/idempotency"
	"guildhall/internal/jobs"
	"guildhall/internal/leaderboard"
	"guildhall/internal/tickets"
	"guildhall/internal/webhooks"
)

// platform is the chat platform: Discord, or a stand-in that says so.
func platform(s Settings, log *slog.Logger) (chat.Platform, error) {
	if s.DiscordToken == "" {
		log.Warn("no GUILDHALL_DISCORD_TOKEN: the chat platform is a local stand-in that accepts every call and logs it")
		return chat.NewStandIn(log), nil
	}
	return chat.NewDiscord(chat.Config{Token: s.DiscordToken, URL: s.DiscordURL, Log: log})
}

// services are the domains that need something of the host.
func (n *node) services(d *db.DB) (s api.Services, err error) {
	if s.Tickets, err = tickets.New(tickets.Config{DB: d, Chat: n.chat, Keys: idempotency.Keys{Sealer: n.box}}); err != nil {
		return s, err
	}
	s.Webhooks, err = webhooks.New(n.webhookConfig(d))
	return s, err
}

// startWorkers starts what works without being asked, on connections of its
// own: the webhook deliverer, the jobs and the leaderboards' maps. The function it returns wakes the
// deliverer of this process.
func (n *node) startWorkers(ctx context.Context, g *errgroup.Group, url string) (wake func(), err error) {
	if !n.worker {
		return func() {}, nil
	}
	d, err := db.Open(db.Config{URL: url, Writers: 6, Readers: 3, Name: "guildhall-worker"})
	if err != nil {
		return nil, err
	}
	n.metrics.MustRegister(newPools("worker", d))
	queue, err := db.OpenSQL(url, "guildhall-jobs", 3)
	if err != nil {
		return nil, err
	}
	deliverer, err := webhooks.NewDeliverer(n.webhookConfig(d))
	if err != nil {
		return nil, err
	}
	keys := idempotency.Keys{Sealer: n.box}
	runner, err := jobs.New(jobs.Config{
		DB: queue, Log: n.log,
		Draw: func(ctx context.Context, guild, giveaway string, _ int) error {
			return giveaways.Draw(ctx, d, guild, giveaway)
		},
		Announce: func(ctx context.Context, guild, intent string) error {
			return chat.Announce(chat.Background(ctx), d, n.chat, guild, intent)
		},
		SyncChannel: func(ctx context.Context, guild, ticket string) error {
			return tickets.SyncChannel(chat.Background(ctx), d, n.chat, guild, ticket)
		},
		Transitions: func(ctx context.Context) error { return giveaways.Transitions(ctx, d) },
		SweepIntents: func(ctx context.Context) error {
			ctx = chat.Background(ctx)
			return errors.Join(
				tickets.SweepIntents(ctx, tickets.Config{DB: d, Chat: n.chat, Keys: keys}),
				giveaways.SweepAnnouncements(ctx, d, n.chat))
		},
		SweepChannels: func(ctx context.Context) error { return tickets.SweepChannels(ctx, d) },
		ExpireCases:   func(ctx context.Context) error { return cases.Expire(ctx, d) },
		Prune:         func(ctx context.Context) error { return prune(ctx, d) },
	})
	if err != nil {
		return nil, err
	}
	g.Go(func() error {
		work, _ := errgroup.WithContext(ctx)
		work.Go(func() error { return deliverer.Run(ctx) })
		work.Go(func() error { return runner.Run(ctx) })
		work.Go(func() error { return (&leaderboard.Keeper{DB: d, Log: n.log}).Run(ctx) })
		return errors.Join(work.Wait(), queue.Close(), d.Close())
	})
	return deliverer.Wake, nil
}

// prune deletes in small steps what nobody can ask for any more.
func prune(ctx context.Context, d *db.DB) error {
	for _, step := range []func(context.Context, db.Doer) (int, error){idempotency.Prune, chat.Prune} {
		for {
			n, err := step(ctx, d)
			if err != nil {
				return err
			}
			if n == 0 {
				break
			}
		}
	}
	return nil
}
