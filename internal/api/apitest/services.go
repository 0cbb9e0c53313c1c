package apitest

import (
	"log/slog"
	"testing"

	"guildhall/internal/api"
	"guildhall/internal/chat"
	"guildhall/internal/idempotency"
	"guildhall/internal/seal"
	"guildhall/internal/tickets"
)

// Chat makes the server's tickets speak to platform instead of a stand-in.
func Chat(platform chat.Platform) Option { return func(o *options) { o.chat = platform } }

// services fills in the domains that need something of the host.
func services(t testing.TB, cfg *api.Config, o options, box *seal.Box) {
	t.Helper()
	if o.chat == nil {
		o.chat = chat.NewStandIn(slog.New(slog.DiscardHandler))
	}
	var err error
	cfg.Tickets, err = tickets.New(tickets.Config{DB: cfg.DB, Chat: o.chat, Keys: idempotency.Keys{Sealer: box}})
	must(t, err)
}
