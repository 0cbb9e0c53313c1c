package leaderboard

import (
	"context"
	"math/rand/v2"
	"strconv"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

const (
	// One change in askEvery asks for the keeper, which is often enough.
	askEvery = 64

	// maxRequests are as many as wait for one leaderboard. With that many no
	// keeper has been there for some 16,000 changes, and the map is given up, so
	// that its moves do not pile up either; unless a keeper or another change
	// holds it just now.
	maxRequests = 256
)

// Noted is a statement that changes rows of a leaderboard, and notes it.
type Noted struct{ usual, asking string }

// Noted completes the text of such a statement. Its CTE moved has a row for each row of
// the board that it changes, with the columns user_id, was and is_now: the points
// before and after, null for a row that was not there or is no more. guild is an
// expression over such a row, or a parameter. In the text, :rank stands for the CTEs
// that do the noting, :board and :points for the table and its column, and further
// variables, as of db.With, for what else it needs.
func (b Board) Noted(moved, guild, text string, variables ...string) Noted {
	with := func(note string) string {
		note = db.With(note, "moved", moved, "guild", guild, "board", b.name, "most", strconv.Itoa(maxRequests-1), "every", strconv.Itoa(askEvery))
		return b.sql(db.With(text, append(variables, "rank", note)...))
	}
	return Noted{usual: with(noteMoves), asking: with(noteMoves + askForKeeper)}
}

// noteMoves is the CTE that notes from where to where rows went.
const noteMoves = `rank_noted AS (
			INSERT INTO rank_moves (guild_id, board, version, user_id, was, is_now)
			SELECT m.guild_id, m.board, m.version, :moved.user_id, -:moved.was, -:moved.is_now
			FROM :moved
			JOIN rank_maps m ON m.guild_id = :guild AND m.board = :'board'
			WHERE :moved.was IS DISTINCT FROM :moved.is_now
		)`

// askForKeeper are the CTEs that now and then ask for the keeper, and give up the map
// where :most changes have asked in vain. A guild is looked at once, whatever the
// number of its rows: a file moves 16,384 at once.
const askForKeeper = `, rank_asking AS MATERIALIZED (
			SELECT :guild AS guild_id
			FROM :moved
			WHERE random() * least(:every, (SELECT count(*) FROM :moved)) < 1
			  AND (:moved.was IS NULL OR EXISTS (SELECT FROM rank_maps m WHERE m.guild_id = :guild AND m.board = :'board'))
			  AND NOT EXISTS (SELECT FROM rank_requests q WHERE q.guild_id = :guild AND q.board = :'board' OFFSET :most)
		), rank_asked AS (
			INSERT INTO rank_requests (guild_id, board)
			SELECT rank_asking.guild_id /*: home.id */, :'board'
			FROM rank_asking /*: rank_asking JOIN guilds home ON home.id = :guild */
		), rank_crowded AS (
			SELECT m.guild_id, m.version
			FROM (SELECT DISTINCT :guild AS guild_id FROM :moved) :moved
			CROSS JOIN LATERAL (
				SELECT m.guild_id, m.version
				FROM rank_maps m
				WHERE m.guild_id = :guild AND m.board = :'board'
				  AND EXISTS (SELECT FROM rank_requests q WHERE q.guild_id = :guild AND q.board = :'board' OFFSET :most)
				FOR UPDATE SKIP LOCKED
			) m
		), rank_given_up AS (
			DELETE FROM rank_maps m
			USING rank_crowded :moved
			WHERE m.guild_id = :guild AND m.board = :'board' AND m.version = :moved.version
		)`

// For is the text for a statement that changes that many rows: now and then one
// that asks for the keeper, too. Whatever their number, one row in askEvery asks.
func (n Noted) For(rows int) string {
	if rand.IntN(askEvery) < rows { //nolint:gosec // nothing to guess
		return n.asking
	}
	return n.usual
}

// Reloaded is for a unit that has written rows of the guild's leaderboard without
// noting it, as an import does: after the last of them it gives up its map and
// asks the keeper for a new one. A map that is drafted meanwhile waits for the
// unit's end.
func (b Board) Reloaded(ctx context.Context, tx *db.Tx, guild string) error {
	_, err := db.Exec(ctx, tx, `
		WITH gone AS (
			DELETE FROM rank_maps WHERE guild_id = $1 AND board = $2
		)
		INSERT INTO rank_requests (guild_id, board)
		VALUES ($1, $2)`, guild, b.name)
	return fault.Wrap(err, "give up the map of the", b.name, "of guild", guild)
}
