package idempotency_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/access/seal"
	"guildhall/internal/access/seal/sealtest"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/fault"
)

// modelKey is the model of one key, as the contract describes it.
type modelKey struct {
	body  string
	age   time.Duration
	lease time.Duration // time left of its lease; 0: no lease
	done  *idempotency.Response
}

func (m *modelKey) fresh() bool { return m != nil && (m.age < 24*time.Hour || m.lease > 0) }

// Random claims, leases, responses, releases and passing hours have the results of a simple model.
// RELIABILITY.md, Writes.
func TestKeysAgainstAModel(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	ctx := context.Background()
	keys := idempotency.Keys{Sealer: sealtest.Box(t, 1)}
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		token := strconv.Itoa(run)
		model := map[string]*modelKey{}
		do := func(work func(context.Context, *db.Tx) error) error { return d.Do(ctx, work) }
		request := func() idempotency.Request {
			return idempotency.Request{
				GuildID: "g", TokenID: token, Key: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"),
				Fingerprint: []byte(rapid.SampledFrom([]string{"one", "two"}).Draw(t, "body")),
			}
		}
		// check compares a result with what the model expects for a request.
		check := func(what string, r idempotency.Request, got *idempotency.Response, err error) {
			t.Helper()
			m := model[r.Key]
			switch {
			case !m.fresh():
				if got != nil || err != nil {
					t.Fatalf("%s of a free key: %v, %v", what, got, err)
				}
			case m.body != string(r.Fingerprint):
				if got != nil || !fault.Is(err, "idempotency_key_reused") {
					t.Fatalf("%s for another request: %v, %v", what, got, err)
				}
			case m.done != nil:
				if diff := cmp.Diff(m.done, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
					t.Fatalf("%s of an answered key: %v %s", what, err, diff)
				}
			case what == "replay":
				if got != nil || err != nil {
					t.Fatalf("replay of a running request: %v, %v", got, err)
				}
			default:
				if got != nil || !fault.Is(err, "idempotency_key_in_use") {
					t.Fatalf("%s of a running request: %v, %v", what, got, err)
				}
			}
		}
		claim := func(leased bool, next modelKey, end func(context.Context, *db.Tx, idempotency.Request) error) {
			r := request()
			m := model[r.Key]
			if leased && m != nil && m.done == nil && m.lease == 0 && m.body == string(r.Fingerprint) {
				delete(model, r.Key) // the request takes the key over
			}
			var got *idempotency.Response
			claimed := false
			err := do(func(ctx context.Context, tx *db.Tx) (err error) {
				take := keys.Claim
				if leased {
					take = keys.ClaimLeased
				}
				if got, err = take(ctx, tx, r); got != nil || err != nil {
					return err
				}
				claimed = true
				return end(ctx, tx, r)
			})
			check("claim", r, got, err)
			if claimed {
				model[r.Key] = &next
				next.body = string(r.Fingerprint)
			}
		}
		response := func(leased bool) func(*rapid.T) {
			return func(*rapid.T) {
				a := idempotency.Response{
					Status: rapid.SampledFrom([]int{200, 201, 422}).Draw(t, "status"),
					Body:   []byte(rapid.String().Draw(t, "answer")),
				}
				if a.Status == 201 {
					a.Location = "/somewhere"
				}
				if a.Status == 422 {
					a.RetryAfter = "7"
				}
				replayed := a
				replayed.Replayed = true
				claim(leased, modelKey{done: &replayed}, func(ctx context.Context, tx *db.Tx, r idempotency.Request) error {
					return keys.Keep(ctx, tx, r, a)
				})
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"answer":                response(false),
			"answer, taking leases": response(true),
			"lease": func(*rapid.T) {
				// A key's lease is extended far beyond the test, so that none expires while a slow
				// machine runs it.
				const longer = 90 * time.Minute
				claim(true, modelKey{lease: idempotency.LeaseTime + longer}, func(ctx context.Context, tx *db.Tx, r idempotency.Request) error {
					if err := keys.Lease(ctx, tx, r); err != nil {
						return err
					}
					_, err := tx.ExecContext(ctx, `
						UPDATE idempotency_keys SET `+dbtest.Earlier("make_interval(secs => $4)", "lease_until")+`
						WHERE guild_id = $1 AND token_id = $2 AND key = $3`, r.GuildID, r.TokenID, r.Key, -longer.Seconds())
					return err
				})
			},
			"release": func(*rapid.T) {
				r := request()
				if m := model[r.Key]; m != nil && m.done == nil && m.body == string(r.Fingerprint) {
					delete(model, r.Key)
				}
				if err := do(func(ctx context.Context, tx *db.Tx) error { return keys.Release(ctx, tx, r) }); err != nil {
					t.Fatal(err)
				}
			},
			"replay": func(*rapid.T) {
				r := request()
				got, err := keys.Replay(ctx, d.Reader(), r)
				check("replay", r, got, err)
			},
			"time": func(*rapid.T) {
				by := rapid.SampledFrom([]time.Duration{40 * time.Minute, time.Hour, 13 * time.Hour}).Draw(t, "by")
				for _, m := range model {
					m.age += by
					m.lease = max(0, m.lease-by)
				}
				if err := do(func(ctx context.Context, tx *db.Tx) error {
					_, err := tx.ExecContext(ctx, `
						UPDATE idempotency_keys SET `+dbtest.Earlier("make_interval(secs => $2)", "created_at", "lease_until")+`
						WHERE token_id = $1`, token, by.Seconds())
					return err
				}); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}

// Reseal re-encrypts every stored response in chunks and counts what it could not decrypt.
// RELIABILITY.md, Operation.
func TestReseal(t *testing.T) {
	t.Parallel()
	ctx, d := context.Background(), dbtest.New(t).DB
	const n = 450 // more than two chunks
	keep := func(b *seal.Box, token string, from, to int) {
		t.Helper()
		keys := idempotency.Keys{Sealer: b}
		if err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			for i := from; i < to; i++ {
				r := idempotency.Request{TokenID: token, Key: fmt.Sprintf("%05d", i), Fingerprint: []byte("f")}
				if _, err := keys.Claim(ctx, tx, r); err != nil {
					return err
				}
				if err := keys.Keep(ctx, tx, r, idempotency.Response{Status: 200, Body: []byte(r.Key)}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	keep(sealtest.Box(t, 1), "old", 0, n)
	keep(sealtest.Box(t, 2), "new", 0, 3)
	keep(sealtest.Box(t, 9), "lost", 0, 2)
	if err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error { // one key without a response yet
		_, err := idempotency.Keys{Sealer: sealtest.Box(t, 2)}.Claim(ctx, tx,
			idempotency.Request{TokenID: "old", Key: "running", Fingerprint: []byte("f")})
		return err
	}); err != nil {
		t.Fatal(err)
	}

	both := sealtest.Box(t, 2, 1)
	got, err := idempotency.Reseal(ctx, d, both)
	if want := (seal.Count{Resealed: n, Current: 3, Unreadable: 2}); err != nil || got != want {
		t.Fatalf("got %+v, %v, want %+v", got, err, want)
	}
	got, err = idempotency.Reseal(ctx, d, both)
	if want := (seal.Count{Current: n + 3, Unreadable: 2}); err != nil || got != want {
		t.Fatalf("again: got %+v, %v, want %+v", got, err, want)
	}
	keys := idempotency.Keys{Sealer: sealtest.Box(t, 2)}
	for _, i := range []int{0, 199, 200, 201, n - 1} {
		r := idempotency.Request{TokenID: "old", Key: fmt.Sprintf("%05d", i), Fingerprint: []byte("f")}
		if a, err := keys.Replay(ctx, d.Reader(), r); err != nil || a == nil || string(a.Body) != r.Key {
			t.Errorf("answer %d under the new key alone: %v, %v", i, a, err)
		}
	}
}

// Prune deletes keys an hour after their 24 hours are over, and counts them. RELIABILITY.md,
// Writes.
func TestPrune(t *testing.T) {
	t.Parallel()
	ctx, d := context.Background(), dbtest.New(t).DB
	dbtest.Exec(t, d, `
			INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint, created_at)
			SELECT (n % 3)::text, 't', n::text, 'f', now() - make_interval(hours => n) FROM generate_series(1, 48) n`)
	if n := dbtest.Prune(t, d, idempotency.Expired()); n != 24 { // the keys are 25 to 48 hours old
		t.Errorf("pruned %d, want 24", n)
	}
	var left []int
	if err := d.Reader().SelectContext(ctx, &left, `
		SELECT key::int
		FROM idempotency_keys ORDER BY 1`); err != nil || !slices.Equal(left, slices.Sorted(maps.Keys(upTo(24)))) {
		t.Errorf("left are %v, %v", left, err)
	}
}

func upTo(n int) map[int]bool {
	all := map[int]bool{}
	for i := 1; i <= n; i++ {
		all[i] = true
	}
	return all
}

// A duplicate that waits for the row longer than the lock timeout gets idempotency_key_in_use.
func TestClaimBesideAnOpenTransaction(t *testing.T) {
	t.Parallel()
	ctx, d := context.Background(), dbtest.New(t).DB
	keys := idempotency.Keys{Sealer: sealtest.Box(t, 1)}
	r := idempotency.Request{TokenID: "t", Key: "k", Fingerprint: []byte("f")}
	if err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		if _, err := keys.Claim(ctx, tx, r); err != nil {
			return err
		}
		duplicate := make(chan error)
		go func() {
			duplicate <- d.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
				if _, err := tx.ExecContext(ctx, `SET LOCAL lock_timeout = '50ms'`); err != nil {
					return err
				}
				_, err := keys.Claim(ctx, tx, r)
				return err
			})
		}()
		if err := <-duplicate; !fault.Is(err, "idempotency_key_in_use") {
			t.Errorf("the duplicate: %v", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// The same holds for a request that takes over a key whose 24 hours are over while another
// transaction has locked it.
func TestTakingOverALockedKey(t *testing.T) {
	t.Parallel()
	d, keys := dbtest.New(t).DB, idempotency.Keys{Sealer: sealtest.Box(t, 1)}
	r := idempotency.Request{GuildID: "g", TokenID: "t", Key: "k", Fingerprint: []byte("f")}
	claim := func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `SET LOCAL lock_timeout = '50ms'`); err != nil {
			return err
		}
		_, err := keys.Claim(ctx, tx, r)
		return err
	}
	dbtest.Exec(t, d, `
		INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint, created_at)
		VALUES ('g', 't', 'k', 'f', now() - interval '25 hours')`)
	if err := d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `SELECT FROM idempotency_keys WHERE guild_id = 'g' FOR UPDATE`); err != nil {
			return err
		}
		if err := d.Do(context.Background(), claim); !fault.Is(err, "idempotency_key_in_use") {
			t.Errorf("beside the one that holds it: %v", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := d.Do(t.Context(), claim); err != nil {
		t.Errorf("after it: %v", err)
	}
}
