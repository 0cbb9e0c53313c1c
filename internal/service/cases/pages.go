package cases

import (
	"context"

	"guildhall/gen"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
)

// The functions of this file read cases for people, in the dashboard, each bound to a guild.

type (
	// Case is a case as the API shows it.
	Case = gen.Case
	// Change is a change of a case as the API shows it.
	Change = gen.PastCaseChange
	// Filter narrows a list of cases.
	Filter = filter
)

// List returns a page of the guild's cases that pass f, newest first, and whether more follow.
func List(ctx context.Context, q db.Querier, guild string, f Filter, p page.P) ([]Case, bool, error) {
	rows, err := list(ctx, q, guild, f, p)
	rows, more := page.Cut(rows, p)
	return page.Each(rows, show), more, err
}

// Find returns a case. It is NotFound when the guild has no such case.
func Find(ctx context.Context, q db.Querier, guild, id string) (Case, error) {
	c, err := get(ctx, q, guild, id)
	return show(c), err
}

// Named returns the cases that have an id, or a number that is not 0.
func Named(ctx context.Context, q db.Querier, guild, id string, number int64) ([]Case, error) {
	rows, err := db.Select[row](ctx, q, withName, guild, id, number)
	return page.Each(rows, show), fault.Wrap(err, "look for case", id, "of guild", guild)
}

// withName looks each name up by its own index.
var withName = byID + `
		UNION ALL` + selectCases + `
		WHERE guild_id = $1
		  AND number = $3
		  AND id <> $2`

// ChangesOf returns a page of a case's changes, oldest first, and whether more follow. The first is
// its creation.
func ChangesOf(ctx context.Context, q db.Querier, guild, id string, p page.P) ([]Change, bool, error) {
	rows, err := listChanges(ctx, q, guild, id, p)
	rows, more := page.Cut(rows, p)
	return page.Each(rows, showRecorded), more, err
}
