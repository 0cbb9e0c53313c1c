package dbtest

import (
	"context"
	"testing"

	"guildhall/internal/base/db"
)

// Listener is the id of the endpoint that Listen registers.
const Listener = "listener"

// Listen registers an endpoint of the guild for the given event types. Events are stored only if an
// endpoint listens for them, so a test that reads events needs one. Nothing is delivered to this
// endpoint.
func Listen(t testing.TB, d *db.DB, guild string, types []string) {
	t.Helper()
	err := d.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `
			INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
			VALUES ($1, $2 || '-' || $1, 'https://listener.test/', $3, '', '')
			ON CONFLICT DO NOTHING`, guild, Listener, db.Array(types))
		return err
	})
	if err != nil {
		t.Fatalf("register a listener in guild %s: %v", guild, err)
	}
}

// Unlisten deletes the endpoint.
func Unlisten(t testing.TB, d *db.DB, guild string) {
	t.Helper()
	err := d.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM webhook_endpoints WHERE guild_id = $1 AND id = $2 || '-' || $1`, guild, Listener)
		return err
	})
	if err != nil {
		t.Fatalf("remove the listener of guild %s: %v", guild, err)
	}
}
