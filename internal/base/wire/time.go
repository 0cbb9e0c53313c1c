// Package wire holds types whose JSON form in the API differs from Go's own form.
package wire

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"time"
)

const layout = "2006-01-02T15:04:05.000Z"

// Time is an instant in the API. It is written in RFC 3339, in UTC, with exactly three fraction
// digits, and read from RFC 3339 with any offset and fraction. The instant is a field and not
// embedded: encoding/json would find the MarshalJSON of time.Time and validate and copy its result,
// which doubled the time to write an instant.
type Time struct{ Time time.Time }

// At returns t as a Time.
func At(t time.Time) Time { return Time{t} }

// last is the last instant that the outgoing form can express.
var last = time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)

// Bounded is At for a computed instant. It replaces an instant that the form cannot express by the
// last one that it can.
func Bounded(t time.Time) Time {
	if t.After(last) {
		return Time{last}
	}
	return Time{t}
}

// AtPtr returns *t as a Time, or nil.
func AtPtr(t *time.Time) *Time {
	if t == nil {
		return nil
	}
	return &Time{*t}
}

// form is the grammar of RFC 3339. time.Parse alone accepts more: a comma before the fraction, an
// hour of one digit, and offsets of any size.
var form = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// half matches two values that callers often send instead of an instant: a date, and seconds since
// 1970.
var half = regexp.MustCompile(`^(\d{4}-\d\d-\d\d|\d{9,13}(\.\d+)?)$`)

// ParseTime reads an RFC 3339 instant and returns it in UTC, truncated to the microsecond as
// Postgres stores it. Impossible dates, a second of 60, and years that Postgres or RFC 3339 cannot
// express are errors.
func ParseTime(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || !form.MatchString(s) {
		const wanted = "must be an existing RFC 3339 date and time with offset, such as 2026-01-31T00:00:00Z"
		if half.MatchString(s) {
			return time.Time{}, errors.New(wanted + ", and neither a date alone nor a number of seconds")
		}
		return time.Time{}, errors.New(wanted)
	}
	t = t.UTC().Truncate(time.Microsecond)
	if t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}, errors.New("must lie in the years 1 to 9999, in UTC")
	}
	return t, nil
}

// Alike reports whether t and u have the same outgoing form. Postgres stores more digits than the
// form shows, so an instant that a caller has read and sends back counts as the same.
func (t Time) Alike(u Time) bool { return t.String() == u.String() }

// String returns the outgoing form.
func (t Time) String() string { return string(t.append(make([]byte, 0, len(layout)))) }

// MarshalText writes the outgoing form, also as a JSON string.
func (t Time) MarshalText() ([]byte, error) { return t.append(make([]byte, 0, len(layout))), nil }

// append does what AppendFormat(b, layout) does, but faster: AppendFormat parses the layout at each
// call.
func (t Time) append(b []byte) []byte {
	at := t.Time.UTC()
	year, month, day := at.Date()
	if year < 0 || year > 9999 {
		return at.AppendFormat(b, layout)
	}
	hour, minute, second := at.Clock()
	thousandths := at.Nanosecond() / 1_000_000
	b = append(two(two(b, year/100), year%100), '-')
	b = append(two(b, int(month)), '-')
	b = append(two(b, day), 'T')
	b = append(two(b, hour), ':')
	b = append(two(b, minute), ':')
	b = append(two(b, second), '.')
	return append(two(b, thousandths/10), byte('0'+thousandths%10), 'Z')
}

// two appends n as two digits.
func two(b []byte, n int) []byte { return append(b, byte('0'+n/10), byte('0'+n%10)) }

// UnmarshalText reads the incoming form.
func (t *Time) UnmarshalText(b []byte) error {
	p, err := ParseTime(string(b))
	if err != nil {
		return err
	}
	t.Time = p
	return nil
}

// UnmarshalJSON reads the incoming form from a JSON string. As usual in Go, null
// leaves the instant as it is.
func (t *Time) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	if len(b) < 2 || b[0] != '"' || b[len(b)-1] != '"' {
		return fmt.Errorf("must be a string")
	}
	return t.UnmarshalText(b[1 : len(b)-1])
}

// Bind reads the incoming form from a query parameter.
func (t *Time) Bind(s string) error { return t.UnmarshalText([]byte(s)) }

// Scan reads an instant from a row.
func (t *Time) Scan(src any) error {
	at, ok := src.(time.Time)
	if !ok {
		return fmt.Errorf("an instant came as %T", src)
	}
	t.Time = at
	return nil
}

// Value returns the instant for a column.
func (t Time) Value() (driver.Value, error) { return t.Time, nil }
