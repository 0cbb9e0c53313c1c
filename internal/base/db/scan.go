package db

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/jmoiron/sqlx"
	"github.com/jmoiron/sqlx/reflectx"
)

// A list begins with room for as many rows as the last result of its statement had, within these
// limits. The upper one holds a page and its next row.
const (
	fewestRows = 8
	mostRows   = 32
)

// selectAll does what sqlx's SelectContext does for a list of structs, but scans each row directly
// into its place in the slice. sqlx allocates each row by reflection and copies it, which took a
// tenth of the server's time for a page of tickets.
func selectAll(ctx context.Context, q sqlx.QueryerContext, dest any, query string, args ...any) error {
	rows, err := q.QueryxContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	list := reflect.ValueOf(dest).Elem()
	plan, into, err := planOf(rows, reflectx.Deref(list.Type().Elem()), query)
	if err != nil {
		return err
	}
	list.SetLen(0)
	for rows.Next() {
		n := list.Len()
		if n == list.Cap() {
			list.Grow(max(n, fewestRows, int(plan.rows.Load())))
		}
		list.SetLen(n + 1)
		row := list.Index(n)
		if row.Kind() == reflect.Pointer {
			row.Set(reflect.New(row.Type().Elem()))
			row = row.Elem()
		}
		row.SetZero()
		if err := scanInto(rows, row, plan.fields, into); err != nil {
			return err
		}
	}
	plan.rows.Store(int32(min(mostRows, list.Len())))
	return rows.Err()
}

// getOne does what sqlx's GetContext does, in the same way.
func getOne(ctx context.Context, q sqlx.QueryerContext, dest any, query string, args ...any) error {
	rows, err := q.QueryxContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	row := reflect.ValueOf(dest).Elem()
	plan, into, err := planOf(rows, row.Type(), query)
	if err != nil {
		return err
	}
	if !rows.Next() {
		return cmp.Or(rows.Err(), sql.ErrNoRows)
	}
	if err := scanInto(rows, row, plan.fields, into); err != nil {
		return err
	}
	return rows.Close() //nolint:sqlclosecheck // which says what came after the row
}

func scanInto(rows *sqlx.Rows, row reflect.Value, fields [][]int, into []any) error {
	into[0] = row.Addr().Interface()
	for i, path := range fields {
		into[i] = row.FieldByIndex(path).Addr().Interface()
	}
	return rows.Scan(into...)
}

// plans caches the results of planOf.
var plans sync.Map

type planKey struct {
	row   reflect.Type
	query string
}

// plan says how the rows of a statement are read.
type plan struct {
	columns []string
	fields  [][]int      // the struct field of each column; nil for a row that is a single value
	rows    atomic.Int32 // length of the last list, at most mostRows
}

// planOf returns the plan for the rows of a statement, and a slice for as many scan targets as there
// are columns.
func planOf(rows *sqlx.Rows, row reflect.Type, query string) (p *plan, into []any, err error) {
	columns, err := rows.Columns()
	if err != nil {
		return nil, nil, err
	}
	into = make([]any, len(columns))
	if known, ok := plans.Load(planKey{row, query}); ok {
		if p, _ = known.(*plan); slices.Equal(p.columns, columns) {
			return p, into, nil
		}
	}
	p = &plan{columns: columns}
	single := row.Kind() != reflect.Struct || reflect.PointerTo(row).Implements(reflect.TypeFor[sql.Scanner]())
	if !single && len(rows.Mapper.TypeMap(row).Index) > 0 {
		p.fields = rows.Mapper.TraversalsByName(row, columns)
	}
	for i, path := range p.fields {
		if len(path) == 0 {
			return nil, nil, fmt.Errorf("the column %s has no field in %s", columns[i], row)
		}
	}
	if p.fields == nil && len(columns) != 1 {
		return nil, nil, fmt.Errorf("%d columns for one %s", len(columns), row)
	}
	plans.Store(planKey{row, query}, p)
	return p, into, nil
}
