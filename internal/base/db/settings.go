package db

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"guildhall/internal/base/fault"
)

// reliedOn are the settings that statements rely on, with their values: a server, a
// database or a role may have others. With array_nulls off, for example, an array's NULL
// is read as the text "NULL".
var reliedOn = map[string]string{
	"array_nulls":                    "on",
	"bytea_output":                   "hex",
	"default_transaction_deferrable": "off",
	"default_transaction_isolation":  "read committed",
	"intervalstyle":                  "postgres",
	"quote_all_identifiers":          "off",
	"standard_conforming_strings":    "on",
	"transform_null_equals":          "off",
}

// setReliedOn sets them in a session.
var setReliedOn = func() string {
	var sets []string
	for _, name := range slices.Sorted(maps.Keys(reliedOn)) {
		sets = append(sets, fmt.Sprintf("SET %s = '%s'", name, reliedOn[name]))
	}
	return strings.Join(sets, "; ")
}()

// WrongSettings returns the settings of the session that statements rely on and that have
// another value, as "name = value". There are none but behind a pooler, where the program
// cannot set them.
func WrongSettings(ctx context.Context, q Querier) ([]string, error) {
	var names, values Strings
	for name, value := range reliedOn {
		names, values = append(names, name), append(values, value)
	}
	wrong, err := Select[string](ctx, q, `
		SELECT name || ' = ' || current_setting(name)
		FROM unnest($1::text[], $2::text[]) AS wanted (name, value)
		WHERE lower(current_setting(name)) <> value
		ORDER BY name`, names, values)
	return wrong, fault.Wrap(err, "read the session's settings")
}

// ErrEncoding is returned for a database whose encoding is not UTF8.
var ErrEncoding = errors.New("the database cannot hold every text")

// checkEncoding returns ErrEncoding, with the remedy, unless the database is UTF8. In an
// SQL_ASCII database Postgres counts bytes instead of characters.
func checkEncoding(ctx context.Context, q rowQuerier) error {
	var encoding string
	if err := q.QueryRowContext(ctx, `SELECT current_setting('server_encoding')`).Scan(&encoding); err != nil {
		return fault.Wrap(err, "read the database's encoding")
	}
	if encoding != "UTF8" {
		return fmt.Errorf("%w: its encoding is %s; use one that was made with CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0", ErrEncoding, encoding)
	}
	return nil
}
