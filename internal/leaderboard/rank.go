package leaderboard

import (
	"context"
	"fmt"

	"guildhall/internal/db"
	"guildhall/internal/fault"
)

// Board is one kind of leaderboard.
type Board struct {
	name string // in leaderboard_maps, and the table
	rank string // the statement of Rank
}

// The boards.
var (
	Wallets = Board{"wallets", rankIn("wallets", "balance")}
	Levels  = Board{"levels", rankIn("levels", "total_xp")}
)

// Place is where a member stands on a leaderboard.
type Place struct {
	Rank   int64 `db:"rank"` // from 1
	Points int64 `db:"points"`
	Of     int64 `db:"of"` // how many stand there
}

// Rank returns the member's exact place in the guild's leaderboard. It is
// NotFound for a member without a row. With a map it walks from the last mark
// before the member and from the last of all; without one it counts the rows.
func (b Board) Rank(ctx context.Context, q db.Querier, guild, user string) (Place, error) {
	var p Place
	err := q.GetContext(ctx, &p, b.rank, guild, user)
	switch {
	case db.Missing(err):
		return Place{}, fault.New(fault.NotFound, "not_found", "The member is not on the leaderboard.")
	case err != nil:
		return Place{}, fmt.Errorf("rank %s on the %s of guild %s: %w", user, b.name, guild, err)
	}
	return p, nil
}

// Statement is what Rank runs, with the guild as $1 and the member as $2.
func (b Board) Statement() string { return b.rank }

// rankIn is one statement, so that rows, counts and noted moves are of one
// snapshot. What lies ahead of a mark is its count and what the moves that are
// not added up yet have changed about it.
//
// Each depth is bounded on both sides, which tells Postgres what it cannot know
// of a comparison of rows: that little lies between, so that it reads the index.
func rankIn(table, points string) string {
	return `
		WITH me AS (
			SELECT -` + points + ` AS depth, length(user_id) AS length, user_id, ` + points + ` AS points
			FROM ` + table + `
			WHERE guild_id = $1 AND user_id = $2
		), map AS (
			SELECT id, ahead
			FROM leaderboard_maps
			WHERE board = '` + table + `' AND guild_id = $1 AND state = 'live'
		), near AS MATERIALIZED (
			SELECT map.id, map.ahead[k.number] AS ahead, k.depth, k.length, k.user_id
			FROM map, me, LATERAL (
				SELECT number, depth, length, user_id
				FROM leaderboard_marks
				WHERE map_id = map.id AND (depth, length, user_id) <= (me.depth, me.length, me.user_id)
				ORDER BY depth DESC, length DESC, user_id DESC
				LIMIT 1
			) k
		), last AS MATERIALIZED (
			SELECT map.id, map.ahead[k.number] AS ahead, k.depth, k.length, k.user_id
			FROM map, LATERAL (
				SELECT number, depth, length, user_id
				FROM leaderboard_marks
				WHERE map_id = map.id
				ORDER BY number DESC
				LIMIT 1
			) k
		)
		SELECT points,
		       1 + ` + aheadOf("near") + ` + (
		           SELECT count(*)
		           FROM ` + table + ` t
		           WHERE t.guild_id = $1
		             AND -t.` + points + ` >= ` + start("near", "depth", "-9223372036854775807") + `
		             AND -t.` + points + ` <= (SELECT depth FROM me)
		             AND (-t.` + points + `, length(t.user_id), t.user_id) >= ` + place("near") + `
		             AND (-t.` + points + `, length(t.user_id), t.user_id) <
		                 ((SELECT depth FROM me), (SELECT length FROM me), (SELECT user_id FROM me))
		       ) AS rank,
		       ` + aheadOf("last") + ` + (
		           SELECT count(*)
		           FROM ` + table + ` t
		           WHERE t.guild_id = $1
		             AND -t.` + points + ` >= ` + start("last", "depth", "-9223372036854775807") + `
		             AND -t.` + points + ` <= (SELECT 0::bigint)
		             AND (-t.` + points + `, length(t.user_id), t.user_id) >= ` + place("last") + `
		       ) AS of
		FROM me`
}

// aheadOf is how many rows lie ahead of a mark, 0 where there is none.
func aheadOf(mark string) string {
	return `coalesce((
		           SELECT k.ahead
		                + count(*) FILTER (WHERE (v.is_now, length(v.user_id), v.user_id) < (k.depth, k.length, k.user_id))
		                - count(*) FILTER (WHERE (v.was, length(v.user_id), v.user_id) < (k.depth, k.length, k.user_id))
		           FROM ` + mark + ` k
		           LEFT JOIN leaderboard_moves v ON v.map_id = k.id
		           GROUP BY k.ahead
		       ), 0)`
}

// place is a mark's place, and the beginning where there is none.
func place(mark string) string {
	return `(` + start(mark, "depth", "-9223372036854775807") + `, ` + start(mark, "length", "0") + `, ` + start(mark, "user_id", "''") + `)`
}

func start(mark, column, otherwise string) string {
	return `coalesce((SELECT ` + column + ` FROM ` + mark + `), ` + otherwise + `)`
}
