package batch

import (
	"cmp"
	"context"
	"slices"
	"time"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/collect"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/event"
)

// mostWait is how long a change waits for the batches before it, with all that its request
// has waited so far.
const mostWait = 2 * time.Second

// Change is what changes of all kinds have in common.
type Change struct {
	By   event.Origin
	Key  *idempotency.Request // under which nothing may stand yet
	Made bool
}

// ChangeOf is one that the request of ctx asks for.
func ChangeOf(ctx context.Context, by event.Origin) Change {
	return Change{By: by.In(ctx), Key: idempotency.From(ctx)}
}

// Common is the change itself, of whichever domain it is.
func (c *Change) Common() *Change { return c }

// changing is a change as its domain has it: one with a Change in it.
type changing interface {
	Common() *Change
	Member() string // changes of one member are made one after the other
}

func subject(c changing) string { return c.Common().By.GuildID + "/" + c.Member() }

// Row is what a statement says of a change that it has made: the place of the change
// among its parameters, from 1.
type Row struct {
	Number int `db:"number"`
}

func (r Row) place() int { return r.Number }

// Make runs a statement of changes, in the order in which their rows are locked everywhere.
// Its first parameters are Columns, those after them further's. made notes what it says of one.
func Make[C changing, R interface{ place() int }](ctx context.Context, q db.Querier, statement func(rows int) string, changes []C,
	further func([]C) []any, made func(C, R),
) error {
	sorted := slices.SortedFunc(slices.Values(changes), func(a, b C) int {
		return cmp.Or(cmp.Compare(a.Common().By.GuildID, b.Common().By.GuildID), cmp.Compare(a.Member(), b.Member()))
	})
	rows, err := db.Select[R](ctx, q, statement(len(sorted)), append(Columns(sorted), further(sorted)...)...)
	for _, row := range rows {
		c := sorted[row.place()-1]
		c.Common().Made = true
		made(c, row)
	}
	return fault.Wrap(err, "make changes together")
}

// Guild is where $9 stands in the text of such a statement, about a row of moved.
const Guild = "moved.guild_id /*: $9 */"

// Columns are what a statement needs of changes of any kind, as arrays: guild, member and
// origin of each, and token, key and fingerprint of its request, null where it has no key;
// id and trace of an event; and the guild, where it is one. The statement writes the keys
// of what it makes. It makes nothing where something stands under the key: Claim has to
// find it, whatever it is. Two that race for a key fail on it.
func Columns[C changing](changes []C) []any {
	texts := func(of func(C) string) any { return db.Array(Each(changes, of)) }
	tokens, keys, fingerprints := make([]*string, len(changes)), make([]*string, len(changes)), make([][]byte, len(changes))
	for i, c := range changes {
		if r := c.Common().Key; r != nil {
			tokens[i], keys[i], fingerprints[i] = &r.TokenID, &r.Key, r.Fingerprint
		}
	}
	return []any{
		texts(func(c C) string { return c.Common().By.GuildID }), texts(C.Member), texts(func(c C) string { return c.Common().By.JSON() }),
		db.Texts(tokens), db.Texts(keys), db.ByteArray(fingerprints),
		texts(func(C) string { return db.NewID() }), texts(func(c C) string { return c.Common().By.Trace }), changes[0].Common().By.GuildID,
	}
}

// Writes makes changes of one kind together.
type Writes[C changing] struct {
	Host
	together  func(ctx context.Context, q db.Querier, changes []C) error
	inUnit    InUnit[C]
	collector *collect.Collector[C]
}

// moment is about what callers on one machine need to come again after an answer. With it
// eight connections make a seventh more changes, each for a quarter less of Postgres' CPU.
const moment = time.Millisecond

// InUnit makes changes of one guild in a unit and in their order, whatever they have to
// wait for. refused says of which one a refusal is.
type InUnit[C changing] func(ctx context.Context, tx *db.Tx, changes []C, refused func(i int, err error) error) error

// NewWrites returns the changes of an operation. together is a transaction that makes several,
// each of another member, sets Made of those that it makes and leaves the others.
func NewWrites[C changing](h Host, operation string, together func(context.Context, db.Querier, []C) error, inUnit InUnit[C]) *Writes[C] {
	w := &Writes[C]{Host: h, together: together, inUnit: inUnit}
	w.collector = collect.New(collect.Config[C]{
		Run: w.run, Made: func(c C) bool { return c.Common().Made },
		Enter: h.DB.Enter, Began: h.Began(operation), Apart: h.OneGuild, Moment: moment,
		Wait:     func(ctx context.Context) time.Duration { return mostWait - db.Spent(ctx) },
		OwnShare: db.ErrOwnShare, Busy: db.ErrBusy,
	})
	return w
}

// Do makes a change together with others. It is *collect.Left when the change is not
// made and its caller has to make it, in a unit. There Do makes it alone, or returns its
// refusal.
func (w *Writes[C]) Do(ctx context.Context, c C) error {
	if tx := db.Unit(ctx); tx != nil {
		return w.inUnit(ctx, tx, []C{c}, func(_ int, err error) error { return err })
	}
	by := c.Common().By
	err := w.collector.Do(ctx, collect.Caller{Group: by.GuildID, Name: by.ID}, subject(c), c)
	if err == nil {
		w.Wake(by.GuildID)
	}
	return err
}

// run makes the changes of a batch. When it fails, and nothing of it is there, each is
// made alone.
func (w *Writes[C]) run(ctx context.Context, changes []C) error {
	err := w.make(ctx, changes)
	if err != nil && !db.Uncertain(err) {
		return collect.Alone
	}
	return err
}

func (w *Writes[C]) make(ctx context.Context, changes []C) error {
	if !w.DB.Distributed() {
		return w.together(ctx, w.DB.Single(), changes)
	}
	return w.DB.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := tx.WaitLess(ctx, 10*time.Millisecond); err != nil { // a statement's own limit does not reach a coordinator's workers
			return err
		}
		for _, c := range changes { // the unit may have been run before
			c.Common().Made = false
		}
		return w.together(ctx, tx, changes)
	})
}
