package removal

import (
	"context"
	"time"
)

// rest waits for as long as the step took, so that the database has time for other work.
func rest(ctx context.Context, begun time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Since(begun)):
		return nil
	}
}
