package idempotency

import (
	"context"
	"sync"
	"sync/atomic"
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

// namesWhatWasMade is the migration from which on no program is at work that could not
// replay a key without a body.
const namesWhatWasMade = 186

// askAgain is how long Entries waits until it asks again, while an upgrade is under way.
const askAgain = time.Second

// Entries says whether keys may name what was made. Once they may, they always may.
type Entries struct {
	named  atomic.Bool
	asking sync.Mutex // held while it asks; guards asked
	asked  time.Time
}

// Named reports whether they may, as far as q tells, which it asks now and then until it
// is so.
func (e *Entries) Named(ctx context.Context, q db.Querier) bool {
	if !e.named.Load() && e.asking.TryLock() {
		defer e.asking.Unlock()
		if time.Since(e.asked) >= askAgain {
			e.asked = time.Now()
			if oldest, err := db.OldestProgram(ctx, q); err == nil && oldest >= namesWhatWasMade {
				e.named.Store(true)
			}
		}
	}
	return e.named.Load()
}
