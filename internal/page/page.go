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
