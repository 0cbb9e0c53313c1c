package cases

import (
	"context"

	"guildhall/internal/base/db"
	"guildhall/internal/outbound/event"
)

const (
	// batchSize is how many due cases one query finds.
	batchSize = 2000
	// unitSize is how many cases of a guild one transaction expires. An edit of one of them waits
	// for the whole transaction.
	unitSize = 200
	// unitsAtOnce is how many transactions run concurrently.
	unitsAtOnce = 3
)

// Expire sets the status of every active case whose expiry has passed to expired and records the
// events. A background sweep calls it; reading or editing a case never changes its status by
// itself. Several calls may run at once. A case that another transaction has locked is left for the
// next run.
func Expire(ctx context.Context, d *db.DB) error {
	return db.Sweep{What: "overdue cases", Due: due, Look: batchSize, Chunk: unitSize, AtOnce: unitsAtOnce, Do: expireUnit}.Run(ctx, d)
}

// expireUnit expires those of the guild's given cases that are due and not locked, and records an
// event for each.
func expireUnit(ctx context.Context, tx *db.Tx, guild string, ids []string) (int, error) {
	rows, err := expire(ctx, tx, guild, ids)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	changes := make([]event.Change, len(rows))
	for i, c := range rows {
		changes[i] = event.Change{At: c.UpdatedAt.Time, Data: showChange(c, []string{"status"}, nil)}
	}
	return len(rows), event.RecordEach(ctx, tx, event.System(guild), event.CaseUpdated, changes)
}
