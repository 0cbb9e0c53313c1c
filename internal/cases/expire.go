package cases

import (
	"context"

	"guildhall/internal/db"
)

// chunk is how many cases one transaction expires: few enough to finish well
// inside the statement timeout, many enough for a backlog of a million.
const chunk = 1000

// Expire turns every active case whose expiry has passed into an expired one.
// It is the background job's work: the status is a stored change, so that
// reading a case and editing it never alter it. Several may run at once.
func Expire(ctx context.Context, d db.Doer) error {
	for {
		var n int64
		err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
			n, err = expire(ctx, tx, chunk)
			return err
		})
		if err != nil || n < chunk {
			return err
		}
	}
}
