package db

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"

	"github.com/jmoiron/sqlx"
	"github.com/jmoiron/sqlx/reflectx"
)

// selectAll is sqlx's SelectContext, for lists: it reads each row into its place in
// the list, where sqlx makes it elsewhere by reflection, field by field, and copies
// it: by the profile a tenth of what a page of tickets took the server.
func selectAll(ctx context.Context, q sqlx.QueryerContext, dest any, query string, args ...any) error {
	rows, err := q.QueryxContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	list := reflect.ValueOf(dest).Elem()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	fields, err := fieldsOf(rows.Mapper, reflectx.Deref(list.Type().Elem()), columns)
	if err != nil {
		return err
	}
	if fields == nil && len(columns) != 1 {
		return fmt.Errorf("%d columns for a list of %s", len(columns), list.Type().Elem())
	}
	into := make([]any, len(columns))
	list.SetLen(0)
	for rows.Next() {
		n := list.Len()
		if n == list.Cap() {
			list.Grow(max(1, n))
		}
		list.SetLen(n + 1)
		row := list.Index(n)
		if row.Kind() == reflect.Pointer {
			row.Set(reflect.New(row.Type().Elem()))
			row = row.Elem()
		}
		row.SetZero()
		into[0] = row.Addr().Interface()
		for i, path := range fields {
			into[i] = reflectx.FieldByIndexes(row, path).Addr().Interface()
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
	}
	return rows.Err()
}

// fieldsOf are the fields of a row for the columns of a result; none where a row is
// a single value.
func fieldsOf(mapper *reflectx.Mapper, row reflect.Type, columns []string) ([][]int, error) {
	if row.Kind() != reflect.Struct || reflect.PointerTo(row).Implements(reflect.TypeFor[sql.Scanner]()) || len(mapper.TypeMap(row).Index) == 0 {
		return nil, nil
	}
	fields := mapper.TraversalsByName(row, columns)
	for i, path := range fields {
		if len(path) == 0 {
			return nil, fmt.Errorf("the column %s has no field in %s", columns[i], row)
		}
	}
	return fields, nil
}
