package chattest

import (
	"cmp"
	"log/slog"
	"testing"

	"guildhall/internal/chat"
)

// Connect is the bot's client of the platform at url. What cfg leaves open is
// the token that the platform accepts, and no log.
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
