package removal

import (
	"context"
	"time"
)

// rest waits as long as the step took, to leave the database time for other work.
func rest(ctx context.Context, begun time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Since(begun)):
		return nil
	}
}
