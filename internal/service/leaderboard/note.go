package leaderboard

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

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

// Noted completes such a statement. Its CTE moved has a row for each row of the
// board that it changes, with the columns user_id, was and is_now: the points
// before and after, null for a row that was not there or is no more. guild is an
// expression over such a row, or a parameter. text gets the CTEs that do the
// noting, to be put behind moved, and returns the whole.
func (b Board) Noted(moved, guild string, text func(note string) string) Noted {
	in := func(alias string) string {
		return alias + `.guild_id = ` + guild + ` AND ` + alias + `.board = '` + b.name + `'`
	}
	note := `rank_noted AS (
			INSERT INTO rank_moves (guild_id, board, version, user_id, was, is_now)
			SELECT m.guild_id, m.board, m.version, ` + moved + `.user_id, -` + moved + `.was, -` + moved + `.is_now
			FROM ` + moved + `
			JOIN rank_maps m ON ` + in("m") + `
			WHERE ` + moved + `.was IS DISTINCT FROM ` + moved + `.is_now
		)`
	crowded := fmt.Sprintf(`EXISTS (SELECT FROM rank_requests q WHERE %s OFFSET %d)`, in("q"), maxRequests-1)
	ask := `, rank_asking AS MATERIALIZED (
			SELECT ` + guild + ` AS guild_id
			FROM ` + moved + `
			WHERE random() * least(` + strconv.Itoa(askEvery) + `, (SELECT count(*) FROM ` + moved + `)) < 1
			  AND (` + moved + `.was IS NULL OR EXISTS (SELECT FROM rank_maps m WHERE ` + in("m") + `))
			  AND NOT ` + crowded + `
		), rank_asked AS (
			INSERT INTO rank_requests (guild_id, board)
			SELECT home.id, '` + b.name + `'
			FROM rank_asking
			JOIN guilds home ON home.id = ` + strings.ReplaceAll(guild, moved+".", "rank_asking.") + `
		), rank_crowded AS (
			SELECT m.version
			FROM ` + moved + `
			CROSS JOIN LATERAL (
				SELECT m.version FROM rank_maps m WHERE ` + in("m") + ` AND ` + crowded + ` FOR UPDATE SKIP LOCKED
			) m
		), rank_given_up AS (
			DELETE FROM rank_maps m
			USING ` + moved + `, rank_crowded c
			WHERE ` + in("m") + ` AND m.version = c.version
		)`
	return Noted{usual: text(note), asking: text(note + ask)}
}

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
	_, err := tx.ExecContext(ctx, `
		WITH gone AS (
			DELETE FROM rank_maps WHERE guild_id = $1 AND board = $2
		)
		INSERT INTO rank_requests (guild_id, board)
		VALUES ($1, $2)`, guild, b.name)
	return fault.Wrap(err, "give up the map of the", b.name, "of guild", guild)
}
