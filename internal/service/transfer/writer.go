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

// Writer is how records make and change the rows of a kind. See the package comment.
type Writer[R any] struct {
	Schema string // the schema of such a record: only what names the thing is required

	// Key names the row within its guild, by what a record says; empty: it is new.
	Key func(r *R) string
	// Note tells the call, before any record is written, what other kinds have to know of
	// a record, by Noted; may be nil.
	Note func(c *Call, r *R)
	// Hold locks the rows that are there, in the order of their keys, and sets Was of
	// each; and Err of those of which something else is missing. Held makes one of a
	// statement.
	Hold func(ctx context.Context, tx *db.Tx, c *Call, rows []*Row[R]) error
	// Revise completes Is, takes back what records do not change, and says what no
	// schema can: Wrong for a state that cannot be, Broken for what breaks the
	// contract whatever stands there, a fault where it has a code of its own.
	Revise func(c *Call, row *Row[R]) error
	// Shown is what an answer shows of a row.
	Shown func(r *R) Shown
	// Points are what a leaderboard has of a row: one that is there is changed with
	// if_updated_at alone, or as an import has been told. nil: it has none.
	Points func(r *R) *int64

	// Counted rows get the guild's next number where they have none; nil: they have no
	// numbers.
	Counted *Counted[R]

	// Store writes rows that are made (Was is nil) or changed, in one statement, with At
	// in the place of updated_at, which rows of a kind with Settle bear already. It returns db.Again where a row has come meanwhile. It
	// may still set a row's Err before it writes any.
	Store func(ctx context.Context, tx *db.Tx, c *Call, rows []*Row[R]) error
	// Heard is told of the rows whose records are not refused, those that stay as they are
	// too, once the others are stored; may be nil.
	Heard func(ctx context.Context, tx *db.Tx, c *Call, rows []*Row[R]) error
	// Tell records the events of what was stored, once all kinds are; may be nil.
	Tell func(ctx context.Context, tx *db.Tx, c *Call, rows []*Row[R]) error
	// Finish is done once for each guild in which an import has made or changed rows, when
	// all are in; may be nil.
	Finish func(ctx context.Context, tx *db.Tx, guild string) error
}

// ErrNothing is what Revise says of a record that takes away what is not there.
var ErrNothing = errors.New("there is nothing to take away")

// Call is what records are written in: an operation, or a batch of an import.
type Call struct {
	By   auth.By
	Now  time.Time // the transaction's
	Tell bool      // events are told

	// Dated later, rows bear Pending; see Column.
	DatedLater bool
	// Balances is what an import does with points that are there; empty outside of one.
	Balances Balances
	// Look has nothing locked and nothing written. Named is then what records of a file
	// name so far: they would make what is not there.
	Look  bool
	Named map[Ref]bool
	// Stood is what stood in the batches of the file before; nil outside of an import.
	Stood *Stood

	// Noted is what one kind has to know of what the call has for another.
	Noted map[Ref]bool

	// Touched is when rows of one kind have last changed by records of another.
	Touched map[Ref]wire.Time

	counters counters
}

// Touches notes that a row has changed by a record of another kind.
func (c *Call) Touches(r Ref, at wire.Time) {
	if c.Touched == nil {
		c.Touched = make(map[Ref]wire.Time)
	}
	c.Touched[r] = at
}

// Knows notes something.
func (c *Call) Knows(r Ref) {
	if c.Noted == nil {
		c.Noted = make(map[Ref]bool)
	}
	c.Noted[r] = true
}

// Balances is what an import does with the points of what is there.
type Balances string

// An import does one of these with them.
const (
	Keep   Balances = "keep"
	Set    Balances = "set"
	Higher Balances = "higher"
	Add    Balances = "add"
)

// Row is one row that a record makes or changes.
type Row[R any] struct {
	Was *R        // as it stands; nil: it is not there
	Is  R         // as the record has it; until it is judged, only what the record says
	At  wire.Time // of the change, later than that of the change before
	Err error     // why the record is refused

	record *Record
	named  string // the id that the record says; empty: none
	stored bool
	kept   bool
}

// Gives reports whether the row's record has one of the members.
func (r *Row[R]) Gives(members ...string) bool {
	return slices.ContainsFunc(members, func(name string) bool {
		_, given := r.record.Members[name]
		return given
	})
}

// Shown is what an answer shows of a row.
type Shown struct {
	ID        string
	Number    *int64
	UpdatedAt *wire.Time // nil: it shows none
}

// Record is one record of a call, and what has become of it.
type Record struct {
	Text    []byte         // a JSON object that has been held against the schema
	Members map[string]any // of it; where they are nil, Add reads them

	// Result is empty until the record is written; Err says why it is refused.
	Result string
	Err    error
	Shown
}

// A record ends as one of these.
const (
	Created   = "created"
	Updated   = "updated"
	Unchanged = "unchanged"
	Kept      = "kept" // by an import that leaves points as they are
	RefusedIs = "refused"
)

// Batch is the records of one kind that are written together.
type Batch interface {
	Name() string
	// Check holds the value of a record against the schema of its kind.
	Check(value any) []schema.Problem
	// Add takes a record. A thing stands once in a call and in a file: again is then true.
	Add(c *Call, r *Record) (again bool, err error)
	// Counts reports whether rows of the kind have numbers, and MayCount whether some may
	// be made.
	Counts() bool
	MayCount(ctx context.Context, tx *db.Tx, c *Call) (bool, error)
	// Write makes and changes rows; Tell records the events, once all kinds are written.
	Write(ctx context.Context, tx *db.Tx, c *Call) error
	Tell(ctx context.Context, tx *db.Tx, c *Call) error
}

// NewBatch returns an empty batch of the kind.
func NewBatch[R any](k Kind[R]) Batch {
	b := &batch[R]{Writer: k.Writer, kind: k, named: make(map[string]bool), check: contract.Checker(k.Writer.Schema)}
	for _, name := range contract.Required(k.Schema) {
		if name != "record" && name != "guild_id" && k.Guild != nil { // a guild is the call's
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
	again = key != "" && (b.named[key] || c.Stood.Already(Ref{b.kind.Name, c.By.GuildID, key}))
	b.named[key] = true
	b.rows = append(b.rows, row)
	if b.Note != nil {
		b.Note(c, &row.Is)
	}
	if c.Look && b.kind.Defines != nil {
		c.Named[b.kind.Defines(&row.Is)] = true
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
	hold.Look = c.Look || b.Points != nil && c.Balances == Keep // kept rows are not locked
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
	if settle := b.kind.Settle; settle != nil {
		for _, row := range rows {
			settle(&row.Is, row.At)
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

// date gives rows the instant of their change.
func (b *batch[R]) date(ctx context.Context, tx *db.Tx, c *Call, rows []*Row[R]) error {
	if c.DatedLater {
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

func (b *batch[R]) Tell(ctx context.Context, tx *db.Tx, c *Call) error {
	if b.Writer.Tell == nil {
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
	return b.Writer.Tell(ctx, tx, c, stored)
}

// accepted are the rows that are not refused.
func accepted[R any](rows []*Row[R]) (list []*Row[R]) {
	for _, row := range rows {
		if row.Err == nil {
			list = append(list, row)
		}
	}
	return list
}

// Held is a Hold by a statement that reads the rows of the guild $1 with the keys $2
// in their order. They are locked, unless the call only looks.
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

// Stored returns, by their keys, rows that were stored as they are now. The statement is
// that of Held.
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

// WrongError is what is wrong with a member of a record.
type WrongError struct {
	Member, Text string
	Broken       bool // it breaks the contract, whatever stands there
}

func (e *WrongError) Error() string { return strings.TrimSpace(e.Member + " " + e.Text) }

// Wrong says what is wrong with a member, as things stand.
func Wrong(member, format string, args ...any) error {
	return &WrongError{Member: member, Text: fmt.Sprintf(format, args...)}
}

// Broken says how a member breaks the contract where its schema cannot say it.
func Broken(member, format string, args ...any) error {
	return &WrongError{Member: member, Text: fmt.Sprintf(format, args...), Broken: true}
}

// Fault is why a record is refused, as its caller is told; place is where it stands.
// An error that is no refusal comes back as it is.
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
