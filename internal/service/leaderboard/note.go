package leaderboard

import (
	"context"
	"math/rand/v2"
	"strconv"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

const (
	// askEvery is the number of changes for each request to the Maintainer.
	askEvery = 64

	// maxRequests is how many requests may wait for one leaderboard. When that many are waiting, no
	// Maintainer has served the leaderboard for about 16,000 changes. Then the rank index is
	// deleted, so that its moves do not accumulate, unless a Maintainer or another change has
	// locked it.
	maxRequests = 256
)

// Noted is a statement that changes rows of a leaderboard and records their moves.
type Noted struct{ usual, asking string }

// Noted completes the text of a statement that changes rows of the leaderboard. The text has a step
// (CTE), named by moved, that returns one row for each changed row, with the columns user_id, was
// and is_now: the points before and after, null if the row did not exist before or was deleted.
// guild is an expression over such a row, or a parameter. In the text, :rank stands for the steps
// that record the moves, :board for the table and :points for its column. variables are more
// variables for db.With.
func (b Board) Noted(moved, guild, text string, variables ...string) Noted {
	with := func(note string) string {
		note = db.With(note, "moved", moved, "guild", guild, "board", b.name, "most", strconv.Itoa(maxRequests-1), "every", strconv.Itoa(askEvery))
		return b.sql(db.With(text, append(variables, "rank", note)...))
	}
	return Noted{usual: with(noteMoves), asking: with(noteMoves + askForMaintainer)}
}

// noteMoves is the step that inserts the moves.
const noteMoves = `rank_noted AS (
			INSERT INTO rank_moves (guild_id, board, version, user_id, was, is_now)
			SELECT m.guild_id, m.board, m.version, :moved.user_id, -:moved.was, -:moved.is_now
			FROM :moved
			JOIN rank_indexes m ON m.guild_id = :guild AND m.board = :'board'
			WHERE :moved.was IS DISTINCT FROM :moved.is_now
		)`

// askForMaintainer are the steps that insert a request to the Maintainer from time to time, and
// delete the rank index if :most requests are already waiting. The steps read the state of each
// guild once, however many rows the statement changes: an import changes 16,384 rows at once.
const askForMaintainer = `, rank_asking AS MATERIALIZED (
			SELECT :guild AS guild_id
			FROM :moved
			WHERE random() * least(:every, (SELECT count(*) FROM :moved)) < 1
			  AND (:moved.was IS NULL OR EXISTS (SELECT FROM rank_indexes m WHERE m.guild_id = :guild AND m.board = :'board'))
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
				FROM rank_indexes m
				WHERE m.guild_id = :guild AND m.board = :'board'
				  AND EXISTS (SELECT FROM rank_requests q WHERE q.guild_id = :guild AND q.board = :'board' OFFSET :most)
				FOR UPDATE SKIP LOCKED
			) m
		), rank_given_up AS (
			DELETE FROM rank_indexes m
			USING rank_crowded :moved
			WHERE m.guild_id = :guild AND m.board = :'board' AND m.version = :moved.version
		)`

// For returns the SQL of a statement that changes the given number of rows. On average once in
// askEvery changed rows, the SQL also requests a rank index from the Maintainer.
func (n Noted) For(rows int) string {
	if rand.IntN(askEvery) < rows { //nolint:gosec // nothing to guess
		return n.asking
	}
	return n.usual
}

// Reloaded deletes the guild's rank index and requests a new one. A unit of work that has written
// rows without recording their moves, such as an import, calls Reloaded after the last row. A draft
// of a rank index waits for the end of the unit of work.
func (b Board) Reloaded(ctx context.Context, tx *db.Tx, guild string) error {
	_, err := db.Exec(ctx, tx, `
		WITH gone AS (
			DELETE FROM rank_indexes WHERE guild_id = $1 AND board = $2
		)
		INSERT INTO rank_requests (guild_id, board)
		VALUES ($1, $2)`, guild, b.name)
	return fault.Wrap(err, "delete the rank index of the", b.name, "of guild", guild)
}
