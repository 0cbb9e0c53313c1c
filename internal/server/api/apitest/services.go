package apitest

import (
	"context"
	"log/slog"
	"testing"

	"guildhall/internal/access/seal"
	"guildhall/internal/base/db"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/egress"
	"guildhall/internal/outbound/egress/egresstest"
	"guildhall/internal/server/api"
	"guildhall/internal/service/webhooks"
)

// Chat makes the server's tickets and giveaways use platform instead of a stand-in.
func Chat(platform chat.Platform) Option { return func(o *options) { o.chat = platform } }

// ByBot makes the operator's bot act on the chat platform.
func ByBot() Option { return func(o *options) { o.byBot = true } }

// Names makes the server resolve the host names of webhooks by zone. Without it no name exists.
func Names(zone func(name string, v6 bool) egresstest.Answer) Option {
	return func(o *options) { o.names = zone }
}

// services sets the services that need dependencies. Webhooks may be sent to loopback addresses,
// where tests have their receivers.
func services(t testing.TB, cfg *api.Config, o options, box *seal.Box, waiters *delivery.Waiters) {
	t.Helper()
	if o.chat == nil {
		o.chat = chat.NewStandIn(slog.New(slog.DiscardHandler))
	}
	cfg.Wake = waiters.Wake
	if o.byBot {
		work := chat.NewWork(cfg.DB, slog.New(slog.DiscardHandler), waiters.Wake)
		running(t, work.Run)
		o.chat, cfg.Wake = work, func(guild string) { waiters.Wake(guild); work.Wake(guild) }
	}
	if o.names == nil {
		o.names = func(string, bool) egresstest.Answer { return egresstest.NoSuchName }
	}
	guard := egress.NewGuard(egresstest.Loopback, egresstest.NameServer(t, o.names))
	var err error
	cfg.Services, err = api.NewServices(o.chat, box, webhooks.Config{DB: cfg.DB, Box: box, Guard: guard, Waiters: waiters})
	must(t, err)
}

// runWaiters runs the Waiters of long polls until the test ends, or until stop is called, as a node
// that stops does.
func runWaiters(t testing.TB, d *db.DB) (waiters *delivery.Waiters, stop func()) {
	t.Helper()
	waiters = delivery.NewWaiters(d, slog.New(slog.DiscardHandler), nil)
	return waiters, running(t, waiters.Run)
}

// running runs a function until the test ends or stop is called.
func running(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = run(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}
