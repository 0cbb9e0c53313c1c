package idempotency

import (
	"context"
	"time"

	"guildhall/internal/base/db"
)

// Made says what the request of a key without a stored body has changed; the response can be
// rebuilt from it.
type Made struct {
	At *time.Time `db:"entry_at"` // the instant of the change

	EntryID *string `db:"entry_id"` // the ledger entry of a changed balance

	// The member whose XP was changed, with the XP before and after.
	Member *string `db:"xp_of"`
	Before *int64  `db:"xp_before"`
	After  *int64  `db:"xp_after"`
}

// Answer rebuilds the body of the response to the request that made m.
type Answer func(ctx context.Context, q db.Querier, guild string, m Made) ([]byte, error)
