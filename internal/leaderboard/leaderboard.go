// Package leaderboard keeps the maps that let a deep page of a large
// leaderboard cost about what the first one costs. How a map works, and why its
// counts are exact while rows move, stands in migrations/0012_leaderboards.sql.
//
// The pages themselves are read by economy and levelling. Without a map, or with
// one that is out of shape, they are the same pages, only slower.
package leaderboard

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"guildhall/internal/db"
)

// Keeper makes maps for large leaderboards and keeps them in shape. Any number
// of keepers may run against one database.
type Keeper struct {
	DB  *db.DB
	Log *slog.Logger

	Every   time.Duration // between two rounds; 0 means a second
	Stretch int           // rows between two marks; 0 means 512
	Least   int           // rows that a leaderboard with a map has at least; 0 means 4096

	last  asked // up to where the queue was worked through
	swept int64 // up to which map moves were looked through
	round int
}

// asked is a leaderboard that wants a look.
type asked struct {
	GuildID string `db:"guild_id"`
	Board   string `db:"board"` // its table, too
}

const (
	sliceSize   = 256 // notes of the queue read in one go
	roundSlices = 16  // such readings in one round
	draftSlice  = 16  // drafts taken further in one round
	maxGrowth   = 4   // stretches grown to so many times their length ask for a new map
	sweepRounds = 30  // rounds between two looks for moves without a map
	sweepSize   = 64  // maps whose moves are looked at then
)

// Run keeps the maps until ctx ends. What goes wrong in a round is logged, and
// the next round tries again.
func (k *Keeper) Run(ctx context.Context) error {
	every := k.Every
	if every == 0 {
		every = time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := k.Tend(ctx); err != nil && ctx.Err() == nil && k.Log != nil {
			k.Log.ErrorContext(ctx, "keep the leaderboards", "error", err)
		}
	}
}

// Tend is one round. A new map takes a few of them to come into use.
func (k *Keeper) Tend(ctx context.Context) error {
	k.round++
	if err := k.promote(ctx); err != nil {
		return err
	}
	for n, full := 0, true; full && n < roundSlices; n++ {
		var err error
		if full, err = k.serve(ctx); err != nil {
			return err
		}
	}
	if k.round%sweepRounds == 1 {
		return k.sweep(ctx)
	}
	return nil
}

// alone runs fn in a unit that no other keeper's overlaps, or not at all. Walking
// through a million rows takes its time, so the limit on statements is lifted.
func (k *Keeper) alone(ctx context.Context, isolation string, fn func(ctx context.Context, tx *db.Tx) error) error {
	return k.DB.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `SET TRANSACTION ISOLATION LEVEL `+isolation+`; SET LOCAL statement_timeout = '5min'`); err != nil {
			return fmt.Errorf("begin with the leaderboards: %w", err)
		}
		var free bool
		if err := tx.GetContext(ctx, &free, `SELECT pg_try_advisory_xact_lock(hashtext('guildhall leaderboards'))`); err != nil {
			return fmt.Errorf("begin with the leaderboards: %w", err)
		}
		if !free {
			return nil
		}
		return fn(ctx, tx)
	})
}

// promote brings drafts a step further: first a horizon, and once nobody is left
// from before it, counts and service.
func (k *Keeper) promote(ctx context.Context) error {
	var drafts []struct {
		ID      int64 `db:"id"`
		Horizon bool  `db:"horizon"`
	}
	if err := k.DB.Reader().SelectContext(ctx, &drafts, `
		SELECT id, horizon IS NOT NULL AS horizon
		FROM leaderboard_maps
		WHERE state = 'draft'
		ORDER BY id
		LIMIT $1`, draftSlice); err != nil {
		return fmt.Errorf("read the drafts of leaderboards: %w", err)
	}
	for _, d := range drafts {
		isolation, step := "READ COMMITTED", k.horizon
		if d.Horizon {
			isolation, step = "REPEATABLE READ", k.count
		}
		if err := k.alone(ctx, isolation, func(ctx context.Context, tx *db.Tx) error { return step(ctx, tx, d.ID) }); err != nil {
			return err
		}
	}
	return nil
}

// horizon is a transaction that began after the draft was committed: this one.
// Whoever may have missed the draft has an older number, because a writer gets
// its number before it looks for maps. (The xmax of a snapshot would not do: it
// is the highest that has ended, and older ones than the draft may be beyond it.)
func (k *Keeper) horizon(ctx context.Context, tx *db.Tx, id int64) error {
	if _, err := tx.ExecContext(ctx, `
		UPDATE leaderboard_maps
		SET horizon = pg_current_xact_id()
		WHERE id = $1
		  AND horizon IS NULL`, id); err != nil {
		return fmt.Errorf("give map %d its horizon: %w", id, err)
	}
	return nil
}

// count puts a draft into service, if no transaction from before its horizon is
// left. All of it is one snapshot: the rows that are counted, and the noted
// moves that these rows have made already and that are therefore dropped. Moves
// that commit later are noted beside the new counts.
func (k *Keeper) count(ctx context.Context, tx *db.Tx, id int64) error {
	var ready bool
	err := tx.GetContext(ctx, &ready, `
		SELECT count(*) > 0
		FROM leaderboard_maps
		WHERE id = $1
		  AND state = 'draft'
		  AND horizon <= pg_snapshot_xmin(pg_current_snapshot())`, id)
	if err != nil || !ready {
		return err
	}
	for _, q := range [...]string{
		`DELETE FROM leaderboard_moves WHERE map_id = $1`,
		`DELETE FROM leaderboard_moves v
		 USING leaderboard_maps old JOIN leaderboard_maps new USING (board, guild_id)
		 WHERE new.id = $1 AND old.id <> $1 AND v.map_id = old.id`,
		`DELETE FROM leaderboard_maps old
		 USING leaderboard_maps new
		 WHERE new.id = $1 AND old.id <> $1 AND (old.board, old.guild_id) = (new.board, new.guild_id)`,
		`UPDATE leaderboard_maps SET ahead = count_leaderboard(id), state = 'live' WHERE id = $1`,
	} {
		if _, err := tx.ExecContext(ctx, q, id); err != nil {
			return fmt.Errorf("put map %d into service: %w", id, err)
		}
	}
	return nil
}

// serve looks at the leaderboards of the queue's next notes, and says whether
// the queue may hold more behind them.
func (k *Keeper) serve(ctx context.Context) (full bool, err error) {
	var notes []asked
	if err := k.DB.Reader().SelectContext(ctx, &notes, `
		SELECT guild_id, board
		FROM leaderboard_queue
		WHERE (guild_id, board) > ($1, $2)
		ORDER BY guild_id, board
		LIMIT $3`, k.last.GuildID, k.last.Board, sliceSize); err != nil {
		return false, fmt.Errorf("read which leaderboards want a look: %w", err)
	}
	k.last = asked{}
	for _, a := range slices.Compact(notes) {
		err := k.alone(ctx, "READ COMMITTED", func(ctx context.Context, tx *db.Tx) error { return k.look(ctx, tx, a) })
		if err != nil && !db.Missing(err) { // given up meanwhile: its notes stay for the next round
			return false, err
		}
	}
	if full = len(notes) == sliceSize; full {
		k.last = notes[len(notes)-1]
	}
	return full, nil
}

// look adds up what has moved in one leaderboard, and drafts a map where there
// is none and should be, or where stretches have grown long. The notes that
// asked for it go in the same transaction.
func (k *Keeper) look(ctx context.Context, tx *db.Tx, a asked) error {
	if _, err := tx.ExecContext(ctx, `
		DELETE FROM leaderboard_queue
		WHERE guild_id = $1
		  AND board = $2`, a.GuildID, a.Board); err != nil {
		return fmt.Errorf("take the notes on the %s of guild %s: %w", a.Board, a.GuildID, err)
	}
	var maps []struct {
		ID    int64  `db:"id"`
		State string `db:"state"`
	}
	if err := tx.SelectContext(ctx, &maps, `
		SELECT id, state
		FROM leaderboard_maps
		WHERE guild_id = $1
		  AND board = $2`, a.GuildID, a.Board); err != nil {
		return fmt.Errorf("read the maps of the %s of guild %s: %w", a.Board, a.GuildID, err)
	}
	wanted, drafted := false, false
	for _, m := range maps {
		drafted = drafted || m.State == "draft"
		if m.State != "live" {
			continue
		}
		if _, err := tx.ExecContext(ctx, `SELECT fold_leaderboard($1)`, m.ID); err != nil {
			return fmt.Errorf("add up the moves of map %d: %w", m.ID, err)
		}
		if err := tx.GetContext(ctx, &wanted, grown, m.ID, maxGrowth*k.stretch()); err != nil {
			return fmt.Errorf("look at the shape of map %d: %w", m.ID, err)
		}
	}
	if len(maps) == 0 {
		if err := tx.GetContext(ctx, &wanted, `SELECT EXISTS (SELECT FROM `+a.Board+` WHERE guild_id = $1 OFFSET $2)`, a.GuildID, k.least()-1); err != nil {
			return fmt.Errorf("see how large the %s of guild %s are: %w", a.Board, a.GuildID, err)
		}
	}
	if !wanted || drafted {
		return nil
	}
	if _, err := tx.ExecContext(ctx, `SELECT draft_leaderboard($1, $2, $3)`, a.Board, a.GuildID, k.stretch()); err != nil {
		return fmt.Errorf("draft a map of the %s of guild %s: %w", a.Board, a.GuildID, err)
	}
	return nil
}

// grown says whether a stretch of the map, or what lies behind its last mark,
// is longer than $2.
const grown = `
		SELECT EXISTS (
				SELECT
				FROM (SELECT n - lag(n, 1, 0::bigint) OVER (ORDER BY i) AS rows FROM unnest(m.ahead) WITH ORDINALITY AS a (n, i)) s
				WHERE rows > $2::bigint
			)
			OR CASE m.board
				WHEN 'wallets' THEN EXISTS (SELECT FROM wallets_after(m.guild_id, coalesce(m.ahead[cardinality(m.ahead)], 0) + $2, 1))
				ELSE EXISTS (SELECT FROM levels_after(m.guild_id, coalesce(m.ahead[cardinality(m.ahead)], 0) + $2, 1))
			END
		FROM leaderboard_maps m
		WHERE m.id = $1`

// sweep clears away moves that were noted while their map was being replaced or
// given up: of the next few maps that have moves at all, found by hopping
// through the index from one to the next.
func (k *Keeper) sweep(ctx context.Context) error {
	var found []struct {
		ID   int64 `db:"id"`
		Gone bool  `db:"gone"`
	}
	if err := k.DB.Reader().SelectContext(ctx, &found, `
		WITH RECURSIVE hop AS (
			SELECT (SELECT min(map_id) FROM leaderboard_moves WHERE map_id > $1) AS id, 1 AS n
			UNION ALL
			SELECT (SELECT min(map_id) FROM leaderboard_moves WHERE map_id > hop.id), n + 1
			FROM hop
			WHERE hop.id IS NOT NULL AND n < $2
		)
		SELECT id, NOT EXISTS (SELECT FROM leaderboard_maps m WHERE m.id = hop.id) AS gone
		FROM hop
		WHERE id IS NOT NULL`, k.swept, sweepSize); err != nil {
		return fmt.Errorf("look for moves without a map: %w", err)
	}
	k.swept = 0
	if len(found) == sweepSize {
		k.swept = found[len(found)-1].ID
	}
	for _, m := range found {
		if !m.Gone {
			continue
		}
		if err := k.alone(ctx, "READ COMMITTED", func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.ExecContext(ctx, `DELETE FROM leaderboard_moves WHERE map_id = $1`, m.ID)
			return err
		}); err != nil {
			return fmt.Errorf("clear away the moves of map %d: %w", m.ID, err)
		}
	}
	return nil
}

func (k *Keeper) least() int {
	if k.Least == 0 {
		return 4096
	}
	return k.Least
}

func (k *Keeper) stretch() int {
	if k.Stretch == 0 {
		return 512
	}
	return k.Stretch
}
