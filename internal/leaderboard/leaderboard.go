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

	seen  map[string]string // the guild up to which each board was searched
	round int
}

// The boards, as the database names them.
var boards = [...]struct{ name, table string }{{"wallets", "wallets"}, {"levels", "levels"}}

const (
	searched = 25  // guilds looked at in one go, to see whether they have grown large
	leisure  = 5   // rounds between two such looks
	foldable = 100 // noted moves that are worth adding up
	sloppy   = 4   // stretches grown to so many times their length ask for a new map
	patience = 30  // rounds between two looks at the shape of the maps
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
	if err := k.fold(ctx); err != nil {
		return err
	}
	if k.round%patience == 1 {
		if err := k.reshape(ctx); err != nil {
			return err
		}
	}
	if k.round%leisure == 1 {
		for _, b := range boards {
			if err := k.search(ctx, b.name, b.table); err != nil {
				return err
			}
		}
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
		ORDER BY id`); err != nil {
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

// fold adds up the moves of each map that has many.
func (k *Keeper) fold(ctx context.Context) error {
	var ids []int64
	if err := k.DB.Reader().SelectContext(ctx, &ids, `
		SELECT m.id
		FROM leaderboard_maps m
		WHERE m.state = 'live'
		  AND EXISTS (SELECT FROM leaderboard_moves v WHERE v.map_id = m.id OFFSET $1)`, foldable); err != nil {
		return fmt.Errorf("count the moves in leaderboards: %w", err)
	}
	for _, id := range ids {
		err := k.alone(ctx, "READ COMMITTED", func(ctx context.Context, tx *db.Tx) error {
			if _, err := tx.ExecContext(ctx, `SELECT fold_leaderboard($1)`, id); err != nil {
				return fmt.Errorf("add up the moves of map %d: %w", id, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// reshape drafts a new map where stretches have grown long, and clears away
// moves that were noted while their map was being replaced.
func (k *Keeper) reshape(ctx context.Context) error {
	var grown []struct {
		Board   string `db:"board"`
		GuildID string `db:"guild_id"`
	}
	if err := k.DB.Reader().SelectContext(ctx, &grown, `
		SELECT m.board, m.guild_id
		FROM leaderboard_maps m
		WHERE m.state = 'live'
		  AND NOT EXISTS (SELECT FROM leaderboard_maps d WHERE (d.board, d.guild_id, d.state) = (m.board, m.guild_id, 'draft'))
		  AND (
			EXISTS (
				SELECT
				FROM (SELECT n - lag(n, 1, 0::bigint) OVER (ORDER BY i) AS rows FROM unnest(m.ahead) WITH ORDINALITY AS a (n, i)) s
				WHERE rows > $1::bigint
			)
			OR CASE m.board
				WHEN 'wallets' THEN EXISTS (SELECT FROM wallets_after(m.guild_id, coalesce(m.ahead[cardinality(m.ahead)], 0) + $1, 1))
				ELSE EXISTS (SELECT FROM levels_after(m.guild_id, coalesce(m.ahead[cardinality(m.ahead)], 0) + $1, 1))
			END
		  )`, sloppy*k.stretch()); err != nil {
		return fmt.Errorf("look at the shape of leaderboards: %w", err)
	}
	for _, g := range grown {
		if err := k.draft(ctx, g.Board, g.GuildID); err != nil {
			return err
		}
	}
	return k.alone(ctx, "READ COMMITTED", func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `
			DELETE FROM leaderboard_moves v
			WHERE NOT EXISTS (SELECT FROM leaderboard_maps m WHERE m.id = v.map_id)`); err != nil {
			return fmt.Errorf("clear away old moves: %w", err)
		}
		return nil
	})
}

// search looks at the next few guilds and drafts a map for those whose board
// has grown large.
func (k *Keeper) search(ctx context.Context, board, table string) error {
	if k.seen == nil {
		k.seen = make(map[string]string)
	}
	least := k.Least
	if least == 0 {
		least = 4096
	}
	var guilds []struct {
		ID    string `db:"id"`
		Large bool   `db:"large"`
	}
	if err := k.DB.Reader().SelectContext(ctx, &guilds, `
		SELECT g.id, NOT EXISTS (SELECT FROM leaderboard_maps m WHERE m.board = $1 AND m.guild_id = g.id)
		         AND EXISTS (SELECT FROM `+table+` w WHERE w.guild_id = g.id OFFSET $2) AS large
		FROM (SELECT id FROM guilds WHERE id > $3 ORDER BY id LIMIT $4) g
		ORDER BY g.id`, board, least-1, k.seen[board], searched); err != nil {
		return fmt.Errorf("look for large leaderboards: %w", err)
	}
	k.seen[board] = ""
	if len(guilds) == searched {
		k.seen[board] = guilds[len(guilds)-1].ID
	}
	for _, g := range guilds {
		if g.Large {
			if err := k.draft(ctx, board, g.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *Keeper) draft(ctx context.Context, board, guild string) error {
	return k.alone(ctx, "READ COMMITTED", func(ctx context.Context, tx *db.Tx) error {
		var there bool
		err := tx.GetContext(ctx, &there, `
			SELECT EXISTS (SELECT FROM leaderboard_maps WHERE (board, guild_id, state) = ($1, $2, 'draft'))`, board, guild)
		if err == nil && !there {
			_, err = tx.ExecContext(ctx, `SELECT draft_leaderboard($1, $2, $3)`, board, guild, k.stretch())
		}
		if err != nil {
			return fmt.Errorf("draft a map of the %s of guild %s: %w", board, guild, err)
		}
		return nil
	})
}

func (k *Keeper) stretch() int {
	if k.Stretch == 0 {
		return 512
	}
	return k.Stretch
}
