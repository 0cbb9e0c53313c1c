// Package transfer defines how the rows of a domain are written as records and read from them: what
// a record looks like, when a row is valid, how many rows are written together, and how a guild's
// rows are exported. It contains no domain. Kind describes rows that are imported and exported
// whole, in guild files; its Writer describes records that create or change a row.
//
// # Records that create or change a row
//
// A Batch holds the records of one kind that are written together. Its Write locks the stored rows,
// decodes each record into a copy of its row (an absent member stays, null clears a pointer),
// checks the result, compares what records of the two rows would show, and stores the rows that
// differ. Then Emit records the events. A refused record does not affect the others; the caller
// decides whether the call continues.
//
// A domain adds a kind in its record.go, with the Writer of its Kind:
//
//   - Schema names the schema of the record (RecordCase), which requires only the members that
//     identify the thing. A new row also needs the members that the kind's own schema
//     (GuildFileCase) requires. Defaults of new rows come from the kind's New.
//   - Key, Hold (mostly Held, with a statement that locks by key), Revise, Shown, Store, and Emit
//     if there are events. Revise restores what a record never changes: updated_at, and for a
//     stored row created_at and source.
//   - Counted if rows have numbers; then the kind's Find is needed too.
//
// Then the kind gets its line in package records, in the order of its locks.
package transfer

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/wire"
)

// Kind is one kind of record. R is the stored row: its db tags are the columns, its json tags the
// members of the schema.
type Kind[R any] struct {
	Name     string // the value of a record's member `record`
	Schema   string // the schema of a record
	Table    string
	Columns  string            // the columns that a record fills, as in a SELECT
	Refusals map[string]string // error messages for records that violate a constraint, by the constraint's name
	Order    string            // ORDER BY of an export
	Export   string            // the SELECT for an export of guild $1, if it is not simply the columns

	// Guild returns the row's guild; nil: rows belong to no guild.
	Guild func(r *R) string
	// Needs returns what must exist before the row, besides its guild; may be nil.
	Needs func(r *R) []Ref
	// Defines returns what others may need, and Find is the statement that looks it up: guilds and
	// ids in, guild and id out. A kind has both or neither, except guilds, which are locked
	// instead.
	Defines func(r *R) Ref
	Find    string

	// New returns a row with the values of members that a record leaves out.
	New func(now time.Time) R
	// Complete sets what follows from other members, and returns an error for what the schema
	// cannot express; may be nil.
	Complete func(r *R, now time.Time) error

	// Dated lists the columns that contain Pending until the whole import is done.
	Dated []Column
	// SetInstant sets the instant of a row's change. An import calls it at once only if it creates the
	// guild too: nobody has a copy of that guild yet, and dating a million rows afterwards takes as
	// long as storing them. May be nil.
	SetInstant func(r *R, at wire.Time)

	// Before and After are called in the transaction of Load, before and after the rows are stored,
	// and Finish once for each guild when the import is done. All may be nil.
	Before, After func(ctx context.Context, tx *db.Tx, rows []R) error
	Finish        func(ctx context.Context, tx *db.Tx, guild string) error

	// Writer says how single records create and change rows; nil: they cannot. Fixed says how an
	// updating import treats the rows of a kind without a Writer.
	Writer *Writer[R]
	Fixed  *Fixed[R]
}

// Ref identifies a thing that a record may need.
type Ref struct{ Kind, Guild, ID string }

// Refused says what is wrong with one of the rows of Load.
type Refused struct {
	Row    int
	Reason string
}

func (e *Refused) Error() string { return e.Reason }

// Read decodes a record that was checked against the schema into a row.
func (k *Kind[R]) Read(text []byte, now time.Time) (R, error) {
	r := k.New(now)
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fault.Wrap(err, "a member cannot be read as its type")
	}
	if k.Complete == nil {
		return r, nil
	}
	return r, k.Complete(&r, now)
}

// Load stores rows in the caller's transaction. If one of them is invalid, it returns a *Refused,
// and the transaction must be rolled back.
func (k *Kind[R]) Load(ctx context.Context, tx *db.Tx, rows []R) error {
	if len(rows) == 0 {
		return nil
	}
	if k.Before != nil {
		if err := k.Before(ctx, tx, rows); err != nil {
			return err
		}
	}
	if err := db.CopyRows(ctx, tx, k.Table, k.Columns, rows); err != nil {
		return k.explain(tx, err, rows)
	}
	if k.After != nil {
		return k.After(ctx, tx, rows)
	}
	return nil
}

// explain returns a *Refused for the row that Postgres refused.
func (k *Kind[R]) explain(tx *db.Tx, err error, rows []R) error {
	row, ok := db.Refused(tx, err, rows)
	if !ok {
		return err
	}
	for constraint, reason := range k.Refusals {
		if db.Violates(err, constraint) {
			return &Refused{Row: row, Reason: reason}
		}
	}
	return &Refused{Row: row, Reason: fmt.Sprintf("the database refuses it: %s", err)}
}

// Each calls do for each of a guild's rows, in the order of an export.
func (k *Kind[R]) Each(ctx context.Context, tx *db.Tx, guild string, do func(r *R) error) error {
	query := k.Export
	if query == "" {
		query = `SELECT ` + k.Columns + ` FROM ` + k.Table + ` WHERE guild_id = $1`
	}
	rows, err := tx.QueryxContext(ctx, query+` ORDER BY `+k.Order, guild)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		r := k.New(time.Time{})
		if err := rows.StructScan(&r); err != nil {
			return err
		}
		if err := do(&r); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Absent is an instant that no record can contain. New sets it where Complete has to know that a
// record left the member out.
var Absent = wire.At(time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC))

// Pending is stored, while an import runs, instead of the instant at which the import ends. Rows
// become visible at the commit, so somebody who copies a list in the order of its instants must
// find them after everything that was there before, however long the import takes.
var Pending = Absent

// Column is a column with an instant.
type Column struct {
	Table, Name string
	Guild       string // the column with the guild; empty: guild_id
	ID          string // the column with ids that contain the instant; empty: none
}

// Date replaces Pending in a guild's rows. The instant is taken at the end of the import, under the
// locks that order the rows: those of new rows, of their guild's counters, and of changed rows.
func (c Column) Date(ctx context.Context, tx *db.Tx, guild string, at time.Time) error {
	id, args := ``, []any{guild, at, Pending}
	if c.ID != "" {
		id, args = `, `+c.ID+` = left($4, 13) || right(`+c.ID+`, 23)`, append(args, db.NewIDAt(at))
	}
	_, err := db.Exec(ctx, tx, `UPDATE `+c.Table+` SET `+c.Name+` = $2`+id+` WHERE `+cmp.Or(c.Guild, "guild_id")+` = $1 AND `+c.Name+` = $3`, args...)
	return fault.Wrap(err, "date what came in of guild", guild)
}

// Past returns the instant of a past event: now if the record left it out or if it lies in the
// future. Otherwise a record from a machine with a fast clock would give a row an instant that all
// later changes had to exceed.
func Past(at wire.Time, now time.Time) wire.Time {
	if at.Time.After(now) {
		return wire.At(now)
	}
	return at
}

// Stands returns the past instant that a record gives for a stored row. An instant in the future is
// ignored, and was stays: a caller with a fast clock would otherwise change the row each time it
// sends the same record.
func Stands(given, was *wire.Time, now time.Time) *wire.Time {
	if given != nil && given.Time.After(now) {
		return was
	}
	return given
}

// Latest returns the later of two instants; the second may be nil.
func Latest(t wire.Time, u *wire.Time) wire.Time {
	if u != nil && u.Time.After(t.Time) {
		return *u
	}
	return t
}

// Same reports whether two optional members are equal.
func Same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// MintID gives a row an id if it has none.
func MintID(id *string) {
	if *id == "" {
		*id = db.NewID()
	}
}

// Number gives rows without a number the next numbers of their guild, in their order and above all
// that are used, and raises the guild's counter above all of them, so that the API continues from
// there. counter is a column of guilds.
func Number[R any](ctx context.Context, tx *db.Tx, counter string, rows []R, of func(r *R) (guild string, number *int64)) error {
	byGuild := make(map[string][]*int64)
	for i := range rows {
		guild, number := of(&rows[i])
		byGuild[guild] = append(byGuild[guild], number)
	}
	for _, guild := range slices.Sorted(maps.Keys(byGuild)) {
		was, err := db.Get[int64](ctx, tx, `SELECT `+counter+` FROM guilds WHERE id = $1 FOR NO KEY UPDATE`, guild)
		if err != nil {
			return fault.Wrap(err, "read", counter, "of guild", guild)
		}
		last := was
		for _, number := range byGuild[guild] {
			last = max(last, *number)
		}
		for _, number := range byGuild[guild] {
			if *number == 0 {
				last++
				*number = last
			}
		}
		if last == was {
			continue
		}
		if _, err := db.Exec(ctx, tx, `UPDATE guilds SET `+counter+` = $2 WHERE id = $1`, guild, last); err != nil {
			return fault.Wrap(err, "raise", counter, "of guild", guild)
		}
	}
	return nil
}

// InGuilds yields the things that records name, guild by guild and in the order of their ids, which
// is the order of locks.
func InGuilds(refs iter.Seq[Ref]) iter.Seq2[string, []Ref] {
	sorted := slices.SortedFunc(refs, func(a, b Ref) int { return strings.Compare(a.ID, b.ID) })
	return db.ByGuild(sorted, func(r Ref) string { return r.Guild })
}

// IDs returns the ids of refs.
func IDs(refs []Ref) []string {
	list := make([]string, len(refs))
	for i, r := range refs {
		list[i] = r.ID
	}
	return list
}
