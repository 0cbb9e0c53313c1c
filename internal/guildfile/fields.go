package guildfile

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"guildhall/internal/wire"
)

// maxInteger is the largest integer that every JSON reader holds exactly.
const maxInteger = 1<<53 - 1

// fields gives out a record's members by name and type. The first thing that
// is wrong is kept in err; what is asked for after that does not matter. A null
// is the same as a member that is left out.
type fields struct {
	path    string // "economy." inside that member, empty outside
	members []member
	err     *string
}

func newFields(members []member) fields { return fields{members: members, err: new(string)} }

func (f fields) fail(name, format string, args ...any) {
	if *f.err == "" {
		*f.err = f.path + name + " " + fmt.Sprintf(format, args...)
	}
}

// take finds a member and marks it as known. It is nil when absent or null.
func (f fields) take(name string, required bool) *value {
	for i := range f.members {
		if m := &f.members[i]; m.name == name {
			m.used = true
			if m.value.kind != isNull {
				return &m.value
			}
			if required {
				f.fail(name, "must not be null")
			}
			return nil
		}
	}
	if required {
		f.fail(name, "is missing")
	}
	return nil
}

// done reports the first thing that was wrong, an unknown member included.
func (f fields) done() string {
	f.known()
	return *f.err
}

func (f fields) known() {
	for i := range f.members {
		if !f.members[i].used {
			f.fail(f.members[i].name, "is not a member of this record")
		}
	}
}

// text is free text of least to most code points. When least is 0 it may be
// empty; what is not empty must hold a character that is not blank.
func (f fields) text(name string, required bool, least, most int) *string {
	s := f.str(name, required, least, most)
	if s != nil && *s != "" && isBlank(*s) {
		f.fail(name, "must hold a character that is not blank")
	}
	return s
}

// label is text on one line.
func (f fields) label(name string, required bool, least, most int) *string {
	s := f.text(name, required, least, most)
	if s != nil && !wire.OneLine(*s) {
		f.fail(name, "must not hold control characters or line breaks")
	}
	return s
}

func (f fields) str(name string, required bool, least, most int) *string {
	v := f.take(name, required)
	if v == nil {
		return nil
	}
	if v.kind != isString {
		f.fail(name, "must be a string")
		return nil
	}
	switch n := utf8.RuneCountInString(v.text); {
	case n < least:
		f.fail(name, "must have at least %d characters", least)
	case n > most:
		f.fail(name, "must have at most %d characters, not %d", most, n)
	}
	return v.copy()
}

// copy is needed because the parser uses a record's members again.
func (v *value) copy() *string {
	s := v.text
	return &s
}

// id is a resource's id: any string of 1 to 64 characters.
func (f fields) id(name string, required bool) *string {
	return f.str(name, required, 1, 64)
}

func (f fields) snowflake(name string, required bool) *string {
	v := f.take(name, required)
	if v == nil {
		return nil
	}
	if v.kind != isString || !isSnowflake(v.text) {
		f.fail(name, "must be a snowflake: a string of 1 to 20 digits that does not begin with 0")
		return nil
	}
	return v.copy()
}

func (f fields) snowflakes(name string, most int) []string {
	v := f.take(name, false)
	if v == nil {
		return nil
	}
	if v.kind != isArray || len(v.items) > most {
		f.fail(name, "must be a list of at most %d snowflakes", most)
		return nil
	}
	list := make([]string, 0, len(v.items))
	seen := make(map[string]bool, len(v.items))
	for i := range v.items {
		it := &v.items[i]
		if it.kind != isString || !isSnowflake(it.text) {
			f.fail(name, "must hold snowflakes: strings of 1 to 20 digits that do not begin with 0")
			return nil
		}
		if seen[it.text] {
			f.fail(name, "names %s twice", it.text)
		}
		seen[it.text] = true
		list = append(list, it.text)
	}
	return list
}

func (f fields) integer(name string, required bool, least, most int64) *int64 {
	v := f.take(name, required)
	if v == nil {
		return nil
	}
	n, err := v.integer()
	switch {
	case err != nil:
		f.fail(name, "%s", err)
	case n < least || n > most:
		f.fail(name, "must lie between %d and %d", least, most)
	}
	return &n
}

func (f fields) boolean(name string) *bool {
	v := f.take(name, false)
	if v == nil {
		return nil
	}
	if v.kind != isTrue && v.kind != isFalse {
		f.fail(name, "must be true or false")
	}
	b := v.kind == isTrue
	return &b
}

func (f fields) instant(name string, required bool) *time.Time {
	v := f.take(name, required)
	if v == nil {
		return nil
	}
	if v.kind != isString {
		f.fail(name, "must be an RFC 3339 date and time with offset")
		return nil
	}
	t, err := wire.ParseTime(v.text)
	if err != nil {
		f.fail(name, "%s", err)
	}
	// Postgres keeps microseconds, and what lies between them is cut off here
	// so that it cannot be rounded up there.
	t = t.UTC().Truncate(time.Microsecond)
	return &t
}

func (f fields) oneOf(name string, required bool, allowed ...string) *string {
	v := f.take(name, required)
	if v == nil {
		return nil
	}
	if v.kind == isString {
		for _, a := range allowed {
			if v.text == a {
				return v.copy()
			}
		}
	}
	f.fail(name, "must be one of %s", strings.Join(allowed, ", "))
	return nil
}

// hash is 32 bytes, written in hexadecimal.
func (f fields) hash(name string) []byte {
	v := f.take(name, true)
	if v == nil {
		return nil
	}
	b, err := hex.DecodeString(v.text)
	if v.kind != isString || err != nil || len(b) != 32 {
		f.fail(name, "must be 32 bytes in hexadecimal")
	}
	return b
}

// object opens a member that is itself an object; an absent one is empty. The
// caller ends with known, so that its unknown members are found.
func (f fields) object(name string) fields {
	in := fields{path: f.path + name + ".", err: f.err}
	v := f.take(name, false)
	if v == nil {
		return in
	}
	if v.kind != isObject {
		f.fail(name, "must be an object")
	}
	in.members = v.members
	return in
}

func isSnowflake(s string) bool {
	if len(s) < 1 || len(s) > 20 || s[0] == '0' {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// isBlank: nothing but Unicode white space and zero-width characters.
func isBlank(s string) bool {
	for _, r := range s {
		switch r {
		case 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF:
		default:
			if !unicode.IsSpace(r) {
				return false
			}
		}
	}
	return true
}

func or[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}
