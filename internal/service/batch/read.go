package batch

import (
	"context"
	"fmt"
	"strings"

	"guildhall/internal/base/db"
)

// Query asks for the row of a member of a guild, and has it once it is answered: the
// zero row where there is none.
type Query[R any] struct {
	Guild, User string
	Row         R
}

// answer is a row that is there, and the number of its query, from 1 on.
type answer[R any] struct {
	Number int `db:"number"`
	Row    R   `db:"row"`
}

// Rows reads the rows of a table of members, several in one statement.
type Rows[R any] struct {
	table        string
	one, several string // for members of one guild, or of several
}

// RowsOf reads these columns of the table into R.
func RowsOf[R any](table string, columns ...string) Rows[R] {
	names, wanted := strings.Join(columns, `, `), make([]string, len(columns))
	for i, c := range columns {
		wanted[i] = `r.` + c + ` AS "row.` + c + `"`
	}
	// The arrays' lengths are hidden for the reason that stands at Given, and without
	// the OFFSET Postgres would choose another way of joining for small tables.
	text := func(arrays, given, guild string) string {
		return `
		SELECT g.number, ` + strings.Join(wanted, `, `) + `
		FROM unnest(` + arrays + `) WITH ORDINALITY AS g (` + given + `, number)
		CROSS JOIN LATERAL (
			SELECT ` + names + ` FROM ` + table + ` WHERE guild_id = ` + guild + ` AND user_id = g.user_id OFFSET 0
		) r`
	}
	return Rows[R]{
		table:   table,
		one:     text(`(SELECT $2::text[])`, `user_id`, `$1`),
		several: text(`(SELECT $1::text[]), $2::text[]`, `guild_id, user_id`, `g.guild_id`),
	}
}

// Read answers queries in one statement.
func (r Rows[R]) Read(ctx context.Context, q db.Querier, queries []*Query[R]) error {
	var found []answer[R]
	statement, guild := r.one, any(queries[0].Guild)
	for _, other := range queries {
		if other.Guild != queries[0].Guild {
			statement, guild = r.several, db.Array(Each(queries, func(q *Query[R]) string { return q.Guild }))
			break
		}
	}
	users := db.Array(Each(queries, func(q *Query[R]) string { return q.User }))
	if err := q.SelectContext(ctx, &found, statement, guild, users); err != nil {
		return fmt.Errorf("read %d rows of %s: %w", len(queries), r.table, err)
	}
	for _, f := range found {
		queries[f.Number-1].Row = f.Row
	}
	return nil
}
