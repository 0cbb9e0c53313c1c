package cases

import (
	"context"

	"guildhall/internal/base/db"
	"guildhall/internal/outbound/event"
)

const (
	// batchSize is how many overdue cases are looked for at a time.
	batchSize = 2000
	// unitSize is how many cases of a guild expire in one transaction: an edit of
	// one of them waits for the whole of it.
	unitSize = 200
	// unitsAtOnce is how many transactions run side by side.
	unitsAtOnce = 3
)

// Expire turns every active case whose expiry has passed into an expired one,
// and tells the guild's endpoints. It is the background job's work: the status
// is a stored change, so that reading a case and editing it never alter it.
// Several may run at once. A case that someone else holds at the moment is left
// for the next time.
func Expire(ctx context.Context, d *db.DB) error {
	return db.Sweep{What: "overdue cases", Due: due, Look: batchSize, Chunk: unitSize, AtOnce: unitsAtOnce, Do: expireUnit}.Run(ctx, d)
}

// expireUnit expires those of the guild's cases that are due and that nobody
// holds, each with its event.
func expireUnit(ctx context.Context, tx *db.Tx, guild string, ids []string) (int, error) {
	rows, err := expire(ctx, tx, guild, ids)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	changes := make([]event.Change, len(rows))
	for i, c := range rows {
		changes[i] = event.Change{At: c.UpdatedAt.Time, Data: showChange(c, []string{"status"})}
	}
	return len(rows), event.RecordEach(ctx, tx, event.System(guild), event.CaseUpdated, changes)
}
