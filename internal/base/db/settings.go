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

// reliedOn lists the settings that statements rely on, with their values. A server, database or
// role may have other values. With array_nulls off, for example, NULL in an array literal is read
// as the text "NULL".
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

// setReliedOn is the statement that makes these settings for a session.
var setReliedOn = func() string {
	var sets []string
	for _, name := range slices.Sorted(maps.Keys(reliedOn)) {
		sets = append(sets, fmt.Sprintf("SET %s = '%s'", name, reliedOn[name]))
	}
	return strings.Join(sets, "; ")
}()

// WrongSettings returns those of the session's settings that differ from reliedOn, as "name =
// value". It finds some only behind a pooler, where the program cannot make settings.
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
		return fault.Wrap(err, "the database does not answer") // no statement before this one has needed a connection
	}
	if encoding != "UTF8" {
		return fmt.Errorf("%w: its encoding is %s; use one that was made with CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0", ErrEncoding, encoding)
	}
	return nil
}
