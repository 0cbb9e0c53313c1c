package db_test

import (
	"context"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// Prune deletes the oldest expired rows of all guilds, never more than the limit and no row that
// another transaction has locked. The form that names one guild a statement deletes the same rows.
func TestPruneDeletesTheOldestOfAllGuilds(t *testing.T) {
	t.Parallel()
	kind := db.Expiry{Table: "idempotency_keys", Key: "token_id, key", Since: "created_at", Kept: "25 hours", And: "t.key <> '40'"}
	base := dbtest.New(t)
	byGuild, err := db.Open(db.Config{URL: base.URL, Writers: 2, Readers: 1, Distributed: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = byGuild.Close() })
	ways := map[string]*db.DB{"together": base.DB, "by guild": byGuild}
	if dbtest.Coordinator(t) {
		delete(ways, "together") // on Citus each statement must name one guild
	}
	for name, d := range ways {
		dbtest.Exec(t, base.DB, `DELETE FROM idempotency_keys`)
		dbtest.Exec(t, base.DB, `
			INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint, created_at)
			SELECT (n % 3)::text, 't', n::text, 'f', now() - n * interval '1 hour' FROM generate_series(21, 40) n`)
		prune := func(limit, want int, left string) {
			n, err := db.PruneOf(t.Context(), d, kind, limit)
			if err != nil {
				t.Fatal(err)
			}
			got := dbtest.Value[string](t, base.DB, `SELECT string_agg(key, ' ' ORDER BY key) FROM idempotency_keys`)
			if n != want || got != left {
				t.Errorf("%s, %d at most: %d are deleted and %s left, want %d and %s", name, limit, n, got, want, left)
			}
		}
		prune(2, 2, "21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 40")
		dbtest.Do(t, base.DB, func(ctx context.Context, tx *db.Tx) error {
			if _, err := tx.ExecContext(ctx, `SELECT FROM idempotency_keys WHERE guild_id = '0' AND key = '33' FOR UPDATE`); err != nil {
				return err
			}
			prune(100, 12, "21 22 23 24 33 40")
			return nil
		})
		prune(100, 1, "21 22 23 24 40")
	}
}

// However much the table has grown since the statement was planned, it finds the rows by the index
// on their age.
func TestPruneReadsTheOldestByAnIndex(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Fill(t, d, `
		INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint, created_at)
		SELECT (n % 500)::text, 't', n::text, 'f', now() - n * interval '10 s' FROM generate_series(1, 20000) n`, `ANALYZE idempotency_keys`)
	kind := db.Expiry{Table: "idempotency_keys", Key: "token_id, key", Since: "created_at", Kept: "25 hours"}
	dbtest.WantIndex(t, d, "idempotency_keys_age", kind.Together(1000), nil)
}
