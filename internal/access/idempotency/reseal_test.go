package idempotency

import (
	"context"
	"testing"

	"guildhall/internal/access/seal"
	"guildhall/internal/access/seal/sealtest"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// Reseal does not overwrite the response of a key that was claimed anew after its old row was read.
func TestANewerResponseIsNotResealed(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	old, both := Keys{Sealer: sealtest.Box(t, 1)}, sealtest.Box(t, 2, 1)
	r := Request{GuildID: "g", TokenID: "t", Key: "k", Fingerprint: []byte("f")}
	if err := d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if _, err := old.Claim(ctx, tx, r); err != nil {
			return err
		}
		return old.Keep(ctx, tx, r, Response{Status: 200, Body: []byte("new")})
	}); err != nil {
		t.Fatal(err)
	}
	read := []sealedResponse{{GuildID: r.GuildID, TokenID: r.TokenID, Key: r.Key, Body: old.Sealer.Seal([]byte("old"), bound(r))}}
	if err := resealRows(t.Context(), d, both, read, new(seal.Count)); err != nil {
		t.Fatal(err)
	}
	if a, err := (Keys{Sealer: both}).Replay(t.Context(), d.Reader(), r); err != nil || a == nil || string(a.Body) != "new" {
		t.Errorf("the key answers %+v, %v", a, err)
	}
}
