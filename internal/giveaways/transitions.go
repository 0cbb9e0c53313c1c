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
// are still in drawing after half a minute, because their job was lost or its
// worker died, it draws itself. It is the work of a sweep; several may run at
// once.
func Transitions(ctx context.Context, d db.Doer) error {
	var failed error
	for _, step := range []func(context.Context, db.Doer) (int, error){begin, expire, redraw} {
		for {
			n, err := step(ctx, d)
			failed = errors.Join(failed, err)
			if err != nil || n < chunk {
				break
			}
		}
	}
	return failed
}

// begin makes a chunk of scheduled giveaways active.
func begin(ctx context.Context, d db.Doer) (n int, err error) {
	err = d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		moved, err := start(ctx, tx, chunk)
		n = len(moved)
		return err
	})
	return n, err
}

// expire puts a chunk of active giveaways into drawing, each with its job.
func expire(ctx context.Context, d db.Doer) (n int, err error) {
	err = d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		moved, err := finish(ctx, tx, chunk)
		n = len(moved)
		for _, g := range moved {
			err = errors.Join(err, enqueueDraw(ctx, tx, g))
		}
		return err
	})
	return n, err
}

// redraw draws a chunk of giveaways that have been in drawing for too long. One
// that cannot be drawn does not keep the others from it.
func redraw(ctx context.Context, d db.Doer) (int, error) {
	var due []row
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		due, err = overdue(ctx, tx, chunk)
		return err
	})
	for _, g := range due {
		err = errors.Join(err, Draw(ctx, d, g.GuildID, g.ID))
	}
	return len(due), err
}
