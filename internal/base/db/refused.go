package db

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/lib/pq"
)

var (
	copyLine = regexp.MustCompile(`^COPY [^,]+, line (\d+)`)
	copyKey  = regexp.MustCompile(`^Key \(([^)]*)\)=\((.*)\) already exists\.$`)
)

// Refused returns the index, from 0, of the row of CopyRows that Postgres refused; ok is false when
// err is not about a single row. Postgres reports errors later than it reads rows, so the row that
// was being sent at that time is not the answer. On Citus the message has no line, since the
// workers count their own lines, but it has the duplicate key.
func Refused[R any](tx *Tx, err error, rows []R) (row int, ok bool) {
	e, isServer := errors.AsType[*pq.Error](err)
	if !isServer {
		return 0, false
	}
	if m := copyLine.FindStringSubmatch(e.Where); m != nil {
		n, err := strconv.Atoi(m[1])
		return n - 1, err == nil && n >= 1 && n <= len(rows)
	}
	m := copyKey.FindStringSubmatch(e.Detail)
	if m == nil {
		return 0, false
	}
	fields := tx.Mapper.TraversalsByName(reflect.TypeFor[R](), strings.Split(m[1], ", "))
	for i := range rows {
		if keyOf(reflect.ValueOf(&rows[i]).Elem(), fields) != m[2] {
			continue
		}
		if ok { // the previous row has this key already: this row is the duplicate
			return i, true
		}
		row, ok = i, true
	}
	return row, ok
}

// keyOf formats the key of a row as Postgres does in messages, for keys of texts and numbers.
func keyOf(row reflect.Value, fields [][]int) string {
	list := make([]string, len(fields))
	for i, path := range fields {
		if len(path) == 0 {
			return ""
		}
		if v := reflect.Indirect(row.FieldByIndex(path)); v.IsValid() { // a key contains no NULL
			list[i] = fmt.Sprint(v.Interface())
		}
	}
	return strings.Join(list, ", ")
}
