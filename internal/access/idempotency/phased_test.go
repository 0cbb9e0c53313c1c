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

// TestLease walks a key through a request that calls out: leased, taken over,
// released, answered.
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
	// claim leaves the key under a lease if it gets it.
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
	wantRefusal("b", "idempotency_key_reused") // the lease is over, the request is still another one
	free("a")
	wantRefusal("a", "idempotency_key_in_use")

	release := func(body string) {
		t.Helper()
		if err := do(func(ctx context.Context, tx *db.Tx) error { return keys.Release(ctx, tx, request(body)) }); err != nil {
			t.Fatal(err)
		}
	}
	release("b")
	wantRefusal("a", "idempotency_key_in_use") // another request's release frees nothing
	release("a")
	free("b")

	if err := do(func(ctx context.Context, tx *db.Tx) error {
		return keys.Keep(ctx, tx, request("b"), idempotency.Response{Status: 201, Body: []byte("bytes\n")})
	}); err != nil {
		t.Fatal(err)
	}
	release("b") // a response stays
	expire()
	response, err := claim("b")
	if err != nil || response == nil || response.Status != 201 || string(response.Body) != "bytes\n" || !response.Replayed {
		t.Fatalf("got %+v, %v, want the replay", response, err)
	}

	// A lease outlives the day of its key; then the key is free for anything.
	dbtest.Exec(t, base.DB, `
		UPDATE idempotency_keys
		SET state = 'running', created_at = now() - interval '25 hours', lease_until = now() + interval '1 minute'`)
	wantRefusal("b", "idempotency_key_in_use")
	expire()
	free("c")
}
