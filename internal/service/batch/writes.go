package batch

import (
	"context"
	"slices"
	"time"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/collect"
	"guildhall/internal/base/db"
	"guildhall/internal/outbound/event"
)

// patience is how long a batch waits for what another transaction holds. Statements
// set it themselves; a coordinator has to be told for its workers.
const patience = 10 * time.Millisecond

// Change is what changes of all kinds have in common.
type Change struct {
	By   event.Origin
	Key  *idempotency.Request // under which nothing may stand yet
	Made bool
}

// ChangeOf is the change that the request of ctx asks for.
func ChangeOf(ctx context.Context, by event.Origin) Change {
	c := Change{By: by.In(ctx)}
	if r, keyed := idempotency.From(ctx); keyed {
		c.Key = &r
	}
	return c
}

// Common is the change itself, of whichever domain it is.
func (c *Change) Common() *Change { return c }

// changing is a change as its domain has it: one with a Change in it.
type changing interface {
	Common() *Change
	Subject() string // two changes of one subject are made one after the other
}

// Writes makes changes of one kind together.
type Writes[C changing] struct {
	db        *db.DB
	wake      func(guild string)
	entries   idempotency.Entries
	each      func(ctx context.Context, q db.Querier, changes []C) error
	steps     func(C) bool
	collector *collect.Collector[C]
}

// NewWrites returns the changes of an operation. each makes several, each of another
// subject, sets Made of those that are made, and leaves the others. It is a transaction
// of its own, unless steps says of one of them that it takes more than one statement.
func NewWrites[C changing](h Host, operation string, each func(context.Context, db.Querier, []C) error, steps func(C) bool) *Writes[C] {
	w := &Writes[C]{db: h.DB, wake: h.Wake, each: each, steps: steps}
	cfg := collect.Config[C]{Run: w.run, Enter: h.DB.Enter, Began: h.Began(operation), Apart: h.OneGuild, Long: steps, Waited: db.Spent}
	cfg.Late = func(own bool) error {
		if own {
			return db.ErrOwnShare
		}
		return db.ErrBusy
	}
	w.collector = collect.New(cfg)
	return w
}

// Do makes a change together with others. It is *collect.Left when the change is not
// made and its caller has to make it.
func (w *Writes[C]) Do(ctx context.Context, c C) error {
	by := c.Common().By
	err := w.collector.Do(ctx, collect.Caller{Group: by.GuildID, Name: by.ID}, c.Subject(), c)
	if err == nil {
		w.wake(by.GuildID)
	}
	return err
}

// run makes the changes of a batch. When it fails, and nothing of it is there, each is
// made alone.
func (w *Writes[C]) run(ctx context.Context, changes []C) []error {
	err := w.together(ctx, changes)
	return Each(changes, func(c C) error {
		switch {
		case db.Uncertain(err):
			return err
		case err != nil, !c.Common().Made:
			return collect.Alone
		}
		return nil
	})
}

// together leaves changes with keys as long as keys must not name what was made.
func (w *Writes[C]) together(ctx context.Context, changes []C) error {
	keyed := func(c C) bool { return c.Common().Key != nil }
	if slices.ContainsFunc(changes, keyed) {
		named, err := w.entries.Named(ctx, w.db.Single())
		if err != nil {
			return err
		}
		if !named {
			changes = slices.DeleteFunc(slices.Clone(changes), keyed)
		}
	}
	switch {
	case len(changes) == 0:
		return nil
	case !w.db.Distributed() && !slices.ContainsFunc(changes, w.steps):
		return w.each(ctx, w.db.Single(), changes)
	}
	return w.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		if w.db.Distributed() {
			if err := tx.WaitLess(ctx, patience); err != nil {
				return err
			}
		}
		for _, c := range changes { // the unit may have been run before
			c.Common().Made = false
		}
		return w.each(ctx, tx, changes)
	})
}
