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

// Later is the SQL expression for a millisecond after the instant of a column;
// null for null, which greatest leaves out. Changes of one resource are told
// apart by their instants, so a change takes its instant once it holds the row,
// and never one that an earlier change of the row has, not even when cut to the
// milliseconds that callers see:
//
//	UPDATE … SET updated_at = greatest(clock_timestamp(), Later("updated_at"))
//
// and in an upsert, whose SET may call nothing that looks at a clock:
//
//	INSERT … VALUES (…, clock_timestamp()) ON CONFLICT … DO UPDATE
//	SET updated_at = greatest(excluded.updated_at, Later("t.updated_at"))
//
// Postgres works both out again on the row that it has waited for. The sum is
// made in UTC because elsewhere it depends on the session's time zone, which an
// upsert on a distributed table may not.
func Later(column string) string {
	return `(` + column + ` AT TIME ZONE 'UTC' + interval '1 millisecond') AT TIME ZONE 'UTC'`
}

// Next is the SQL expression for the instant of a change of the row whose last
// one is in the column.
func Next(column string) string { return `greatest(clock_timestamp(), ` + Later(column) + `)` }
