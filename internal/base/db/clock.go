package db

import (
	"context"
	"time"

	"guildhall/internal/base/fault"
)

// ClockOffset is how far the clock that now reads is ahead of the database's. It
// takes the middle of the question for the moment of its answer.
func ClockOffset(ctx context.Context, q Querier, now func() time.Time) (time.Duration, error) {
	var theirs time.Time
	asked := now()
	if err := q.GetContext(ctx, &theirs, `SELECT clock_timestamp()`); err != nil {
		return 0, fault.Wrap(err, "read the database's clock")
	}
	return asked.Add(now().Sub(asked) / 2).Sub(theirs), nil
}

// Later is the SQL expression for a millisecond after the instant of a column;
// null for null, which greatest leaves out. Changes of one resource are told
// apart by their instants, so a change never takes one that an earlier change of
// the row has, not even when cut to the milliseconds that callers see.
//
// The sum is made in UTC because elsewhere it depends on the session's time zone,
// which a change of a distributed table may not.
func Later(column string) string {
	return `(` + column + ` AT TIME ZONE 'UTC' + interval '1 millisecond') AT TIME ZONE 'UTC'`
}

// Bounded is the SQL expression for an instant that was computed and is not null: none
// is later than the last that RFC 3339 can write.
func Bounded(instant string) string {
	return `least(` + instant + `, timestamptz '9999-12-31 23:59:59.999+00')`
}

// Next is the SQL expression for the instant of a change of the row whose last
// one is in the column; at is what the clock said when the statement began:
//
//	WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at)
//	UPDATE cases SET updated_at = ` + Next("instant.at", "updated_at") + ` FROM instant WHERE …
//
// The UPDATE could call clock_timestamp() itself, but not on a distributed table. The
// statement does not read the row FOR NO KEY UPDATE before: Postgres would lock it twice,
// and beside rows that refer to it the second lock waits for those who wait for the first.
func Next(at, column string) string {
	return Bounded(`greatest(` + at + `, ` + Later(column) + `)`)
}
