package batch

import (
	"cmp"
	"context"
	"slices"
	"time"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/batcher"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/event"
)

// writeTimeout is how long a change waits for its batch to start, including what its request
// has waited before.
const writeTimeout = 2 * time.Second

// Change is the common part of the changes of all operations.
type Change struct {
	By      event.Origin
	Key     *idempotency.Request // the request's key, which has no response yet
	Other   string               // the other member that the change concerns; empty: none
	Applied bool                 // a batch has made the change
}

// ChangeOf returns the common part of a change that the request of ctx asks for.
func ChangeOf(ctx context.Context, by event.Origin) Change {
	return Change{By: by.In(ctx), Key: idempotency.From(ctx)}
}

// Common returns the common part of a domain's change.
func (c *Change) Common() *Change { return c }

// changing is a change of a domain, which embeds Change.
type changing interface {
	Common() *Change
	Member() string // changes of one member run one after the other
}

// subjects names the members that a change concerns.
func subjects(c changing) []string {
	guild, other := c.Common().By.GuildID, c.Common().Other
	if other == "" {
		return []string{guild + "/" + c.Member()}
	}
	return []string{guild + "/" + c.Member(), guild + "/" + other}
}

// Row is the part of a statement's result that names an applied change: its position among
// the parameters, from 1.
type Row struct {
	Number int `db:"number"`
}

func (r Row) position() int { return r.Number }

// Make runs a statement that makes changes. The changes are sorted by guild and member, the
// order in which every statement locks rows. The statement's first parameters are Columns,
// followed by those of further. Make marks the changes of the returned rows as applied, and
// calls result for each.
func Make[C changing, R interface{ position() int }](ctx context.Context, q db.Querier, statement func(rows int) string, changes []C,
	further func([]C) []any, result func(C, R),
) error {
	sorted := slices.SortedFunc(slices.Values(changes), func(a, b C) int {
		return cmp.Or(cmp.Compare(a.Common().By.GuildID, b.Common().By.GuildID), cmp.Compare(a.Member(), b.Member()))
	})
	rows, err := db.Select[R](ctx, q, statement(len(sorted)), append(Columns(sorted), further(sorted)...)...)
	for _, row := range rows {
		c := sorted[row.position()-1]
		c.Common().Applied = true
		result(c, row)
	}
	return fault.Wrap(err, "make a batch of changes")
}

// Guild is the guild of a row of step moved in the text of a batch statement; on a
// coordinator, where a batch holds one guild's changes, parameter $9.
const Guild = "moved.guild_id /*: $9 */"

// Columns returns the common parameters of a batch statement, as arrays: guild, member and
// origin of each change; token, key and fingerprint of its request, null without a key; id
// and trace of its event; and last the guild of a batch of one guild. The statement also adds
// the rows of the keys. It skips a change whose key has a row already: idempotency.Claim has
// to answer that change. If two changes race for a key, the statement fails.
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

// Writes makes the changes of one operation in batches.
type Writes[C changing] struct {
	Host
	batched func(ctx context.Context, q db.Querier, changes []C) error
	inUnit  InUnit[C]
	batches *batcher.Batcher[C]
}

// window is about the time that a caller on the same machine needs to send its next request
// after a response. With this window eight connections make a seventh more changes, each for a
// quarter less of Postgres' CPU.
const window = time.Millisecond

// InUnit makes changes of one guild in a unit, in their order, and waits for whatever locks
// they need. It passes a refusal through refused, with the index of the refused change.
type InUnit[C changing] func(ctx context.Context, tx *db.Tx, changes []C, refused func(i int, err error) error) error

// NewWrites returns the Writes of an operation. batched makes several changes, which have no
// member in common, in one transaction, and sets Applied of each change that is made; a change
// without Applied falls back.
func NewWrites[C changing](h Host, operation string, batched func(context.Context, db.Querier, []C) error, inUnit InUnit[C]) *Writes[C] {
	w := &Writes[C]{Host: h, batched: batched, inUnit: inUnit}
	w.batches = batcher.New(batcher.Config[C]{
		Run: w.run, Applied: func(c C) bool { return c.Common().Applied },
		Acquire: h.DB.Enter, Started: h.Started(operation), PerGroup: h.OneGuild, Window: window,
		Timeout:  func(ctx context.Context) time.Duration { return writeTimeout - db.Spent(ctx) },
		OwnShare: db.ErrOwnShare, Busy: db.ErrBusy,
	})
	return w
}

// Do makes a change in a batch. It returns a *batcher.Fallback when the batch has not made
// the change: the caller then calls Do again in a unit, where Do makes the change by itself or
// returns its refusal.
func (w *Writes[C]) Do(ctx context.Context, c C) error {
	if tx := db.Unit(ctx); tx != nil {
		return w.inUnit(ctx, tx, []C{c}, func(_ int, err error) error { return err })
	}
	by := c.Common().By
	err := w.batches.Do(ctx, batcher.Caller{Group: by.GuildID, Name: by.ID}, c, subjects(c)...)
	if err == nil {
		w.Wake(by.GuildID)
	}
	return err
}

// run makes a batch of changes. If the batch fails and was certainly rolled back, each change
// falls back.
func (w *Writes[C]) run(ctx context.Context, changes []C) error {
	err := w.make(ctx, changes)
	if err != nil && !db.Uncertain(err) {
		return batcher.ErrFallback
	}
	return err
}

// make runs batched in a transaction; on a coordinator in a unit, which may be repeated.
func (w *Writes[C]) make(ctx context.Context, changes []C) error {
	if !w.DB.Distributed() {
		return w.batched(ctx, w.DB.Single(), changes)
	}
	return w.DB.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := tx.WaitLess(ctx, 10*time.Millisecond); err != nil { // a statement's own lock timeout does not reach a coordinator's workers
			return err
		}
		for _, c := range changes { // an earlier run of the unit may have been rolled back
			c.Common().Applied = false
		}
		return w.batched(ctx, tx, changes)
	})
}
