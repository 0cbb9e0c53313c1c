package giveaways

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"guildhall/internal/db"
	"guildhall/internal/event"
	"guildhall/internal/fault"
)

const (
	// look is how many giveaways one look finds whose time has come: so many that
	// those of one guild that end together are found together, and moved in one
	// transaction.
	look = 20_000
	// chunk is how many of one guild one transaction moves: few enough to finish
	// well inside the statement timeout.
	chunk = 200
	// movers is how many guilds are moved at once.
	movers = 3
)

// The statements that look for giveaways whose time has come, over all guilds
// and without locks, and those that move the ones of one guild. What somebody
// else holds at the moment is left for the next time.
var (
	startDue = `
		SELECT guild_id, id
		FROM giveaways
		WHERE status = 'scheduled'
		  AND starts_at <= now()
		ORDER BY starts_at
		LIMIT $1`

	finishDue = `
		SELECT guild_id, id
		FROM giveaways
		WHERE status = 'active'
		  AND ends_at <= now()
		ORDER BY ends_at
		LIMIT $1`

	start = `
		WITH due AS (
			SELECT id AS due_id
			FROM giveaways
			WHERE guild_id = $1
			  AND id = ANY ($2)
			  AND status = 'scheduled'
			  AND starts_at <= now()
			FOR NO KEY UPDATE SKIP LOCKED
		), instant AS MATERIALIZED (
			SELECT clock_timestamp() AS at FROM due LIMIT 1
		)
		UPDATE giveaways
		SET status = 'active', updated_at = ` + next + `
		FROM due, instant
		WHERE guild_id = $1
		  AND id = due_id
		RETURNING ` + columns

	finish = `
		WITH due AS (
			SELECT id AS due_id
			FROM giveaways
			WHERE guild_id = $1
			  AND id = ANY ($2)
			  AND status = 'active'
			  AND ends_at <= now()
			FOR NO KEY UPDATE SKIP LOCKED
		), instant AS MATERIALIZED (
			SELECT clock_timestamp() AS at FROM due LIMIT 1
		)
		UPDATE giveaways
		SET status = 'drawing', pot = ` + toPot + `, drawing_at = instant.at, react_at = NULL, failures = 0,
		    redraw_at = now(), updated_at = ` + next + `
		FROM due, instant
		WHERE guild_id = $1
		  AND id = due_id
		RETURNING ` + columns
)

// ref names a giveaway.
type ref struct {
	GuildID string `db:"guild_id"`
	ID      string `db:"id"`
}

// Transitions moves every giveaway whose time has come: scheduled ones become
// active, and the bot is to post those that the API made; active ones go into
// drawing. It is the work of a sweep; several may run at once.
func Transitions(ctx context.Context, d *db.DB) error {
	return errors.Join(
		transit(ctx, d, startDue, func(ctx context.Context, tx *db.Tx, guild string, ids []string) (int, error) {
			moved, err := moveDue(ctx, tx, start, guild, ids)
			if err != nil {
				return 0, err
			}
			for _, g := range moved {
				if err := event.Record(ctx, tx, event.System(guild).On(g.UpdatedAt.Time), event.GiveawayStarted, show(g)); err != nil {
					return 0, err
				}
				if err := present(ctx, tx, g); err != nil {
					return 0, err
				}
			}
			return len(moved), nil
		}),
		transit(ctx, d, finishDue, func(ctx context.Context, tx *db.Tx, guild string, ids []string) (int, error) {
			// What a crash of the database takes back here is found again.
			if _, err := tx.ExecContext(ctx, `SET LOCAL synchronous_commit = off`); err != nil {
				return 0, fmt.Errorf("let the commit not wait for the disk: %w", err)
			}
			moved, err := moveDue(ctx, tx, finish, guild, ids)
			return len(moved), err
		}),
	)
}

// transit looks for giveaways with the statement due and moves them, guild by
// guild, until a look finds nothing more that can be moved. A guild that fails
// does not keep the others from it.
func transit(ctx context.Context, d *db.DB, due string, moveAll func(context.Context, *db.Tx, string, []string) (int, error)) error {
	for {
		list, err := db.Select[ref](ctx, d.Reader(), due, look)
		if err != nil {
			return fmt.Errorf("look for giveaways whose time has come: %w", err)
		}
		var moved atomic.Int64
		groups := chunks(list)
		errs := make([]error, len(groups))
		var wait errgroup.Group
		wait.SetLimit(movers)
		for i, c := range groups {
			wait.Go(func() error {
				if ctx.Err() == nil { // else the next sweep goes on
					errs[i] = d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
						n, err := moveAll(ctx, tx, c.guild, c.ids)
						moved.Add(int64(n))
						return err
					})
				}
				return nil
			})
		}
		_ = wait.Wait()
		if err := errors.Join(errs...); err != nil || len(list) < look || moved.Load() == 0 {
			return err
		}
	}
}

// moveDue runs one of the statements start and finish.
func moveDue(ctx context.Context, tx *db.Tx, statement, guild string, ids []string) ([]row, error) {
	moved, err := db.Select[row](ctx, tx, statement, guild, db.Array(ids))
	return moved, fault.Wrap(err, "move giveaways of guild", guild, "whose time has come")
}

// group is some giveaways of one guild.
type group struct {
	guild string
	ids   []string
}

// chunks puts giveaways together by guild, at most chunk in each group, in the
// order in which the guilds come first.
func chunks(list []ref) []group {
	var groups []group
	at := make(map[string]int)
	for _, r := range list {
		i, ok := at[r.GuildID]
		if !ok || len(groups[i].ids) == chunk {
			i = len(groups)
			at[r.GuildID] = i
			groups = append(groups, group{guild: r.GuildID})
		}
		groups[i].ids = append(groups[i].ids, r.ID)
	}
	return groups
}
