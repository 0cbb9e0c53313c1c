package giveaways

import (
	"context"
	"errors"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/event"
)

const (
	// look is how many due giveaways one query finds: enough that giveaways of one guild that end
	// at the same time are found together and changed in one transaction.
	look = 20_000
	// chunk is how many giveaways of a guild one transaction changes: few enough to stay well
	// within the statement timeout.
	chunk = 200
	// movers is how many transactions run concurrently.
	movers = 3
)

// The statements that find due giveaways over all guilds without locks, and those that change the
// status of giveaways of one guild. A locked giveaway is left for the next run.
var (
	startDue = `
		SELECT guild_id, id
		FROM giveaways
		WHERE status = 'scheduled'
		  AND starts_at <= now()
		  AND NOT EXISTS (SELECT FROM guilds g WHERE g.id = guild_id AND g.removed_at IS NOT NULL)
		ORDER BY starts_at
		LIMIT $1`

	finishDue = `
		SELECT guild_id, id
		FROM giveaways
		WHERE status = 'active'
		  AND ends_at <= now()
		  AND NOT EXISTS (SELECT FROM guilds g WHERE g.id = guild_id AND g.removed_at IS NOT NULL)
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
		), ` + closes + `
		UPDATE giveaways
		SET ` + drawingSet + next + `
		FROM due, instant, closes
		WHERE guild_id = $1
		  AND id = due_id
		RETURNING ` + columns
)

// Transitions changes the status of every due giveaway: scheduled ones become active, and those of
// the API get their message; active ones go into drawing. A sweep calls it; several may run at
// once.
func Transitions(ctx context.Context, d *db.DB) error {
	return errors.Join(sweep(startDue, started).Run(ctx, d), sweep(finishDue, finished).Run(ctx, d))
}

func sweep(due string, do func(context.Context, *db.Tx, string, []string) (int, error)) db.Sweep {
	return db.Sweep{What: "giveaways whose time has come", Due: due, Look: look, Chunk: chunk, AtOnce: movers, Do: do}
}

// started makes scheduled giveaways active.
func started(ctx context.Context, tx *db.Tx, guild string, ids []string) (int, error) {
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
}

// finished moves active giveaways into drawing.
func finished(ctx context.Context, tx *db.Tx, guild string, ids []string) (int, error) {
	moved, err := moveDue(ctx, tx, finish, guild, ids)
	if err != nil || len(moved) == 0 {
		return 0, err
	}
	changes := make([]event.Change, len(moved))
	for i, g := range moved {
		changes[i] = event.Change{At: g.UpdatedAt.Time, Data: show(g)}
	}
	return len(moved), event.RecordEach(ctx, tx, event.System(guild), event.GiveawayDrawing, changes)
}

// moveDue runs one of the statements start and finish.
func moveDue(ctx context.Context, tx *db.Tx, statement, guild string, ids []string) ([]row, error) {
	moved, err := db.Select[row](ctx, tx, statement, guild, db.Array(ids))
	return moved, fault.Wrap(err, "move giveaways of guild", guild, "whose time has come")
}
