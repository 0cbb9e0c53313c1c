package main

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/db"
	"guildhall/internal/operate/chores"
	"guildhall/internal/operate/monitor"
	"guildhall/internal/operate/secretkey"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/server/dashboard"
)

// localMembers react to every message on the stand-in, so that a giveaway in a local installation
// has winners.
var localMembers = []string{"190320984123768832", "201547710032117760", "263117890457255936", "318804417920565248", "402187554310021120"}

// platform returns the chat platform: Discord, a stand-in, or Off. If the operator's bot acts on
// the platform, it returns nil, and handing makes a platform for each pool.
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

// handing returns the chat platform of an installation whose operator's bot acts on it, for users
// of the pool d; asked is called after each request to the bot.
func (n *node) handing(d *db.DB, asked func(guild string)) *chat.Work {
	if !n.byBot() {
		return nil
	}
	return chat.NewWork(d, n.log, asked)
}

// startWorkers starts the background work, on connections of its own: the webhook deliverer and the
// chores. The returned function wakes this process's deliverer for a guild.
func (n *node) startWorkers(ctx context.Context, g *errgroup.Group) (wake func(guild string), err error) {
	if !n.worker() {
		return func(string) {}, nil
	}
	d, err := db.Open(db.Config{URL: n.databaseURL, Writers: n.share.workWrites, Readers: n.share.workRead, Name: "guildhall-worker", Distributed: n.DBDistributed == "on"})
	if err != nil {
		return nil, err
	}
	n.metrics.MustRegister(monitor.NewPools("worker", d))
	deliverer, err := delivery.New(n.deliveryConfig(d))
	if err != nil {
		return nil, err
	}
	platform := n.chat
	if work := n.handing(d, nil); work != nil {
		platform = work
	}
	undone, err := chores.New(chores.Config{
		DB: d, Chat: platform, Sealer: secretkey.Responses{Box: n.box}, Expired: dashboard.Expired(),
		Log: n.log, Metrics: n.metrics, Tracer: n.tracer,
	})
	if err != nil {
		return nil, err
	}
	g.Go(func() error {
		work, _ := errgroup.WithContext(ctx)
		work.Go(func() error { return deliverer.Run(ctx) })
		work.Go(func() error { return undone.Run(ctx) })
		return errors.Join(work.Wait(), d.Close())
	})
	return deliverer.Wake, nil
}
