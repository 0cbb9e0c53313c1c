package idempotency_test

import (
	"context"
	"errors"
	"testing"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/access/seal/sealtest"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
)

// A key that somebody has taken meanwhile gives the whole unit up, and what stands
// under it stays.
func TestResponsesKeptTogetherNeverReplaceOne(t *testing.T) {
	t.Parallel()
	ctx, d, keys := context.Background(), dbtest.New(t).DB, idempotency.Keys{Sealer: sealtest.Box(t, 1)}
	request := func(key string) idempotency.Request {
		return idempotency.Request{GuildID: "g", TokenID: "t", Key: key, Fingerprint: []byte("f")}
	}
	keep := func(body string, names ...string) error {
		return d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			var requests []idempotency.Request
			var responses []idempotency.Response
			for _, name := range names {
				requests = append(requests, request(name))
				responses = append(responses, idempotency.Response{Status: 200, Body: []byte(body + name)})
			}
			return keys.KeepEach(ctx, tx, requests, responses)
		})
	}
	if err := keep("first ", "b", "a"); err != nil {
		t.Fatal(err)
	}
	if err := keep("second ", "c", "b"); !errors.Is(err, idempotency.ErrRaced) {
		t.Errorf("a key that is taken: %v, want ErrRaced", err)
	}
	for name, want := range map[string]string{"a": "first a", "b": "first b", "c": ""} {
		response, err := keys.Replay(ctx, d.Reader(), request(name))
		got := ""
		if response != nil {
			got = string(response.Body)
		}
		if err != nil || got != want {
			t.Errorf("under %s stands %q, want %q; %v", name, got, want, err)
		}
	}
}

// Keys are claimed in one order, whatever that of the requests: two units that have keys
// in common never wait for each other in a ring. One that waits for its first key has
// claimed none behind it.
func TestResponsesKeptTogetherClaimTheirKeysInOneOrder(t *testing.T) {
	t.Parallel()
	d, keys := dbtest.New(t).DB, idempotency.Keys{Sealer: sealtest.Box(t, 1)}
	keep := func(ctx context.Context, tx *db.Tx, names ...string) error {
		var requests []idempotency.Request
		for _, name := range names {
			requests = append(requests, idempotency.Request{GuildID: "g", TokenID: "t", Key: name, Fingerprint: []byte("f")})
		}
		return keys.KeepEach(ctx, tx, requests, make([]idempotency.Response, len(requests)))
	}
	waiting := make(chan error, 1)
	err := d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if err := keep(ctx, tx, "b"); err != nil {
			return err
		}
		go func() {
			waiting <- d.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error { return keep(ctx, tx, "c", "b") })
		}()
		testutil.Eventually(t, "the unit waits", func() bool { return dbtest.Waiting(t, d) == 1 })
		return d.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
			if _, err := tx.ExecContext(ctx, `SET LOCAL lock_timeout = '100ms'`); err != nil { // which no lock needs
				return err
			}
			return keep(ctx, tx, "c")
		})
	})
	if err != nil {
		t.Errorf("behind a unit that waits for a key: %v", err)
	}
	if err := <-waiting; err == nil {
		t.Error("the unit that has waited has kept a response under a key of another")
	}
}
