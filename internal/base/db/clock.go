package db

import (
	"context"
	"time"

	"guildhall/internal/base/fault"
)

// ClockOffset returns how far now is ahead of the database's clock. It assumes that Postgres read
// its clock in the middle of the round trip.
func ClockOffset(ctx context.Context, q Querier, now func() time.Time) (time.Duration, error) {
	var theirs time.Time
	asked := now()
	if err := q.GetContext(ctx, &theirs, `SELECT clock_timestamp()`); err != nil {
		return 0, fault.Wrap(err, "read the database's clock")
	}
	return asked.Add(now().Sub(asked) / 2).Sub(theirs), nil
}

// Later returns an SQL expression for one millisecond after the instant in column; for NULL it is
// NULL, which greatest ignores. Callers tell changes of a resource apart by their instants, so each
// change of a row takes a later instant than the one before, even when truncated to the
// milliseconds that callers see.
//
// The addition is made in UTC. In another time zone its result would depend on the session's
// setting, which Citus refuses in an UPDATE of a distributed table.
func Later(column string) string {
	return `(` + column + ` AT TIME ZONE 'UTC' + interval '1 millisecond') AT TIME ZONE 'UTC'`
}

// Bounded returns an SQL expression for a computed instant that is not null. It is at most the last
// instant that RFC 3339 can express.
func Bounded(instant string) string {
	return `least(` + instant + `, timestamptz '9999-12-31 23:59:59.999+00')`
}

// Next returns an SQL expression for the instant of a change of a row. column holds the instant of
// the row's last change; at is the clock when the statement began:
//
//	WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at)
//	UPDATE cases SET updated_at = ` + Next("instant.at", "updated_at") + ` FROM instant WHERE …
//
// The UPDATE cannot call clock_timestamp() itself on a distributed table. The statement does not
// first read the row FOR NO KEY UPDATE, since Postgres would then lock the row twice, and while
// foreign keys share-lock the row, the second lock would wait for transactions that wait for the
// first.
func Next(at, column string) string {
	return Bounded(`greatest(` + at + `, ` + Later(column) + `)`)
}
