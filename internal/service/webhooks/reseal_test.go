package webhooks

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"guildhall/internal/access/seal"
	"guildhall/internal/access/seal/sealtest"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/egress"
)

// endpoints stores endpoints e0, e1, … of guild 1, each with its id as its secret.
func endpoints(t *testing.T, d *db.DB, n int, b *seal.Box) {
	t.Helper()
	dbtest.AddGuilds(t, d, "1")
	ids, sealed := make([]string, n), make([][]byte, n)
	for i := range n {
		ids[i] = fmt.Sprint("e", i)
		sealed[i] = b.Seal([]byte(ids[i]), delivery.BoundTo("1", ids[i]))
	}
	dbtest.Exec(t, d, `
		INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
		SELECT '1', id, 'https://example.com', '{}', secret, '' FROM unnest($1::text[], $2::bytea[]) AS e (id, secret)`,
		db.Array(ids), db.ByteArray(sealed))
}

func TestResealRewritesEverySecret(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	if some, opens, err := SampleSecrets(t.Context(), d.Reader(), sealtest.Box(t, 1)); some || opens || err != nil {
		t.Errorf("without an endpoint: %t, %t, %v", some, opens, err)
	}
	const n = 2*resealChunk + 1
	endpoints(t, d, n, sealtest.Box(t, 1))
	for key, opens := range map[byte]bool{1: true, 2: false} {
		if some, got, err := SampleSecrets(t.Context(), d.Reader(), sealtest.Box(t, key)); !some || got != opens || err != nil {
			t.Errorf("key %d: %t, %t, %v", key, some, got, err)
		}
	}
	for _, rewritten := range []int64{n, 0} {
		if count, err := Reseal(t.Context(), d, sealtest.Box(t, 2, 1)); err != nil || count.Resealed != rewritten {
			t.Errorf("%+v, %v; want %d rewritten", count, err, rewritten)
		}
	}
	for _, id := range []string{"e0", fmt.Sprint("e", n-1)} {
		sealed := dbtest.Value[[]byte](t, d, `SELECT secret FROM webhook_endpoints WHERE id = $1`, id)
		if plain, err := sealtest.Box(t, 2).Open(sealed, delivery.BoundTo("1", id)); err != nil || string(plain) != id {
			t.Errorf("%s is %q under the new key, %v", id, plain, err)
		}
	}
}

// A replaced secret may sign for no time or for up to a day, and at most two replaced secrets sign.
func TestOldSecretsAreLimited(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	cfg := Config{DB: d, Box: sealtest.Box(t, 1), Guard: egress.NewGuard(nil, nil)}
	endpoints(t, d, 1, cfg.Box)
	old := func() int {
		return dbtest.Value[int](t, d, `SELECT jsonb_array_length(old_secrets) FROM webhook_endpoints`)
	}
	for range delivery.MaxOldSecrets + 2 {
		if _, err := Rotate(t.Context(), cfg, d, "1", "e0", MaxOverlap); err != nil {
			t.Fatal(err)
		}
	}
	if got := old(); got != delivery.MaxOldSecrets {
		t.Errorf("%d old secrets sign beside the new one, want %d", got, delivery.MaxOldSecrets)
	}
	for _, overlap := range []time.Duration{-1, MaxOverlap + 1} {
		if _, err := Rotate(t.Context(), cfg, d, "1", "e0", overlap); !fault.Is(err, "invalid_request") {
			t.Errorf("an overlap of %v: %v", overlap, err)
		}
	}
	if _, err := Rotate(t.Context(), cfg, d, "1", "e0", 0); err != nil || old() != 0 {
		t.Errorf("without an overlap %d old secrets are left, %v", old(), err)
	}
	for range 2 {
		if _, err := Rotate(t.Context(), cfg, d, "1", "e0", MaxOverlap); err != nil || old() != 1 {
			t.Errorf("%d old secrets are kept beside those that have ended, %v", old(), err)
		}
		dbtest.Exec(t, d, `
			UPDATE webhook_endpoints
			SET old_secrets = jsonb_set(old_secrets, '{0,until}', to_jsonb(now() - interval '1 minute'))`)
	}
}

// A secret that was rotated, or whose replaced secrets were deleted, while Reseal ran keeps its new
// state.
func TestResealLeavesWhatWasChangedMeanwhile(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	endpoints(t, d, 1, sealtest.Box(t, 1))
	for column, change := range map[string]string{
		"secret": `UPDATE webhook_endpoints SET secret = 'rotated'`, "old_secrets": `UPDATE webhook_endpoints SET old_secrets = '[1]'`,
	} {
		was, err := sealedAfter(t.Context(), d.Reader(), sealedSecrets{}, 1)
		if err != nil || len(was) != 1 {
			t.Fatalf("%d endpoints, %v", len(was), err)
		}
		dbtest.Exec(t, d, change)
		fresh := was[0]
		fresh.Secret = []byte("resealed")
		if err := replaceSealed(t.Context(), d, was[0], fresh); err != nil {
			t.Fatal(err)
		}
		if n := dbtest.Value[int](t, d, `SELECT count(*) FROM webhook_endpoints WHERE secret = 'resealed'`); n != 0 {
			t.Errorf("a change of %s is undone", column)
		}
	}
}

// Replaced secrets that still sign are re-encrypted too. One that no key can decrypt is skipped.
func TestResealRewritesReplacedSecrets(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	cfg := Config{DB: d, Box: sealtest.Box(t, 1), Guard: egress.NewGuard(nil, nil)}
	endpoints(t, d, 1, cfg.Box)
	if _, err := Rotate(t.Context(), cfg, d, "1", "e0", MaxOverlap); err != nil {
		t.Fatal(err)
	}
	dbtest.Exec(t, d, `
		UPDATE webhook_endpoints
		SET old_secrets = old_secrets || jsonb_build_object('sealed', 'bm9ib2R5cw==', 'until', now() + interval '1 hour')`)
	for _, rewritten := range []int64{1, 0} {
		if count, err := Reseal(t.Context(), d, sealtest.Box(t, 2, 1)); err != nil || count.Resealed != rewritten {
			t.Fatalf("%+v, %v; want %d rewritten", count, err, rewritten)
		}
	}
	var old []oldSecret
	if err := json.Unmarshal(dbtest.Value[[]byte](t, d, `SELECT old_secrets FROM webhook_endpoints`), &old); err != nil || len(old) != 2 {
		t.Fatalf("%d are replaced, %v", len(old), err)
	}
	if plain, err := sealtest.Box(t, 2).Open(old[0].Sealed, delivery.BoundTo("1", "e0")); err != nil || string(plain) != "e0" {
		t.Errorf("the replaced secret is %q under the new key, %v", plain, err)
	}
	if string(old[1].Sealed) != "nobodys" {
		t.Errorf("what no key opens is %q", old[1].Sealed)
	}
}
