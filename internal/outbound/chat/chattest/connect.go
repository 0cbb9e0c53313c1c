package chattest

import (
	"cmp"
	"log/slog"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/chat"
)

// Connect is the bot's client of the platform at url. Where cfg leaves them open, it
// takes the token that the platform accepts, and no log.
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

// Elapse makes it seem that this many seconds have gone by since messages were
// begun.
func Elapse(t testing.TB, d *db.DB, seconds int) {
	t.Helper()
	dbtest.Exec(t, d, `
		UPDATE chat_intents
		SET `+dbtest.Earlier("make_interval(secs => $1)", "first_sent_at", "lease_until", "created_at"), seconds)
}
