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

// Refused tells which of the rows given to CopyRows, counted from 0, Postgres
// refused; it is false when err is about no single row. Postgres reads ahead of
// its own complaints, so the row that Copy was handling when the error came is
// no answer. A coordinator says no line, since its workers count their own, but it
// says the key that is there already.
func Refused[R any](tx *Tx, err error, rows []R) (row int, ok bool) {
	e, told := errors.AsType[*pq.Error](err)
	if !told {
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
		if ok { // the one before is what it has met
			return i, true
		}
		row, ok = i, true
	}
	return row, ok
}

// keyOf is what Postgres calls the key of a row, where its members are texts and
// numbers.
func keyOf(row reflect.Value, fields [][]int) string {
	list := make([]string, len(fields))
	for i, path := range fields {
		if len(path) == 0 {
			return ""
		}
		if v := reflect.Indirect(row.FieldByIndex(path)); v.IsValid() { // a key has no nulls
			list[i] = fmt.Sprint(v.Interface())
		}
	}
	return strings.Join(list, ", ")
}
