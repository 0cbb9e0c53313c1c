// Package page translates the parameters page and per_page into LIMIT and OFFSET. It fetches one
// row more than asked for, to answer has_more.
package page

// P is one requested page.
type P struct {
	Page    int // counted from 1
	PerPage int
}

// Of returns the page with the given number and size.
func Of(number, perPage int) P { return P{Page: number, PerPage: perPage} }

// Limit returns PerPage + 1: the extra row tells whether more rows follow.
func (p P) Limit() int { return p.PerPage + 1 }

// Offset returns the number of rows before the page.
func (p P) Offset() int { return (p.Page - 1) * p.PerPage }

// Cut returns the rows of the page and whether more follow, from a result
// fetched with Limit.
func Cut[T any](rows []T, p P) ([]T, bool) {
	if len(rows) > p.PerPage {
		return rows[:p.PerPage], true
	}
	return rows, false
}

// Each returns the result of show for each row. It never returns nil.
func Each[Row, Shown any](rows []Row, show func(Row) Shown) []Shown {
	out := make([]Shown, len(rows))
	for i, r := range rows {
		out[i] = show(r)
	}
	return out
}

// Deep is the offset from which on a page is read by a separate statement.
const Deep = 1000

// List holds the statements of a list that is ordered by an instant and the id.
type List struct{ shallow, deep string }

// Table says what a list is read from. All fields are constant SQL text, never input.
type Table struct {
	Name    string
	Columns string
	// Reach, if not empty, is an SQL expression that is larger than the offset of any row. Pages
	// from there on are empty, and Postgres does not scan the rows before them.
	Reach string
}

// Newest returns the list of the rows that satisfy where, ordered by created_at, newest first.
// Parameters $2 and $3 are the limit and the offset; where may use the others.
func Newest(t Table, where string) List { return t.list(where, "created_at", " DESC", "<=", CutOut) }

// Narrowed is Newest for conditions that parameters can switch off. Only the parameters' values
// tell how many rows remain, so Postgres plans each execution anew.
func Narrowed(t Table, where string) List {
	return t.list(where, "created_at", " DESC", "<=", "\nLIMIT $2 OFFSET $3")
}

// Changed returns the list of the rows that satisfy where, ordered by updated_at, the most recently
// changed row last.
func Changed(t Table, where string) List { return t.list(where, "updated_at", "", ">=", CutOut) }

// ChangedAcross is Changed for rows of several guilds: over several shards a Citus coordinator
// accepts no subquery in LIMIT.
func ChangedAcross(t Table, where string) List {
	return t.list(where, "updated_at", "", ">=", "\nLIMIT $2 OFFSET $3")
}

// CutOut is the end of a statement that reads a page which is not deep, with its Limit as $2 and
// its Offset as $3. The subqueries hide both values from the planner. Otherwise Postgres estimates
// that a custom plan saves reading a tenth of the list and plans every execution anew, and planning
// takes longer than reading.
const CutOut = "\nLIMIT (SELECT $2::bigint) OFFSET (SELECT $3::bigint)"

// In the statement for deep pages an index-only scan counts the rows before the page. The keys
// found there lead to the page's first row, and from there the page is read as a first page is.
func (t Table) list(where, at, direction, from, cut string) List {
	rows := "SELECT " + t.Columns + "\nFROM " + t.Name + "\nWHERE " + where
	order := "\nORDER BY " + at + direction + ", id" + direction
	within := ""
	if t.Reach != "" {
		within = " AND $3 < " + t.Reach
	}
	first := "SELECT " + at + ", id FROM " + t.Name + "\nWHERE " + where + within + order + "\nLIMIT 1 OFFSET $3"
	return List{
		shallow: rows + order + cut,
		deep:    rows + "\nAND (" + at + ", id) " + from + " (\n" + first + ")" + order + "\nLIMIT $2",
	}
}

// For returns the statement for a page. Its parameters $2 and $3 are the page's Limit and Offset.
func (l List) For(p P) string {
	if p.Offset() >= Deep {
		return l.deep
	}
	return l.shallow
}

// Found is the list of a guild's rows whose metadata have the name $4 with the value $5, in an
// order of its own. The conditions, each with its AND, narrow it; their parameters begin with
// $6. The rows that match are sorted: a page costs as much as all of them.
//
// A key of the index <table>_metadata holds guild, name and value, so that the statement reads
// nothing of other guilds. A comparison of guild_id outside of the CASE could lead Postgres to
// an index that begins with the guild, and to reading the whole guild.
func Found(t Table, conditions, order string) string {
	return `
		WITH found AS MATERIALIZED (
			SELECT ` + t.Columns + `
			FROM ` + t.Name + `
			WHERE metadata <> '{}' /*: '{}' AND guild_id = $1 */
			  AND jsonb_set('{}', ARRAY[guild_id], metadata) @> jsonb_set('{}', ARRAY[$1::text], jsonb_object(ARRAY[$4::text], ARRAY[$5::text]))
			  AND CASE WHEN guild_id = $1` + conditions + ` THEN true END
		)
		SELECT ` + t.Columns + `
		FROM found
		ORDER BY ` + order + `
		LIMIT $2 OFFSET $3`
}
