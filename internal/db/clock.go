package db

import (
	"context"
	"fmt"
	"time"
)

// ClockOffset is how far the clock that now reads is ahead of the database's. It
// takes the middle of the question for the moment of its answer.
func ClockOffset(ctx context.Context, q Querier, now func() time.Time) (time.Duration, error) {
	var theirs time.Time
	asked := now()
	if err := q.GetContext(ctx, &theirs, `SELECT clock_timestamp()`); err != nil {
		return 0, fmt.Errorf("read the database's clock: %w", err)
	}
	return asked.Add(now().Sub(asked) / 2).Sub(theirs), nil
}
