package db

import (
	"errors"
	"regexp"
	"strconv"

	"github.com/lib/pq"
)

var copyLine = regexp.MustCompile(`^COPY [^,]+, line (\d+)`)

// CopyLine tells which of the rows given to Copy, counted from 1, Postgres
// refused; it is false when err is about no single row. Postgres reads ahead of
// its own complaints, so the row that Copy was handling when the error came is
// no answer.
func CopyLine(err error) (int, bool) {
	var e *pq.Error
	if !errors.As(err, &e) {
		return 0, false
	}
	m := copyLine.FindStringSubmatch(e.Where)
	if m == nil {
		return 0, false
	}
	n, err := strconv.Atoi(m[1])
	return n, err == nil
}
