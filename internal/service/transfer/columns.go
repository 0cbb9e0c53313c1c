package transfer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"guildhall/internal/base/fault"
)

// Columns are the columns of a table as its row type R declares them: a member with a db
// tag is a column, and a column whose json tag is not "-" is part of records and of guild
// files. Every statement of a domain takes its columns from here, so that a member added to
// R is read, inserted, updated and compared.
type Columns[R any] struct {
	all   []string // every column of R
	moved []string // the columns that are part of records
	fixed []string // the columns of moved that never change
}

// ColumnsOf returns the columns of R. The columns named by fixed are written by an INSERT
// only. It panics when R has no such column.
func ColumnsOf[R any](fixed ...string) Columns[R] {
	c := Columns[R]{fixed: fixed}
	for f := range columnFields[R]() {
		c.all = append(c.all, f.Tag.Get("db"))
		if f.Tag.Get("json") != "-" {
			c.moved = append(c.moved, f.Tag.Get("db"))
		}
	}
	for _, name := range fixed {
		if !slices.Contains(c.moved, name) {
			panic(fmt.Sprintf("transfer: %T has no column %s that records carry", *new(R), name))
		}
	}
	return c
}

// columnFields yields the fields of R that are columns.
func columnFields[R any]() func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for _, f := range reflect.VisibleFields(reflect.TypeFor[R]()) {
			if f.Tag.Get("db") != "" && !yield(f) {
				return
			}
		}
	}
}

// All lists every column, as a SELECT does.
func (c Columns[R]) All() string { return strings.Join(c.all, ", ") }

// Moved lists the columns that are part of records, as an INSERT does.
func (c Columns[R]) Moved() string { return strings.Join(c.moved, ", ") }

// From lists the values of the columns of Moved for the SELECT of an INSERT: the expression in
// instead for a column that it names, home.id for the guild, and else the column of alias. The
// SELECT has the guild's own row: JOIN guilds home ON home.id = $1.
func (c Columns[R]) From(alias string, instead map[string]string) string {
	values := make([]string, len(c.moved))
	for i, name := range c.moved {
		values[i] = alias + "." + name
		if name == "guild_id" {
			values[i] = "home.id"
		}
		if value, named := instead[name]; named {
			values[i] = value
		}
	}
	return strings.Join(values, ", ")
}

// Set lists the assignments of an UPDATE to the columns that may change, with values as From
// has them.
func (c Columns[R]) Set(alias string, instead map[string]string) string {
	var list []string
	for _, name := range c.moved {
		value, named := instead[name]
		if !named {
			value = alias + "." + name
		}
		if name != "guild_id" && !slices.Contains(c.fixed, name) {
			list = append(list, name+" = "+value)
		}
	}
	return strings.Join(list, ", ")
}

// Changed lists the members in which two versions of a row differ as records show them, in
// the order of R. It leaves out what never changes, updated_at and the members of but.
func (c Columns[R]) Changed(was, is *R, but ...string) (list []string) {
	before, after := reflect.ValueOf(was).Elem(), reflect.ValueOf(is).Elem()
	for f := range columnFields[R]() {
		name := f.Tag.Get("json")
		if name == "-" || name == "guild_id" || name == "updated_at" || slices.Contains(c.fixed, name) || slices.Contains(but, name) {
			continue
		}
		if !shownAlike(before.FieldByIndex(f.Index).Interface(), after.FieldByIndex(f.Index).Interface()) {
			list = append(list, name)
		}
	}
	return list
}

// shownAlike reports whether two values of one type have the same JSON. An instant is stored
// more exactly than it is shown.
func shownAlike(a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// JSON returns a row as jsonb_populate_record reads it.
func (Columns[R]) JSON(r R) (string, error) {
	text, err := json.Marshal(r)
	return string(text), fault.Wrap(err, "write a row for the database")
}
