package batch

import (
	"context"
	"fmt"
	"time"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/leaderboard"
)

// Change is what changes of all kinds have in common, and what has become of one.
type Change struct {
	By  event.Origin
	Key *idempotency.Request // under which nothing may stand yet

	Made    bool
	Refusal error
}

// UnderKey has the change made only if nothing stands under the key yet.
func (c *Change) UnderKey(r idempotency.Request) { c.Key = &r }

// Decided says whether the change has been made or refused.
func (c *Change) Decided() bool { return c.Made || c.Refusal != nil }

// Common is the change itself, of whichever domain it is.
func (c *Change) Common() *Change { return c }

// Decision is what a statement says of one change, beside what its domain asks for.
type Decision struct {
	Number int        `db:"number"`
	At     *time.Time `db:"at"` // of the change; nil: it was not made
}

func (d Decision) number() int { return d.Number }

// changing is a change as its domain has it: one with a Change in it.
type changing[D any] interface {
	Common() *Change
	Referenced() bool
	Judge(d D) // sets what it has come to
}

// Statement makes changes in one form.
type Statement[C any] struct {
	Changes[C]
	Text leaderboard.Noted
}

// Statements are those of one kind of change, by their form.
type Statements[C changing[D], D interface{ number() int }] map[Form]Statement[C]

// StatementsOf composes them, for changes that may have references or not.
func StatementsOf[C changing[D], D interface{ number() int }](
	referenced bool, columns func(Form) []Column[C], text func(Changes[C]) leaderboard.Noted,
) Statements[C, D] {
	return statementsOf[C, D](append(Collected(referenced), alone(referenced)...), columns, text)
}

// AloneOf composes only those for one change.
func AloneOf[C changing[D], D interface{ number() int }](
	referenced bool, columns func(Form) []Column[C], text func(Changes[C]) leaderboard.Noted,
) Statements[C, D] {
	return statementsOf[C, D](alone(referenced), columns, text)
}

func alone(referenced bool) []Form {
	return []Form{{}, {Traced: true}, {Referenced: referenced}, {Referenced: referenced, Traced: true}}
}

func statementsOf[C changing[D], D interface{ number() int }](
	forms []Form, columns func(Form) []Column[C], text func(Changes[C]) leaderboard.Noted,
) Statements[C, D] {
	all := make(Statements[C, D])
	for _, f := range forms {
		c := Changes[C]{Form: f, GuildOf: guildOf[C], Columns: columns(f)}
		all[f] = Statement[C]{c, text(c)}
	}
	return all
}

func guildOf[C changing[D], D any](c C) string { return c.Common().By.GuildID }

func traced[C changing[D], D any](c C) bool { return c.Common().By.Trace != "" }

// Each makes changes, each of another row, in one statement, and sets what has become
// of each. It leaves alone those whose row is missing or held by somebody else, and
// those under whose key something stands; they stay undecided.
func (s Statements[C, D]) Each(ctx context.Context, q db.Querier, changes []C) error {
	form := FormOf(changes, guildOf[C], func(c C) bool { return c.Common().Key != nil }, func(c C) bool { return c.Referenced() }, traced[C])
	if tx, ok := q.(*db.Tx); ok && (form.Keyed || form.Referenced) && tx.Distributed {
		if err := tx.WaitLess(ctx, Patience); err != nil {
			return err
		}
	}
	return s.run(ctx, q, form, changes)
}

// One makes one change, whatever it has to wait for, or returns its refusal.
func (s Statements[C, D]) One(ctx context.Context, tx *db.Tx, c C) error {
	if err := s.run(ctx, tx, Form{Referenced: c.Referenced(), Traced: traced(c)}, []C{c}); err != nil {
		return err
	}
	if !c.Common().Decided() {
		return db.Again
	}
	return c.Common().Refusal
}

func (s Statements[C, D]) run(ctx context.Context, q db.Querier, form Form, changes []C) error {
	for _, c := range changes { // the unit may have been run before
		c.Common().Made, c.Common().Refusal = false, nil
	}
	var decisions []D
	if err := q.SelectContext(ctx, &decisions, s[form].Text.For(len(changes)), s[form].Arguments(changes)...); err != nil {
		return fmt.Errorf("make %d changes of members: %w", len(changes), err)
	}
	for _, d := range decisions {
		changes[d.number()-1].Judge(d)
	}
	return nil
}
