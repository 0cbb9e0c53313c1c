// Package page turns the page and per_page parameters into LIMIT and OFFSET,
// and one row more than asked for into has_more.
package page

// P is one requested page.
type P struct {
	Page    int // counted from 1
	PerPage int
}

// Of returns the page with the given number and size.
func Of(number, perPage int) P { return P{Page: number, PerPage: perPage} }

// Limit is one row more than the page holds; the extra row answers has_more.
func (p P) Limit() int { return p.PerPage + 1 }

// Offset is the number of rows before the page.
func (p P) Offset() int { return (p.Page - 1) * p.PerPage }

// Cut returns the rows of the page and whether more follow, from a result
// fetched with Limit.
func Cut[T any](rows []T, p P) ([]T, bool) {
	if len(rows) > p.PerPage {
		return rows[:p.PerPage], true
	}
	return rows, false
}

// Each is what show makes of each row.
func Each[Row, Shown any](rows []Row, show func(Row) Shown) []Shown {
	out := make([]Shown, len(rows))
	for i, r := range rows {
		out[i] = show(r)
	}
	return out
}

// Deep is the offset from which on a page is worth a statement of its own.
const Deep = 1000

// List is the statements of a list that is ordered by an instant and the id.
type List struct{ shallow, deep string }

// Table says what a list is read from. All of it is constant text.
type Table struct {
	Name    string
	Columns string
	// Reach, if not empty, is a number that no offset of a row can reach; a page
	// from there on is empty without a look at the rows before it.
	Reach string
}

// Newest is the list of the rows that satisfy where, by created_at, newest
// first. In where $2 stands for the limit and $3 for the offset; the other
// parameters are its own.
func Newest(t Table, where string) List { return t.list(where, "created_at", " DESC", "<=", CutOut) }

// Narrowed is Newest where some conditions can be switched off: what they leave is
// only seen in their values, so each page is planned for its own.
func Narrowed(t Table, where string) List {
	return t.list(where, "created_at", " DESC", "<=", "\nLIMIT $2 OFFSET $3")
}

// Changed is the list of the rows that satisfy where, by updated_at, the one
// that was changed last at the end.
func Changed(t Table, where string) List { return t.list(where, "updated_at", "", ">=", CutOut) }

// ChangedAcross is Changed for rows of several guilds: a coordinator takes no subquery
// for what it asks of several shards.
func ChangedAcross(t Table, where string) List {
	return t.list(where, "updated_at", "", ">=", "\nLIMIT $2 OFFSET $3")
}

// CutOut is the end of a statement that reads a page of not too many rows down,
// with its Limit as $2 and its Offset as $3. The subqueries hide both: Postgres
// would otherwise plan the statement anew at each run, as it believes that it
// saves reading a tenth of the list, and planning takes longer than reading.
const CutOut = "\nLIMIT (SELECT $2::bigint) OFFSET (SELECT $3::bigint)"

// The rows before a deep page are counted in the index alone, and only its own
// are read: their keys lead to the page's first row, and from there it is the
// first page.
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

// For is the statement for a page, whose parameters $2 and $3 are the page's
// Limit and Offset.
func (l List) For(p P) string {
	if p.Offset() >= Deep {
		return l.deep
	}
	return l.shallow
}
