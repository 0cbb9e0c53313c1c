package idempotency

import (
	"context"
	"sync"
	"time"

	"guildhall/internal/base/db"
)

// namesWhatWasMade is the migration from which on no program is at work that could not
// replay a key without a body.
const namesWhatWasMade = 186

// askAgain is how long Entries waits until it asks again, while an upgrade is under way.
const askAgain = time.Second

// Entries says whether keys may name what was made. Once they may, they always may.
type Entries struct {
	mu    sync.Mutex
	named bool
	asked time.Time
}

// Named reports whether they may. It asks q now and then, until it is so.
func (e *Entries) Named(ctx context.Context, q db.Querier) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.named || time.Since(e.asked) < askAgain {
		return e.named, nil
	}
	oldest, err := db.OldestProgram(ctx, q)
	if err != nil {
		return false, err
	}
	e.named, e.asked = oldest >= namesWhatWasMade, time.Now()
	return e.named, nil
}
