// Package transfer is how a domain shows the rows that move: what a row looks like
// outside, what makes it a legal one, how many of them come in together and how a
// guild's are carried out. It knows no domain. Kind is for rows that come in and go out
// as a whole, in guild files; its Writer is for records that make a row or change it.
//
// # Records that make or change
//
// A Batch holds the records of one kind that are written together. Its Write holds the
// rows that are there; makes of each, by reading the record over a copy of it, the row
// that the record wants (what is absent stays, null clears what a pointer holds); judges
// it; compares, by what a record of the row would show; and stores what differs. Then
// Tell records the events. A record that is refused leaves the others alone; its caller
// decides whether the call goes on.
//
// A domain adds a kind in its record.go, by the Writer of its Kind:
//
//   - Schema names the schema of the record (RecordCase), in which only what names the
//     thing is required. A new row also needs the members that the kind's own schema
//     (GuildFileCase) requires. Defaults of new rows are the kind's New.
//   - Key, Hold (mostly Held, of a statement that locks by key), Revise, Shown, Store, and
//     Tell where there are events. Revise puts back what a record never changes: updated_at,
//     and of a row that is there created_at and source.
//   - Counted where rows have numbers; the kind's Find is then needed as well.
//
// Then the kind gets its line in the package records, at the place of its locks.
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

// Kind is one kind of record. R is a row as it is stored: its columns are the db
// tags, its members those of the schema and the json tags.
type Kind[R any] struct {
	Name     string // what a record calls its kind
	Schema   string // the schema of a record
	Table    string
	Columns  string            // those that a record fills, as a SELECT lists them
	Refusals map[string]string // what is wrong with a record that breaks a constraint
	Order    string            // of an export
	Export   string            // a SELECT of the guild $1, if it is not simply the columns

	// Guild is whose the row is; nil: it belongs to no guild.
	Guild func(r *R) string
	// Needs is what must be there before the row besides its guild; may be nil.
	Needs func(r *R) []Ref
	// Defines is what others may need, and Find the statement that looks for it:
	// guilds and ids in, guild and id out. Both or none, but of guilds, which are held.
	Defines func(r *R) Ref
	Find    string

	// New is a row before a record is read into it: what its members are when they
	// are left out.
	New func(now time.Time) R
	// Complete fills in what follows from other members, and says what no schema
	// can; may be nil.
	Complete func(r *R, now time.Time) error

	// Dated are the columns in which rows bear Pending until all are in.
	Dated []Column
	// Settle gives a row the instant of its change. In an import that is done at once only
	// where the guild comes in with the row: of that nobody has a copy, and dating a million
	// rows takes as long as storing them. May be nil.
	Settle func(r *R, at wire.Time)

	// Before and After are done in the transaction of Load, around the rows, and
	// Finish once for each guild when all are in. All may be nil.
	Before, After func(ctx context.Context, tx *db.Tx, rows []R) error
	Finish        func(ctx context.Context, tx *db.Tx, guild string) error

	// Writer is how records make and change rows one by one; nil: they do not. Fixed is
	// how an import that updates meets the rows of a kind without one.
	Writer *Writer[R]
	Fixed  *Fixed[R]
}

// Ref names a thing that a record may need.
type Ref struct{ Kind, Guild, ID string }

// Refused is what is wrong with one of the rows given to Load.
type Refused struct {
	Row    int
	Reason string
}

func (e *Refused) Error() string { return e.Reason }

// Read makes a row of a record that has been held against the schema.
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

// Load stores rows in the caller's transaction. The fault of one of them comes back as
// *Refused; the transaction is then good for nothing but a rollback.
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

// explain names the row that Postgres refused.
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

// Each calls do with each of a guild's rows, in the order of an export.
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

// Absent is an instant that no record can have: New sets it where Complete has to
// know that a record left it out.
var Absent = wire.At(time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC))

// Pending is what rows bear, while they are coming in, in the place of the instant
// at which all are in. A copier of a list by its instants must find them behind what
// was there before, however long they take to come: they are seen at the commit.
var Pending = Absent

// Column is a column of instants.
type Column struct {
	Table, Name string
	Guild       string // the column that names the guild; empty: guild_id
	ID          string // the column of ids that tell that instant; empty: there is none
}

// Date gives a guild's pending rows their instant. It is taken when all are in, after
// the locks that order the rows: those of new rows, of their guild's counters, and of
// the rows that they have changed.
func (c Column) Date(ctx context.Context, tx *db.Tx, guild string, at time.Time) error {
	id, args := ``, []any{guild, at, Pending}
	if c.ID != "" {
		id, args = `, `+c.ID+` = left($4, 13) || right(`+c.ID+`, 23)`, append(args, db.NewIDAt(at))
	}
	_, err := db.Exec(ctx, tx, `UPDATE `+c.Table+` SET `+c.Name+` = $2`+id+` WHERE `+cmp.Or(c.Guild, "guild_id")+` = $1 AND `+c.Name+` = $3`, args...)
	return fault.Wrap(err, "date what came in of guild", guild)
}

// Past is the instant of something that has been: now when it was left out or lies
// ahead. A record made where the clock is ahead must not give a row an hour that
// its later changes would have to follow.
func Past(at wire.Time, now time.Time) wire.Time {
	if at.Time.After(now) {
		return wire.At(now)
	}
	return at
}

// Stands returns the instant of the past that a record gives of a row that is there: one that
// lies ahead of now says nothing, and was stays. A caller whose clock is fast would change
// the row each time that it sends the same record.
func Stands(given, was *wire.Time, now time.Time) *wire.Time {
	if given != nil && given.Time.After(now) {
		return was
	}
	return given
}

// Latest is the later of the two instants, if there is a second.
func Latest(t wire.Time, u *wire.Time) wire.Time {
	if u != nil && u.Time.After(t.Time) {
		return *u
	}
	return t
}

// Same reports whether two members that may be missing are equal.
func Same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// MintID gives a row an id if it has none.
func MintID(id *string) {
	if *id == "" {
		*id = db.NewID()
	}
}

// Number gives rows without a number their guild's next one, in their order, over all
// that are given, and raises the guild's counter over every one of them, so that the API
// goes on from there. Counter is a column of guilds.
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

// InGuilds goes through what records have named, guild by guild and in the order of
// the ids, which is the order of locks.
func InGuilds(refs iter.Seq[Ref]) iter.Seq2[string, []Ref] {
	sorted := slices.SortedFunc(refs, func(a, b Ref) int { return strings.Compare(a.ID, b.ID) })
	return db.ByGuild(sorted, func(r Ref) string { return r.Guild })
}
