package apitest

import (
	"log/slog"
	"net/netip"
	"testing"

	"guildhall/internal/api"
	"guildhall/internal/chat"
	"guildhall/internal/idempotency"
	"guildhall/internal/seal"
	"guildhall/internal/tickets"
	"guildhall/internal/webhooks"
)

// Chat makes the server's tickets speak to platform instead of a stand-in.
func Chat(platform chat.Platform) Option { return func(o *options) { o.chat = platform } }

// services fills in the domains that need something of the host. Webhooks may
// call the loopback address: that is where tests have their receivers.
func services(t testing.TB, cfg *api.Config, o options, box *seal.Box) {
	t.Helper()
	if o.chat == nil {
		o.chat = chat.NewStandIn(slog.New(slog.DiscardHandler))
	}
	var err error
	cfg.Tickets, err = tickets.New(tickets.Config{DB: cfg.DB, Chat: o.chat, Keys: idempotency.Keys{Sealer: box}})
	must(t, err)
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	cfg.Webhooks, err = webhooks.New(webhooks.Config{DB: cfg.DB, Box: box, Guard: webhooks.NewGuard(loopback, nil)})
	must(t, err)
}
