package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/schema"
	"guildhall/internal/base/wire"
	"guildhall/internal/contract"
)

// Writer says how records create and change the rows of a kind. See the package comment.
type Writer[R any] struct {
	Schema string // the schema of such a record, which requires only the members that identify the thing

	// Key returns the row's key within its guild, from the record's members; empty: the row is new.
	Key func(r *R) string
	// Note is called for each record before any is written, and lets other kinds look up, by Knows, what
	// they have to know of the record; may be nil.
	Note func(c *Call, r *R)
	// Hold locks the stored rows in the order of their keys and sets Was of each. It sets Err if
	// something else that the row needs is missing. Held makes a Hold from a statement.
	Hold func(ctx context.Context, tx *db.Tx, c *Call, rows []*Row[R]) error
	// Revise completes Is, restores what records do not change, and returns an error for what the
	// schema cannot express: Wrong for a state that is not allowed now, Broken for a violation of
	// the contract in any state, or a fault with a code of its own.
	Revise func(c *Call, row *Row[R]) error
	// Shown returns what a response shows of a row.
	Shown func(r *R) Shown
	// Points returns the leaderboard points of a row. A stored row's points change only with
	// if_updated_at, or by the --balances flag of an import. nil: the kind has no points.
	Points func(r *R) *int64

	// Counted says how rows get numbers; nil: they have none.
	Counted *Counted[R]

	// Store inserts new rows (Was is nil) and updates changed ones in one statement. It stores At
	// as updated_at, unless the kind has SetInstant, which has set the column. It returns db.Again if a
	// row was inserted concurrently. Before it writes, it may still set a row's Err.
	Store func(ctx context.Context, tx *db.Tx, c *Call, rows []*Row[R]) error
	// Heard is called with the rows whose records were not refused, including unchanged ones, after
	// the others are stored; may be nil.
	Heard func(ctx context.Context, tx *db.Tx, c *Call, rows []*Row[R]) error
	// Emit records the events of the stored rows, after all kinds are stored; may be nil.
	Emit func(ctx context.Context, tx *db.Tx, c *Call, rows []*Row[R]) error
	// Finish is called at the end of an import, once for each guild in which it has created or
	// changed rows; may be nil.
	Finish func(ctx context.Context, tx *db.Tx, guild string) error
}

// ErrNothing is returned by Revise for a record that removes something which does not exist.
var ErrNothing = errors.New("there is nothing to take away")

// Call is the context in which records are written: an operation, or a batch of an import.
type Call struct {
	By   auth.By
	Now  time.Time // the transaction's time
	Emit bool      // record events

	// Look makes the call a dry run: nothing is locked or written.
	Look bool
	// Import is the import to which the call belongs; nil for an operation. Its rows get Pending
	// as their instant; see Column.
	Import *Import

	// Noted holds what the records of one kind have noted for other kinds.
	Noted map[Ref]bool

	// Touched is when records of one kind have last changed rows of another kind.
	Touched map[Ref]wire.Time

	counters counters
}

// Import is what a Call of an import knows besides its records.
type Import struct {
	Balances Balances     // what happens to the balances and the XP in the database
	Stood    *Stood       // what earlier batches of the file have named
	Named    map[Ref]bool // in a dry run, what the file has named so far, and an import would have created
}

// Expects reports whether a dry run of an import has met the record that creates the thing.
func (c *Call) Expects(r Ref) bool { return c.Import != nil && c.Import.Named[r] }

// Touches records that a row was changed by a record of another kind.
func (c *Call) Touches(r Ref, at wire.Time) {
	if c.Touched == nil {
		c.Touched = make(map[Ref]wire.Time)
	}
	c.Touched[r] = at
}

// Knows adds to Noted.
func (c *Call) Knows(r Ref) {
	if c.Noted == nil {
		c.Noted = make(map[Ref]bool)
	}
	c.Noted[r] = true
}

// Balances says what an import does with the points of stored rows.
type Balances string

// The values of --balances.
const (
	Keep   Balances = "keep"
	Set    Balances = "set"
	Higher Balances = "higher"
	Add    Balances = "add"
)

// Row is a row that a record creates or changes.
type Row[R any] struct {
	Was *R        // the stored row; nil: there is none
	Is  R         // the resulting row; before judge, only what the record contains
	At  wire.Time // the instant of the change, later than that of the previous change
	Err error     // why the record is refused
	// Ignored is set by Hold for a record that must not change anything, and is no failure.
	Ignored bool

	record *Record
	named  string // the id in the record; empty: none
	stored bool
	kept   bool
}

// Gives reports whether the row's record contains one of the members.
func (r *Row[R]) Gives(members ...string) bool {
	return slices.ContainsFunc(members, func(name string) bool {
		_, given := r.record.Members[name]
		return given
	})
}

// Text returns a member of the record that no column holds; nil if it gives none.
func (r *Row[R]) Text(name string) *string {
	text, given := r.record.Members[name].(string)
	if !given {
		return nil
	}
	return &text
}

// Shown is what a response shows of a row.
type Shown struct {
	ID        string
	Number    *int64
	UpdatedAt *wire.Time // nil: the kind shows none
}

// Record is one record of a call, with its result.
type Record struct {
	Text    []byte         // a JSON object that was checked against the schema
	Members map[string]any // the record's JSON members; nil: Add decodes the record itself

	// Result is empty until the record is written; Err says why it was refused.
	Result string
	Err    error
	Shown
}

// The results of a record.
const (
	Created   = "created"
	Updated   = "updated"
	Unchanged = "unchanged"
	Kept      = "kept" // an import left the stored points unchanged
	RefusedIs = "refused"
)

// Batch holds the records of one kind that are written together.
type Batch interface {
	Name() string
	// Check checks the value of a record against the schema of its kind.
	Check(value any) []schema.Problem
	// Add adds a record. again is true if the call or the file already contains a record of the
	// same thing.
	Add(c *Call, r *Record) (again bool, err error)
	// Counts reports whether rows of the kind have numbers, and MayCount whether the batch may
	// create such rows.
	Counts() bool
	MayCount(ctx context.Context, tx *db.Tx, c *Call) (bool, error)
	// Write creates and changes rows; Emit records the events after all kinds are written.
	Write(ctx context.Context, tx *db.Tx, c *Call) error
	Emit(ctx context.Context, tx *db.Tx, c *Call) error
}

// NewBatch returns an empty batch of the kind.
func NewBatch[R any](k Kind[R]) Batch {
	b := &batch[R]{Writer: k.Writer, kind: k, named: make(map[string]bool), check: contract.Checker(k.Writer.Schema)}
	for _, name := range contract.Required(k.Schema) {
		if name != "record" && name != "guild_id" && k.Guild != nil { // the guild is that of the call
			b.needed = append(b.needed, name)
		}
	}
	return b
}

type batch[R any] struct {
	*Writer[R]
	kind   Kind[R]
	check  func(value any, found []schema.Problem) []schema.Problem
	needed []string // members that a new row needs
	rows   []*Row[R]
	named  map[string]bool
}

func (b *batch[R]) Name() string { return b.kind.Name }

func (b *batch[R]) Check(value any) []schema.Problem {
	found := b.check(value, nil)
	if members, ok := value.(map[string]any); ok && b.Shown(new(R)).UpdatedAt == nil && members["if_updated_at"] != nil {
		found = append(found, schema.Problem{Place: "/if_updated_at", Text: "must be null: a " + b.kind.Name + " shows no updated_at"})
	}
	return found
}

func (b *batch[R]) Add(c *Call, r *Record) (again bool, err error) {
	row := &Row[R]{record: r}
	err = json.Unmarshal(r.Text, &row.Is)
	if err == nil && r.Members == nil {
		err = json.Unmarshal(r.Text, &r.Members)
	}
	if err != nil {
		return false, fault.Wrap(err, "read a record that has been checked")
	}
	row.named = b.Shown(&row.Is).ID
	key := b.Key(&row.Is)
	again = key != "" && (b.named[key] || c.Import != nil && c.Import.Stood.Already(Ref{b.kind.Name, c.By.GuildID, key}))
	b.named[key] = true
	b.rows = append(b.rows, row)
	if b.Note != nil {
		b.Note(c, &row.Is)
	}
	if c.Look && b.kind.Defines != nil {
		c.Import.Named[b.kind.Defines(&row.Is)] = true
	}
	return again, nil
}

func (b *batch[R]) Counts() bool { return b.Counted != nil }

func (b *batch[R]) MayCount(ctx context.Context, tx *db.Tx, c *Call) (bool, error) {
	if b.Counted == nil || len(b.rows) == 0 {
		return false, nil
	}
	var ids, guilds []string
	for _, row := range b.rows {
		key := b.Key(&row.Is)
		if key == "" {
			return true, nil
		}
		ids, guilds = append(ids, key), append(guilds, c.By.GuildID)
	}
	found, err := db.Select[struct{ Guild, ID string }](ctx, tx, b.kind.Find, db.Array(guilds), db.Array(ids))
	return len(found) < len(ids), fault.Wrap(err, "look for each", b.kind.Name, "of guild", c.By.GuildID)
}

func (b *batch[R]) Write(ctx context.Context, tx *db.Tx, c *Call) error {
	if len(b.rows) == 0 {
		return nil
	}
	hold := *c
	hold.Look = c.Look || b.Points != nil && c.Import != nil && c.Import.Balances == Keep // rows that stay unchanged are not locked
	if err := b.Hold(ctx, tx, &hold, b.rows); err != nil {
		return err
	}
	var changed []*Row[R]
	for _, row := range b.rows {
		same := false
		if row.Err == nil {
			same, row.Err = b.judge(c, row)
		}
		if row.Err == nil && !same {
			changed = append(changed, row)
		}
	}
	if err := b.store(ctx, tx, c, changed); err != nil {
		return err
	}
	for _, row := range b.rows {
		b.result(row)
	}
	if heard := accepted(b.rows); b.Heard != nil && !c.Look && len(heard) > 0 {
		return b.Heard(ctx, tx, c, heard)
	}
	return nil
}

func (b *batch[R]) store(ctx context.Context, tx *db.Tx, c *Call, rows []*Row[R]) error {
	if b.Counted != nil {
		if err := b.Counted.judge(ctx, tx, c, rows); err != nil {
			return err
		}
		rows = accepted(rows)
	}
	if c.Look {
		for _, row := range rows {
			row.stored = true
		}
		return nil
	}
	if len(rows) == 0 {
		return nil
	}
	if err := b.date(ctx, tx, c, rows); err != nil {
		return err
	}
	if b.Counted != nil {
		b.Counted.number(c, rows)
	}
	if set := b.kind.SetInstant; set != nil {
		for _, row := range rows {
			set(&row.Is, row.At)
		}
	}
	if err := b.Store(ctx, tx, c, rows); err != nil {
		return err
	}
	for _, row := range rows {
		row.stored = row.Err == nil
	}
	return nil
}

// date sets the instant of the change of rows.
func (b *batch[R]) date(ctx context.Context, tx *db.Tx, c *Call, rows []*Row[R]) error {
	if c.Import != nil {
		for _, row := range rows {
			row.At = Pending
		}
		return nil
	}
	at, err := db.Get[time.Time](ctx, tx, `SELECT clock_timestamp()`)
	if err != nil {
		return fault.Wrap(err, "ask when records of guild", c.By.GuildID, "are written")
	}
	for _, row := range rows {
		row.At = wire.At(at)
		if row.Was == nil {
			continue
		}
		if was := b.Shown(row.Was).UpdatedAt; was != nil && !row.At.Time.After(was.Time.Add(time.Millisecond)) {
			row.At = wire.Bounded(was.Time.Add(time.Millisecond))
		}
	}
	return nil
}

func (b *batch[R]) Emit(ctx context.Context, tx *db.Tx, c *Call) error {
	if b.Writer.Emit == nil {
		return nil
	}
	var stored []*Row[R]
	for _, row := range b.rows {
		if row.stored {
			stored = append(stored, row)
		}
	}
	if len(stored) == 0 {
		return nil
	}
	return b.Writer.Emit(ctx, tx, c, stored)
}

// accepted returns the rows that are not refused.
func accepted[R any](rows []*Row[R]) (list []*Row[R]) {
	for _, row := range rows {
		if row.Err == nil {
			list = append(list, row)
		}
	}
	return list
}

// Held returns a Hold that runs a statement which selects the rows of guild $1 with the keys $2 in
// their order. It locks the rows, except in a dry run.
func Held[R any](key func(r *R) string, statement string) func(ctx context.Context, tx *db.Tx, c *Call, rows []*Row[R]) error {
	return func(ctx context.Context, tx *db.Tx, c *Call, rows []*Row[R]) error {
		var keys []string
		for _, row := range rows {
			if k := key(&row.Is); k != "" {
				keys = append(keys, k)
			}
		}
		if len(keys) == 0 {
			return nil
		}
		query := statement
		if !c.Look {
			query += locked
		}
		there, err := byKey(ctx, tx, c, keys, key, query)
		if err != nil {
			return fault.Wrap(err, "hold what records of guild", c.By.GuildID, "name")
		}
		for _, row := range rows {
			row.Was = there[key(&row.Is)]
		}
		return nil
	}
}

// Stored returns stored rows in their present state by their keys. The statement is that of Held.
func Stored[R any](ctx context.Context, tx *db.Tx, c *Call, rows []*Row[R], key func(r *R) string, statement string) (map[string]*R, error) {
	keys := make([]string, len(rows))
	for i, row := range rows {
		keys[i] = key(&row.Is)
	}
	return byKey(ctx, tx, c, keys, key, statement)
}

func byKey[R any](ctx context.Context, tx *db.Tx, c *Call, keys []string, key func(r *R) string, query string) (map[string]*R, error) {
	list, err := db.Select[R](ctx, tx, query, c.By.GuildID, db.Array(keys))
	found := make(map[string]*R, len(list))
	for i := range list {
		found[key(&list[i])] = &list[i]
	}
	return found, err
}

const locked = `
		FOR NO KEY UPDATE`

// WrongError says what is wrong with a member of a record.
type WrongError struct {
	Member, Text string
	Broken       bool // violates the contract, whatever is stored
}

func (e *WrongError) Error() string { return strings.TrimSpace(e.Member + " " + e.Text) }

// Wrong returns an error for a member that is not allowed in the present state.
func Wrong(member, format string, args ...any) error {
	return &WrongError{Member: member, Text: fmt.Sprintf(format, args...)}
}

// Broken returns an error for a member that violates the contract in a way that its schema cannot
// express.
func Broken(member, format string, args ...any) error {
	return &WrongError{Member: member, Text: fmt.Sprintf(format, args...), Broken: true}
}

// Fault turns a refusal into the fault to show; place is where the record stands. It returns any
// other error unchanged.
func Fault(err error, place string) error {
	if wrong, ok := errors.AsType[*WrongError](err); ok {
		if wrong.Member != "" {
			place += "/" + strings.ReplaceAll(wrong.Member, ".", "/")
		}
		if wrong.Broken {
			return fault.New(fault.Invalid, "invalid_request", "%s: %s", place, wrong.Text)
		}
		return fault.New(fault.Refused, "record_refused", "%s: %s", place, wrong.Text)
	}
	if f, ok := fault.As(err); ok {
		return f.With("%s: %s", place, f.Message)
	}
	return err
}
