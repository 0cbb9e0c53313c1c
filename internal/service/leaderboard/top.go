package leaderboard

import (
	"context"
	"strconv"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
)

// topSize is how many entries a Top has. To leave out members who have left, each entry needs a
// lookup of about 7 us; writing costs nothing more.
const topSize = 10_000

// Top is the first 10,000 entries of a list of members by points, optionally without members who
// have left the guild. Pages and ranks refer to the entries that are shown; behind the last entry
// every page is empty and no member has a rank. Each statement reads the list from its beginning.
type Top struct{ page, rank string }

// NewTop returns the Top of the rows of table that satisfy where. where names the guild as $1;
// :first and :second stand for two more parameters. The rows are ordered by the column points (most
// first), then by user id. With present, NewTop leaves out members who have left the guild.
func NewTop(table, where, points string, present bool) Top {
	shown := "true"
	if present {
		shown = isPresent
	}
	of := func(text, first, second string) string {
		text = db.With(text, "entries", entries, "listed", listed, "shown", shown, "gone", hasLeft)
		text = db.With(text, "table", table, "where", where, "points", points, "size", strconv.Itoa(topSize))
		return db.With(text, "first", first, "second", second)
	}
	return Top{page: of(topPage, "$4", "$5"), rank: of(topRank, "$3", "$4")}
}

const (
	entries = `SELECT user_id, :points AS points, -:points AS depth, length(user_id) AS length
			FROM :table
			WHERE :where
			ORDER BY -:points, length(user_id), user_id
			LIMIT :size`

	// hasLeft looks up in an index of departed members whether the member of e has left the guild.
	// A join would read all departed members.
	hasLeft = `(
			SELECT true
			FROM members m
			WHERE m.guild_id = $1 AND m.user_id = e.user_id
			  AND m.left_at IS NOT NULL AND (m.joined_at IS NULL OR m.joined_at < m.left_at)
		)`

	isPresent = hasLeft + ` IS NULL`

	listed = `(SELECT true FROM :table WHERE :where AND user_id = e.user_id)`

	// topPage reads no more entries than it needs to fill the page.
	topPage = `
		SELECT user_id, points
		FROM (
			:entries
		) e
		WHERE :shown
		ORDER BY depth, length, user_id` + page.CutOut

	topRank = `
		WITH shown AS MATERIALIZED (
			SELECT user_id, points, row_number() OVER (ORDER BY depth, length, user_id) AS rank
			FROM (
				:entries
			) e
			WHERE :shown
		)
		SELECT coalesce(s.rank, 0) AS rank, coalesce(s.points, 0) AS points, (SELECT count(*) FROM shown) AS of,
		       :listed IS NOT NULL AS listed, :gone IS NOT NULL AS gone
		FROM (SELECT $2::text AS user_id) e
		LEFT JOIN shown s ON s.user_id = e.user_id`
)

// Page returns one page of the guild's list, plus one row if there are more. further are the
// parameters of the list's condition.
func (t Top) Page(ctx context.Context, q db.Querier, guild string, p page.P, further ...any) ([]Row, error) {
	rows, err := db.Select[Row](ctx, q, t.page, append([]any{guild, p.Limit(), p.Offset()}, further...)...)
	return rows, fault.Wrap(err, "read a page of the first entries of guild", guild)
}

// Rank returns the member's place among the members that are shown. If the member is not shown, the
// error is NotFound with the reason.
func (t Top) Rank(ctx context.Context, q db.Querier, guild, user string, further ...any) (Place, error) {
	found, err := db.Get[struct {
		Place
		Listed bool `db:"listed"`
		Gone   bool `db:"gone"`
	}](ctx, q, t.rank, append([]any{guild, user}, further...)...)
	switch {
	case err != nil:
		return Place{}, fault.Wrap(err, "rank", user, "among the first entries of guild", guild)
	case found.Rank > 0:
		return found.Place, nil
	case !found.Listed:
		return Place{}, errNotListed
	case found.Gone:
		return Place{}, fault.New(fault.NotFound, "not_found", "The member has left the guild, and present=true shows only those who are there.")
	}
	return Place{}, fault.New(fault.NotFound, "not_found", "The member stands behind the first %d entries of the leaderboard, where this list ends.", topSize)
}
