package chattest

import (
	"cmp"
	"log/slog"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/chat"
)

// Connect returns a client of the platform at url. If cfg does not set them, the token is the
// accepted one and there is no log.
func Connect(t testing.TB, url string, cfg chat.Config) *chat.Discord {
	t.Helper()
	cfg.URL, cfg.Token = url, cmp.Or(cfg.Token, Token)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	client, err := chat.NewDiscord(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Elapse moves the times of intents into the past by this many seconds.
func Elapse(t testing.TB, d *db.DB, seconds int) {
	t.Helper()
	dbtest.Exec(t, d, `
		UPDATE chat_intents
		SET `+dbtest.Earlier("make_interval(secs => $1)", "first_sent_at", "lease_until", "created_at"), seconds)
}
