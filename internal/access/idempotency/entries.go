package idempotency

import (
	"context"
	"time"

	"guildhall/internal/base/db"
)

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
