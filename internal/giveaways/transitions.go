package giveaways

import (
	"context"
	"errors"

	"guildhall/internal/db"
)

// chunk is how many giveaways one transaction moves: few enough to finish well
// inside the statement timeout.
const chunk = 200

// Transitions moves every giveaway whose time has come: scheduled ones become
// active, active ones go into drawing with a job that draws them. Those that
// have been in drawing for long, because their job was lost, get another one.
// It is the background job's work; several may run at once.
func Transitions(ctx context.Context, d db.Doer, q Queue) error {
	return errors.Join(
		inChunks(ctx, d, start, nil),
		inChunks(ctx, d, finish, q.Draw),
		inChunks(ctx, d, overdue, q.Draw),
	)
}

// inChunks calls step in one transaction after the other until nothing is left
// to do, and enqueues, in the same transaction, the job that each giveaway then
// needs.
func inChunks(ctx context.Context, d db.Doer, step func(context.Context, *db.Tx, int) ([]row, error), enqueue func(context.Context, *db.Tx, string, string, int) error) error {
	for {
		var moved []row
		err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
			if moved, err = step(ctx, tx, chunk); err != nil || enqueue == nil {
				return err
			}
			for _, g := range moved {
				if err := enqueue(ctx, tx, g.GuildID, g.ID, g.Rounds+1); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || len(moved) < chunk {
			return err
		}
	}
}
