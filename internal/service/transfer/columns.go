package transfer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
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
	return strings.Join(values(c.moved, instead, func(name string) string { return alias + "." + name }), ", ")
}

// FromRow is From for one row: each column that instead does not name has a parameter, from $first
// on, in place of a column of alias. args returns the values of the parameters.
func (c Columns[R]) FromRow(first int, instead map[string]string) (list string, args func(R) []any) {
	placeholder, args := c.parameters(first)
	return strings.Join(values(c.moved, instead, placeholder), ", "), args
}

// Set lists the assignments of an UPDATE to the columns that may change, with values as From
// has them.
func (c Columns[R]) Set(alias string, instead map[string]string) string {
	return c.assign(instead, func(name string) string { return alias + "." + name })
}

// SetRow is Set with parameters, as FromRow has them.
func (c Columns[R]) SetRow(first int, instead map[string]string) (list string, args func(R) []any) {
	placeholder, args := c.parameters(first)
	return c.assign(instead, placeholder), args
}

// values returns the values of the named columns: the expression in instead for a column that it
// names, home.id for the guild, and else what value returns.
func values(names []string, instead map[string]string, value func(name string) string) []string {
	list := make([]string, len(names))
	for i, name := range names {
		expression, named := instead[name]
		switch {
		case named:
			list[i] = expression
		case name == "guild_id":
			list[i] = "home.id"
		default:
			list[i] = value(name)
		}
	}
	return list
}

func (c Columns[R]) assign(instead map[string]string, value func(name string) string) string {
	names := slices.DeleteFunc(slices.Clone(c.moved), func(name string) bool { return name == "guild_id" || slices.Contains(c.fixed, name) })
	list := values(names, instead, value)
	for i, name := range names {
		list[i] = name + " = " + list[i]
	}
	return strings.Join(list, ", ")
}

// parameters returns a function that gives each named column the next parameter, from $first on, and
// a function that returns the values of these columns in a row.
func (Columns[R]) parameters(first int) (placeholder func(name string) string, args func(R) []any) {
	fields := make(map[string][]int)
	for f := range columnFields[R]() {
		fields[f.Tag.Get("db")] = f.Index
	}
	var bound [][]int
	placeholder = func(name string) string {
		bound = append(bound, fields[name])
		return fmt.Sprintf("$%d", first+len(bound)-1)
	}
	return placeholder, func(r R) []any {
		row, list := reflect.ValueOf(r), make([]any, len(bound))
		for i, field := range bound {
			list[i] = row.FieldByIndex(field).Interface()
		}
		return list
	}
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
