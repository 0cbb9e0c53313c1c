// Package batch composes the statements that make changes which have arrived
// together, each of another row. Such a statement decides each change by itself,
// so that one that is refused is no matter to the others, and says of each what it
// has found. What it says nothing of it has left alone.
//
// There are two kinds. Collected, a statement takes the rows that are there and
// that nobody holds, and waits for no other transaction longer than a few
// milliseconds. By itself it makes one change: it waits for the row, and makes the
// one that is missing.
//
// Each row is looked up by itself, whatever Postgres thinks of the size of guilds:
// a subquery that locks is not joined in another way. It has no LIMIT, whose
// estimates would let Postgres plan the statement anew at each run.
package batch

import (
	"strconv"
	"strings"
	"time"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db"
)

// Few holds for every change. Postgres knows nothing of the numbers and takes such
// a condition for one that few rows meet, so that it looks up by index what belongs
// to changes: tables of thousands of guilds would be read whole otherwise.
const Few = `number BETWEEN 1 AND 1000000`

// Patience is how long a collected statement waits for a key or a reference that
// another transaction is about to write.
const Patience = 10 * time.Millisecond

// Form is what a statement has to be able to do. Each part of a statement is set
// up at each run, whether it finds something to do or not, so there is one for
// each form.
type Form struct {
	Collected  bool
	Several    bool // guilds; otherwise the statement names the one, $1
	Keyed      bool // some of the changes come with a key
	Referenced bool // some have a reference
	Traced     bool // some were asked for within a trace, which their events carry on
}

// Collected is every form of a collected statement.
func Collected(referenced bool) (forms []Form) {
	for n := range 16 {
		f := Form{Collected: true, Several: n&1 > 0, Keyed: n&2 > 0, Traced: n&4 > 0, Referenced: n&8 > 0}
		if referenced || !f.Referenced {
			forms = append(forms, f)
		}
	}
	return forms
}

// Guild is the guild of a row of one of the statement's CTEs, as an expression.
func (f Form) Guild(row string) string {
	if f.Several {
		return row + ".guild_id"
	}
	return "$1"
}

// Lock locks the row that a change is about.
func (f Form) Lock() string {
	if f.Collected {
		return "FOR NO KEY UPDATE SKIP LOCKED"
	}
	return "FOR NO KEY UPDATE"
}

// Column is one of the arrays in which changes are given.
type Column[C any] struct {
	Name, Type string
	Of         func(changes []C) any
}

// Texts is a column of texts.
func Texts[C any](name string, of func(C) string) Column[C] {
	return Column[C]{name, "text", func(changes []C) any { return db.Array(Each(changes, of)) }}
}

// Nullable is a column of texts or nulls.
func Nullable[C any](name string, of func(C) *string) Column[C] {
	return Column[C]{name, "text", func(changes []C) any { return db.Texts(Each(changes, of)) }}
}

// Integers is a column of integers.
func Integers[C any](name string, of func(C) int64) Column[C] {
	return Column[C]{name, "bigint", func(changes []C) any { return db.Integers(Each(changes, of)) }}
}

// Booleans is a column of booleans.
func Booleans[C any](name string, of func(C) bool) Column[C] {
	return Column[C]{name, "boolean", func(changes []C) any { return db.Booleans(Each(changes, of)) }}
}

// Keys are the columns of the keys of those changes that come with one.
func Keys[C any](of func(C) *idempotency.Request) []Column[C] {
	return []Column[C]{
		Nullable("token_id", func(c C) *string {
			if r := of(c); r != nil {
				return &r.TokenID
			}
			return nil
		}),
		Nullable("key", func(c C) *string {
			if r := of(c); r != nil {
				return &r.Key
			}
			return nil
		}),
	}
}

// Each is what of says of each change.
func Each[C, V any](changes []C, of func(C) V) []V {
	list := make([]V, len(changes))
	for i, c := range changes {
		list[i] = of(c)
	}
	return list
}

// Changes are the changes of a form, given as columns.
type Changes[C any] struct {
	Form
	GuildOf func(C) string
	Columns []Column[C]
}

// Given is the CTE of the changes, with the columns guild_id, those that it was
// made of, and number, which counts from 1.
//
// The subquery around the first array hides how long the arrays are. Postgres
// would otherwise plan the statement anew for each short list, which takes longer
// than running it.
func (c Changes[C]) Given() string {
	var arrays, names []string
	guild := `$1::text AS guild_id, `
	if c.Several {
		guild, arrays, names = ``, []string{`(SELECT $1::text[])`}, []string{`guild_id`}
	}
	for i, column := range c.Columns {
		array := `$` + strconv.Itoa(i+2) + `::` + column.Type + `[]`
		if len(arrays) == 0 {
			array = `(SELECT ` + array + `)`
		}
		arrays, names = append(arrays, array), append(names, column.Name)
	}
	soon := ``
	if c.Collected && (c.Keyed || c.Referenced) {
		soon = `, (SELECT set_config('lock_timeout', '` + Patience.String() + `', true)) AS soon`
	}
	return `given AS MATERIALIZED (
			SELECT ` + guild + `g.*` + soon + `
			FROM unnest(` + strings.Join(arrays, `, `) + `)
			     WITH ORDINALITY AS g (` + strings.Join(names, `, `) + `, number)
		)`
}

// Free is the condition for a row of given that nothing stands under its key yet.
func (c Changes[C]) Free() string {
	if !c.Keyed {
		return `true`
	}
	return idempotency.Unused(c.Guild("g"), "g")
}

// Names are the columns of given, of a row.
func (c Changes[C]) Names(row string) string {
	list := row + `.number, ` + row + `.guild_id`
	for _, column := range c.Columns {
		list += `, ` + row + `.` + column.Name
	}
	return list
}

// Arguments are the statement's for these changes.
func (c Changes[C]) Arguments(changes []C) []any {
	args := make([]any, 0, len(c.Columns)+1)
	if c.Several {
		args = append(args, db.Array(Each(changes, c.GuildOf)))
	} else {
		args = append(args, c.GuildOf(changes[0]))
	}
	for _, column := range c.Columns {
		args = append(args, column.Of(changes))
	}
	return args
}

// FormOf is the form of a collected statement for the changes. key, reference and
// trace say whether a change has one.
func FormOf[C any](changes []C, guild func(C) string, key, reference, trace func(C) bool) Form {
	f := Form{Collected: true}
	for _, c := range changes {
		f.Several = f.Several || guild(c) != guild(changes[0])
		f.Keyed = f.Keyed || key(c)
		f.Referenced = f.Referenced || reference(c)
		f.Traced = f.Traced || trace(c)
	}
	return f
}
