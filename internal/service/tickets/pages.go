package tickets

import (
	"context"
	"time"

	"guildhall/gen"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
)

// The functions of this file read tickets for people, in the dashboard, each bound to a guild.

type (
	// Ticket is a ticket as the API shows it.
	Ticket = gen.Ticket
	// Entry is an entry of a transcript as the API shows it.
	Entry = gen.TicketMessage
	// Filter narrows a list of tickets.
	Filter = filter
)

// List returns a page of the guild's tickets that pass f, and whether more follow.
func List(ctx context.Context, q db.Querier, guild string, f Filter, p page.P) ([]Ticket, bool, error) {
	rows, err := list(ctx, q, guild, f, p)
	rows, more := page.Cut(rows, p)
	return page.Each(rows, show), more, err
}

// Find returns a ticket. It is NotFound when the guild has no such ticket.
func Find(ctx context.Context, q db.Querier, guild, id string) (Ticket, error) {
	t, err := get(ctx, q, guild, id)
	return show(t), err
}

// Named returns the tickets that have an id, or a number that is not 0.
func Named(ctx context.Context, q db.Querier, guild, id string, number int64) ([]Ticket, error) {
	rows, err := db.Select[row](ctx, q, withName, guild, id, number)
	return page.Each(rows, show), fault.Wrap(err, "look for ticket", id, "of guild", guild)
}

// withName looks each name up by its own index.
var withName = byID + `
	UNION ALL
	SELECT ` + columns + `
	FROM tickets
	WHERE guild_id = $1
	  AND number = $3
	  AND id <> $2`

// Transcript returns a page of a ticket's transcript in reading order, and whether more follow.
func Transcript(ctx context.Context, q db.Querier, guild, ticket string, p page.P) ([]Entry, bool, error) {
	entries, err := listEntries(ctx, q, guild, ticket, reading, time.Time{}, p)
	entries, more := page.Cut(entries, p)
	return page.Each(entries, showEntry), more, err
}
