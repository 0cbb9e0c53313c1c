package idempotency_test

import (
	"context"
	"errors"
	"testing"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/access/seal/sealtest"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
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
