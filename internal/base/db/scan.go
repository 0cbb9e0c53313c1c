package db

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/jmoiron/sqlx"
	"github.com/jmoiron/sqlx/reflectx"
)

// fewest is the least capacity of a list with rows.
const fewest = 8

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
	fields, into, err := fieldsOf(rows, reflectx.Deref(list.Type().Elem()), query)
	if err != nil {
		return err
	}
	list.SetLen(0)
	for rows.Next() {
		n := list.Len()
		if n == list.Cap() {
			list.Grow(max(fewest, n))
		}
		list.SetLen(n + 1)
		row := list.Index(n)
		if row.Kind() == reflect.Pointer {
			row.Set(reflect.New(row.Type().Elem()))
			row = row.Elem()
		}
		row.SetZero()
		if err := scanInto(rows, row, fields, into); err != nil {
			return err
		}
	}
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
	fields, into, err := fieldsOf(rows, row.Type(), query)
	if err != nil {
		return err
	}
	if !rows.Next() {
		return cmp.Or(rows.Err(), sql.ErrNoRows)
	}
	if err := scanInto(rows, row, fields, into); err != nil {
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

// fieldPaths caches the results of fieldsOf by type and statement.
var fieldPaths sync.Map

type fieldKey struct {
	row   reflect.Type
	query string
}

type fieldsFound struct {
	columns []string
	fields  [][]int
}

// fieldsOf returns the struct fields for the columns of a result, or nil for a row that is a single
// value, and a slice for as many scan targets.
func fieldsOf(rows *sqlx.Rows, row reflect.Type, query string) (fields [][]int, into []any, err error) {
	columns, err := rows.Columns()
	if err != nil {
		return nil, nil, err
	}
	into = make([]any, len(columns))
	if known, ok := fieldPaths.Load(fieldKey{row, query}); ok {
		if f, _ := known.(fieldsFound); slices.Equal(f.columns, columns) {
			return f.fields, into, nil
		}
	}
	single := row.Kind() != reflect.Struct || reflect.PointerTo(row).Implements(reflect.TypeFor[sql.Scanner]())
	if !single && len(rows.Mapper.TypeMap(row).Index) > 0 {
		fields = rows.Mapper.TraversalsByName(row, columns)
	}
	for i, path := range fields {
		if len(path) == 0 {
			return nil, nil, fmt.Errorf("the column %s has no field in %s", columns[i], row)
		}
	}
	if fields == nil && len(columns) != 1 {
		return nil, nil, fmt.Errorf("%d columns for one %s", len(columns), row)
	}
	fieldPaths.Store(fieldKey{row, query}, fieldsFound{columns, fields})
	return fields, into, nil
}
