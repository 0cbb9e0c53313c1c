package db

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"guildhall/internal/base/fault"
)

// With a pool the system's random source is read once for sixteen ids. That is safe since ids are
// not secret.
func init() { uuid.EnableRandPool() }

// NewID returns a new UUIDv7, which sorts by the time at which it was made.
func NewID() string {
	id, err := uuid.NewV7()
	if err != nil {
		panic("db: the system has no randomness: " + err.Error())
	}
	return id.String()
}

// NewIDAt returns an id as NewID would have made it at that instant.
func NewIDAt(at time.Time) string {
	return idPrefix(at) + NewID()[prefixLength:]
}

// NewIDsAt mints an id for each instant, as NewIDAt does. Ids of one millisecond ascend in the
// order of the list.
func NewIDsAt(instants []time.Time) []string {
	ids := make([]string, len(instants))
	for i := range ids {
		ids[i] = NewID()[prefixLength:]
	}
	slices.Sort(ids)
	for i, at := range instants {
		ids[i] = idPrefix(at) + ids[i]
	}
	return ids
}

// prefixLength is the length of idPrefix.
const prefixLength = len("01977d2a-8c00")

// idPrefix returns the beginning of the ids that are made within that millisecond.
func idPrefix(at time.Time) string {
	ms := fmt.Sprintf("%012x", at.UnixMilli())
	return ms[:8] + "-" + ms[8:]
}

// IDsWithin returns the bounds of the ids of the millisecond of at: ids are at or above from, and
// below below.
func IDsWithin(at time.Time) (from, below string) {
	return idPrefix(at), idPrefix(at.Add(time.Millisecond))
}

// InstantOf returns the millisecond in which an id was made, or false if NewID cannot have made it.
func InstantOf(id string) (time.Time, bool) {
	u, err := uuid.Parse(id)
	if err != nil || u.Version() != 7 || u.String() != id {
		return time.Time{}, false
	}
	ms, err := strconv.ParseInt(id[:8]+id[9:13], 16, 64)
	return time.UnixMilli(ms), err == nil
}

// Array returns list as a Postgres text array; nil is the empty array.
func Array(list []string) driver.Valuer { return Strings(list) }

// ByteArray returns list as a Postgres bytea array.
func ByteArray(list [][]byte) driver.Valuer { return pq.ByteaArray(list) }

// Texts returns list as a Postgres text array in which nil is NULL.
func Texts(list []*string) driver.Valuer { return texts(list) }

type texts []*string

var inArray = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// Value returns the array in Postgres' text form.
func (t texts) Value() (driver.Value, error) {
	return arrayOf(len(t), func(i int) *string { return t[i] }), nil
}

// arrayOf returns a text array of n items. It computes the length first and allocates once;
// lib/pq's own encoder grows its buffer and copies it.
func arrayOf(n int, item func(i int) *string) string {
	size := len("{}")
	for i := range n {
		if s := item(i); s != nil {
			size += len(*s)
		}
		size += len(`,NULL`)
	}
	var b strings.Builder
	b.Grow(size)
	b.WriteByte('{')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		if s := item(i); s == nil {
			b.WriteString("NULL")
		} else {
			b.WriteByte('"')
			b.WriteString(inArray.Replace(*s))
			b.WriteByte('"')
		}
	}
	b.WriteByte('}')
	return b.String()
}

// Integers returns list as a Postgres bigint array.
func Integers(list []int64) driver.Valuer { return pq.Int64Array(list) }

// Booleans returns list as a Postgres boolean array.
func Booleans(list []bool) driver.Valuer { return pq.BoolArray(list) }

// Strings is a text array column.
type Strings []string

// Value returns the array in Postgres' text form.
func (s Strings) Value() (driver.Value, error) {
	return arrayOf(len(s), func(i int) *string { return &s[i] }), nil
}

// MarshalJSON writes a nil slice as an empty list: no member of the contract that is a list may be
// null.
func (s Strings) MarshalJSON() ([]byte, error) {
	if s == nil {
		return []byte("[]"), nil
	}
	return json.Marshal([]string(s))
}

// Scan reads a text array; it never leaves a nil slice.
func (s *Strings) Scan(src any) error {
	var a pq.StringArray
	if err := a.Scan(src); err != nil {
		return err
	}
	if a == nil {
		a = pq.StringArray{}
	}
	*s = Strings(a)
	return nil
}

// Copy streams rows into table until next returns io.EOF. The rows are kept only if the transaction
// commits.
func Copy(ctx context.Context, tx *Tx, table string, columns []string, next func() ([]any, error)) (err error) {
	names := make([]string, len(columns))
	for i, name := range columns {
		names[i] = pq.QuoteIdentifier(name)
	}
	stmt, err := tx.PrepareContext(ctx, "COPY "+pq.QuoteIdentifier(table)+" ("+strings.Join(names, ", ")+") FROM STDIN")
	if err != nil {
		return fault.Wrap(err, "copy into", table)
	}
	defer func() {
		if end := stmt.Close(); err == nil {
			err = end
		}
	}()
	for {
		row, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			_, err = stmt.ExecContext(ctx, row...)
		}
		if err != nil {
			return err
		}
	}
	_, err = stmt.ExecContext(ctx)
	return fault.Wrap(err, "copy into", table)
}

// CopyRows streams rows into a table. columns lists the columns as in a SELECT; each is found in a
// row by its db tag.
func CopyRows[R any](ctx context.Context, tx *Tx, table, columns string, rows []R) error {
	names := strings.FieldsFunc(columns, func(c rune) bool { return c == ',' || unicode.IsSpace(c) })
	fields := tx.Mapper.TraversalsByName(reflect.TypeFor[R](), names)
	for i, path := range fields {
		if len(path) == 0 {
			return fmt.Errorf("copy into %s: a row has no column %s", table, names[i])
		}
	}
	at, values := 0, make([]any, len(names))
	return Copy(ctx, tx, table, names, func() ([]any, error) {
		if at == len(rows) {
			return nil, io.EOF
		}
		row := reflect.ValueOf(&rows[at]).Elem()
		at++
		for i, path := range fields {
			values[i] = row.FieldByIndex(path).Interface()
		}
		return values, nil
	})
}

// Condition compares a column with a value: "action =" with "token.create". An empty value means no
// condition.
type Condition struct{ Compare, Value string }

// Where appends conditions to a query that already has some, and their values to its arguments.
// Conditions without a value are left out of the text, so that each combination is planned for its
// own index.
func Where(query string, args []any, conditions ...Condition) (string, []any) {
	for _, c := range conditions {
		if c.Value != "" {
			args = append(args, c.Value)
			query += " AND " + c.Compare + " $" + strconv.Itoa(len(args))
		}
	}
	return query, args
}
