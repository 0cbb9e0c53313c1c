package idempotency_test

import (
	"context"
	"testing"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/access/seal/sealtest"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// Nodes of the release before ask the database this when a keyed request comes.
const (
	releasedClaim = `
		INSERT INTO idempotency_keys AS k (token_id, key, fingerprint)
		VALUES ($1, $2, $3)
		ON CONFLICT (token_id, key) DO UPDATE
		SET fingerprint = excluded.fingerprint, state = 'running', status = NULL, location = NULL, retry_after = NULL,
		    body = NULL, created_at = now(), lease_until = NULL, lease_gen = k.lease_gen + 1, recovery = NULL
		WHERE k.created_at <= now() - interval '24 hours'
		  AND (k.lease_until IS NULL OR k.lease_until <= now())
		RETURNING true`
	releasedFind = `
		SELECT fingerprint, state, status, location, retry_after, body
		FROM idempotency_keys
		WHERE token_id = $1 AND key = $2`
	releasedKeep = `
		UPDATE idempotency_keys
		SET state = 'done', status = $3, location = nullif($4, ''), retry_after = nullif($5, ''), body = $6, lease_until = NULL
		WHERE token_id = $1 AND key = $2`
)

// keyed is a database on its way from the schema of the last release to this
// one's, with nodes of both.
type keyed struct {
	*dbtest.Database
	t    *testing.T
	keys idempotency.Keys
}

func (k keyed) request(key string) idempotency.Request {
	return idempotency.Request{GuildID: "197038439483310086", TokenID: "tok", Key: key, Fingerprint: []byte("f")}
}

func (k keyed) do(work func(ctx context.Context, tx *db.Tx) error) {
	k.t.Helper()
	if err := k.DB.Do(context.Background(), work); err != nil {
		k.t.Error(err)
	}
}

// old is a keyed request to a node of the release before: whether it ran.
func (k keyed) old(key string) (ran bool) {
	k.t.Helper()
	k.do(func(ctx context.Context, tx *db.Tx) error {
		err := tx.GetContext(ctx, &ran, releasedClaim, "tok", key, []byte("f"))
		if db.Missing(err) {
			var found struct {
				Fingerprint []byte
				State       string
				Status      int
				Location    *string
				RetryAfter  *string `db:"retry_after"`
				Body        []byte
			}
			if err := tx.GetContext(ctx, &found, releasedFind, "tok", key); err != nil {
				return err
			}
			if _, err := k.keys.Sealer.Open(found.Body, "idempotency_keys/tok/"+key); err != nil || found.Status != 201 {
				k.t.Errorf("a node of the release before finds under %s: %d, %v", key, found.Status, err)
			}
			return nil
		}
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, releasedKeep, "tok", key, 201, "/"+key, "",
			k.keys.Sealer.Seal([]byte("of "+key), "idempotency_keys/tok/"+key))
		return err
	})
	return ran
}

// ours is a keyed request to a node of this release: whether it ran.
func (k keyed) ours(key string) (ran bool) {
	k.t.Helper()
	r := k.request(key)
	k.do(func(ctx context.Context, tx *db.Tx) error {
		found, err := k.keys.Claim(ctx, tx, r)
		if err != nil {
			return err
		}
		if found != nil {
			if found.Status != 201 || string(found.Body) != "of "+key || found.Location != "/"+key || !found.Replayed {
				k.t.Errorf("replayed under %s: %+v", key, found)
			}
			return nil
		}
		ran = true
		return k.keys.Keep(ctx, tx, r, idempotency.Response{Status: 201, Location: "/" + key, Body: []byte("of " + key)})
	})
	return ran
}

func (k keyed) wantRan(when, key string, ran, want bool) {
	k.t.Helper()
	if ran != want {
		k.t.Errorf("%s, the request under %s ran: %t, want %t", when, key, ran, want)
	}
}

// A response is replayed whichever release's node kept it and whichever is asked,
// before, during and after an upgrade; a key whose window is over is free for
// both; and each row has its guild in the end.
// RELIABILITY.md, Writes.
func TestKeysOverAnUpgrade(t *testing.T) {
	t.Parallel()
	url := dbtest.At(t, dbtest.Released)
	k := keyed{dbtest.Open(t, url), t, idempotency.Keys{Sealer: sealtest.Box(t, 1)}}
	exec := func(query string, args ...any) {
		t.Helper()
		k.do(func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.ExecContext(ctx, query, args...)
			return err
		})
	}
	exec(`INSERT INTO guilds (id, name, owner_id) VALUES ($1, 'The Test Guild', '1')`, k.request("").GuildID)
	exec(`
		INSERT INTO api_tokens (id, guild_id, name, preview, hash, scopes)
		VALUES ('tok', $1, 'x', 'x', sha256('tok'), '{}')`, k.request("").GuildID)
	exec(`INSERT INTO idempotency_keys (token_id, key, fingerprint) SELECT 'gone', n::text, 'f' FROM generate_series(1, 2500) n`)
	for _, key := range []string{"before", "old one", "old two"} {
		k.wantRan("before the upgrade", key, k.old(key), true)
	}
	exec(`UPDATE idempotency_keys SET created_at = now() - interval '24 hours 1 second' WHERE key LIKE 'old %'`)

	dbtest.Upgrade(t, url, dbtest.Expanded)
	k.wantRan("beside the release before", "before", k.ours("before"), false)
	k.wantRan("beside the release before", "old one", k.ours("old one"), true)
	k.wantRan("beside the release before", "old two", k.old("old two"), true)
	k.wantRan("beside the release before", "theirs", k.old("theirs"), true)
	k.wantRan("beside the release before", "theirs", k.ours("theirs"), false)
	k.wantRan("beside the release before", "ours", k.ours("ours"), true)
	k.wantRan("beside the release before", "ours", k.old("ours"), false)
	if n := k.without(); n != 0 {
		t.Errorf("%d rows have no guild", n)
	}
	exec(`
		INSERT INTO idempotency_keys (token_id, key, fingerprint)
		VALUES ('gone', 'late', 'f')`) // by a node that has not heard of the token's end

	if err := db.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"before", "old one", "old two", "theirs", "ours"} {
		k.wantRan("after the upgrade", key, k.ours(key), false)
	}
	if n := k.without(); n != 0 {
		t.Errorf("%d rows have no guild", n)
	}
}

func (k keyed) without() (n int) {
	k.t.Helper()
	if err := k.DB.Reader().GetContext(context.Background(), &n, `SELECT count(*) FROM idempotency_keys WHERE guild_id IS NULL`); err != nil {
		k.t.Fatal(err)
	}
	return n
}

// Two that come at the same moment to a key whose window is over: one runs, the
// other gets its response.
// RELIABILITY.md, Writes.
func TestDuplicatesTakeOverAKeyOnce(t *testing.T) {
	t.Parallel()
	k := keyed{dbtest.New(t), t, idempotency.Keys{Sealer: sealtest.Box(t, 1)}}
	for round := range 20 {
		key := string(rune('a' + round))
		k.wantRan("at first", key, k.ours(key), true)
		k.do(func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE idempotency_keys SET created_at = now() - interval '25 hours'`)
			return err
		})
		const duplicates = 4
		ran := make(chan bool, duplicates)
		for range duplicates {
			go func() { ran <- k.ours(key) }()
		}
		n := 0
		for range duplicates {
			if <-ran {
				n++
			}
		}
		if n != 1 {
			t.Fatalf("%d of %d duplicates ran", n, duplicates)
		}
	}
}
