package lanes

import (
	"context"
	"fmt"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// Queue describes which rows of a guild's table wait for work: their condition, and the columns
// with the due time, the waiting since and the number of failures. The table must have a partial
// index on guild and At whose predicate is Condition.
type Queue struct {
	Table     string
	At        string // the column with the instant at which a row is due
	Failures  string // the column that counts the failures
	Condition string // the predicate of waiting rows, including rows that are not due yet

	// Since is the column with the time since when a row waits. Empty: Waiting is never called.
	Since string
	// MaxAge is how long after Since a row whose work fails is retried; 0 means for ever. A row
	// that is given up gets NULL in At.
	MaxAge time.Duration
}

func (q Queue) with(text string) string {
	return db.With(text, "table", q.Table, "at", q.At, "failures", q.Failures, "condition", q.Condition, "since", q.Since)
}

// Scan returns the statement that finds due rows guild by guild. Starting after guild $1, it visits
// the first $2 guilds that have waiting rows, and returns at most $3 due rows of each guild. A
// guild without a due row, or a guild whose removal has begun, is returned once with an empty id,
// so that the last row always says where the next scan starts. The statement jumps from guild to
// guild in an index that begins with the guild.
//
// With distributed tables (Citus) a statement cannot jump like this: that form reads all due rows
// and returns only guilds that have due rows.
func (q Queue) Scan(distributed bool) string {
	if distributed {
		return q.with(`
		SELECT guild_id, id
		FROM (
			SELECT guild_id, id, row_number() OVER (PARTITION BY guild_id ORDER BY :at) AS place
			FROM :table
			WHERE guild_id > $1
			  AND :condition
			  AND :at <= now()
			  AND NOT EXISTS (SELECT FROM guilds h WHERE h.id = guild_id AND h.removed_at IS NOT NULL)
		) due
		WHERE place <= $3
		ORDER BY guild_id, place
		LIMIT $2::int * $3::int`)
	}
	return q.with(`
		WITH RECURSIVE step AS (
			(SELECT guild_id, 1 AS n
			FROM :table
			WHERE guild_id > $1
			  AND :condition
			ORDER BY guild_id
			LIMIT 1)
			UNION ALL
			SELECT (
				SELECT g.guild_id
				FROM :table g
				WHERE g.guild_id > step.guild_id
				  AND :condition
				ORDER BY g.guild_id
				LIMIT 1
			), n + 1
			FROM step
			WHERE guild_id IS NOT NULL
			  AND n < $2
		)
		SELECT step.guild_id, coalesce(found.id, '') AS id
		FROM step
		LEFT JOIN LATERAL (
			SELECT g.id, g.:at
			FROM :table g
			WHERE g.guild_id = step.guild_id
			  AND :condition
			  AND g.:at <= now()
			  AND NOT EXISTS (SELECT FROM guilds h WHERE h.id = step.guild_id AND h.removed_at IS NOT NULL)
			ORDER BY g.:at
			LIMIT $3
		) found ON true
		WHERE step.guild_id IS NOT NULL
		ORDER BY step.n, found.:at`)
}

// Postpone returns the statement that makes row $2 of guild $1 due again after a pause that doubles
// with each failure, up to 15 minutes. If the row is older than MaxAge, the statement gives it up.
// It returns whether the row still waits, and no row if the row no longer waited.
func (q Queue) Postpone() string {
	old := `false`
	if q.MaxAge > 0 {
		old = fmt.Sprintf(`%s <= now() - interval '%d seconds'`, q.Since, int(q.MaxAge.Seconds()))
	}
	return db.With(q.with(`
		WITH pause AS MATERIALIZED (
			SELECT now() + make_interval(secs => least(power(2, least(:failures, 10)), 900)) AS until, :old AS old
			FROM :table
			WHERE guild_id = $1
			  AND id = $2
			  AND :condition
		)
		UPDATE :table
		SET :failures = :failures + 1, :at = CASE WHEN NOT pause.old THEN pause.until END
		FROM pause
		WHERE guild_id = $1
		  AND id = $2
		  AND :condition
		RETURNING :at IS NOT NULL`), "old", old)
}

// Waiting returns the number of waiting rows and how long the oldest has waited.
func (q Queue) Waiting(ctx context.Context, r db.Querier) (n int, oldest time.Duration, err error) {
	w, err := db.Get[struct {
		N   int     `db:"n"`
		Age float64 `db:"age"`
	}](ctx, r, q.with(`
		SELECT count(*) AS n, coalesce(greatest(extract(epoch FROM now() - min(:since)), 0), 0)::float8 AS age
		FROM :table
		WHERE :condition`))
	return w.N, time.Duration(w.Age * float64(time.Second)), fault.Wrap(err, "count what waits in", q.Table)
}
