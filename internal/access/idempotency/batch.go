package idempotency

import (
	"context"
	"time"

	"guildhall/internal/base/db"
)

// Columns are the tokens, keys and fingerprints of requests as arrays, null where a
// request has no key, for a statement that writes the keys of what it makes:
//
//	INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint, state, status, …)
//
// It makes nothing where something stands under the key: Claim has to find it, whatever
// it is. Two that race for a key fail on it.
func Columns(requests []*Request) []any {
	tokens, keys, fingerprints := make([]*string, len(requests)), make([]*string, len(requests)), make([][]byte, len(requests))
	for i, r := range requests {
		if r != nil {
			tokens[i], keys[i], fingerprints[i] = &r.TokenID, &r.Key, r.Fingerprint
		}
	}
	return []any{db.Texts(tokens), db.Texts(keys), db.ByteArray(fingerprints)}
}

// Made is what a key names that holds no body: the response follows from it.
type Made struct {
	At *time.Time `db:"entry_at"` // of the change

	EntryID *string `db:"entry_id"` // the ledger entry of a balance that was changed

	// A member's XP that was changed, before and after.
	Member *string `db:"xp_of"`
	Before *int64  `db:"xp_before"`
	After  *int64  `db:"xp_after"`
}

// Answer is the body of the response to what a key names.
type Answer func(ctx context.Context, q db.Querier, guild string, m Made) ([]byte, error)
