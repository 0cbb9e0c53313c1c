package idempotency_test

import (
	"context"
	"testing"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/access/seal/sealtest"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/fault"
)

// TestLease takes a key through all states of a request that calls another service: leased, taken
// over, released, answered.
func TestLease(t *testing.T) {
	t.Parallel()
	ctx, base := context.Background(), dbtest.New(t)
	box := sealtest.Box(t, 1)
	keys := idempotency.Keys{Sealer: box}
	request := func(body string) idempotency.Request {
		return idempotency.Request{TokenID: "t", Key: "k", Fingerprint: idempotency.Fingerprint("POST", "/x", []byte(body))}
	}
	do := func(work func(ctx context.Context, tx *db.Tx) error) error {
		t.Helper()
		return base.DB.Do(ctx, work)
	}
	// claim claims the key and, if that succeeds, leases it.
	claim := func(body string) (response *idempotency.Response, err error) {
		t.Helper()
		err = do(func(ctx context.Context, tx *db.Tx) error {
			if response, err = keys.ClaimLeased(ctx, tx, request(body)); err != nil || response != nil {
				return err
			}
			return keys.Lease(ctx, tx, request(body))
		})
		return response, err
	}
	wantRefusal := func(body, code string) {
		t.Helper()
		if response, err := claim(body); response != nil || !fault.Is(err, code) {
			t.Fatalf("got %v, %v, want %s", response, err, code)
		}
	}
	free := func(body string) {
		t.Helper()
		if response, err := claim(body); response != nil || err != nil {
			t.Fatalf("got %v, %v, want the key", response, err)
		}
	}
	expire := func() {
		t.Helper()
		if err := do(func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE idempotency_keys SET lease_until = now() - interval '1 second'`)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}

	free("a")
	wantRefusal("a", "idempotency_key_in_use")
	wantRefusal("b", "idempotency_key_reused")
	expire()
	wantRefusal("b", "idempotency_key_reused") // the lease has expired, but a different request still may not use the key
	free("a")
	wantRefusal("a", "idempotency_key_in_use")

	release := func(body string) {
		t.Helper()
		if err := do(func(ctx context.Context, tx *db.Tx) error { return keys.Release(ctx, tx, request(body)) }); err != nil {
			t.Fatal(err)
		}
	}
	release("b")
	wantRefusal("a", "idempotency_key_in_use") // another request cannot release the key
	release("a")
	free("b")

	if err := do(func(ctx context.Context, tx *db.Tx) error {
		return keys.Keep(ctx, tx, request("b"), idempotency.Response{Status: 201, Body: []byte("bytes\n")})
	}); err != nil {
		t.Fatal(err)
	}
	release("b") // a stored response cannot be released
	expire()
	response, err := claim("b")
	if err != nil || response == nil || response.Status != 201 || string(response.Body) != "bytes\n" || !response.Replayed {
		t.Fatalf("got %+v, %v, want the replay", response, err)
	}

	// When the key's 24 hours are over, an expired lease does not keep other requests from using
	// it.
	dbtest.Exec(t, base.DB, `
		UPDATE idempotency_keys
		SET state = 'running', created_at = now() - interval '25 hours', lease_until = now() + interval '1 minute'`)
	wantRefusal("b", "idempotency_key_in_use")
	wantRefusal("c", "idempotency_key_reused")
	expire()
	free("c")
}

// Leasing, ending and releasing a key does not change another token's key of the same name, and a
// key with a response cannot be leased.
func TestALeaseIsOfOneKey(t *testing.T) {
	t.Parallel()
	d, keys := dbtest.New(t).DB, idempotency.Keys{Sealer: sealtest.Box(t, 1)}
	mine := idempotency.Request{GuildID: "g", TokenID: "t", Key: "k", Fingerprint: []byte("same")}
	theirs := mine
	theirs.TokenID = "u"
	do := func(work func(context.Context, *db.Tx, idempotency.Request) error, r idempotency.Request) {
		t.Helper()
		if err := d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error { return work(ctx, tx, r) }); err != nil {
			t.Fatal(err)
		}
	}
	claim := func(ctx context.Context, tx *db.Tx, r idempotency.Request) error {
		if response, err := keys.ClaimLeased(ctx, tx, r); err != nil || response != nil {
			t.Errorf("the key of token %s: %v, %v", r.TokenID, response, err)
		}
		return nil
	}
	want := func(condition string, n int) {
		t.Helper()
		if got := dbtest.Value[int](t, d, `SELECT count(*) FROM idempotency_keys WHERE `+condition); got != n {
			t.Errorf("%d keys with %s, want %d", got, condition, n)
		}
	}
	do(claim, mine)
	do(claim, theirs)
	do(keys.Lease, mine)
	want(`token_id = 't' AND lease_until IS NOT NULL`, 1)
	want(`token_id = 'u' AND lease_until IS NULL`, 1)

	dbtest.Exec(t, d, `UPDATE idempotency_keys SET lease_until = now() - interval '1 second'`)
	do(claim, mine)
	want(`lease_until IS NOT NULL`, 1) // the other token's keys
	do(keys.Release, mine)
	want(`token_id = 'u'`, 1)

	do(func(ctx context.Context, tx *db.Tx, r idempotency.Request) error {
		return keys.Keep(ctx, tx, r, idempotency.Response{Status: 200})
	}, theirs)
	do(keys.Lease, theirs)
	want(`state = 'done' AND lease_until IS NULL`, 1)
}
