package convert

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"guildhall/internal/base/schema"
)

// wrong is an error about a value.
func wrong(v *value, what string) error {
	if v == nil {
		return &Error{Text: what}
	}
	file, path := v.where()
	return &Error{File: file, Line: v.line, Path: path, Text: what}
}

// required is a member that has to be there.
func required(v *value, name string) (*value, error) {
	if c := v.get(name); c != nil {
		return c, nil
	}
	file, path := v.where()
	return nil, &Error{File: file, Line: v.line, Path: path + "/" + name, Text: "is missing", missing: true}
}

// snowflake reads an id as the text of digits that it is. It never becomes a
// floating number, which has digits for 15 of its 18 places.
func snowflake(v *value) (string, error) {
	id := strings.TrimSpace(v.text)
	switch {
	case v.kind != kindText && v.kind != kindNumber:
		return "", wrong(v, "must be an id of digits; it is "+v.shown())
	case digits(id) && id[0] != '0':
		if _, err := strconv.ParseUint(id, 10, 64); err == nil {
			return id, nil
		}
	case strings.ContainsAny(id, ".eE") && isNumber([]byte(strings.Replace(id, ",", ".", 1))):
		return "", wrong(v, "must be an id of digits; it is "+v.shown()+": the digits are lost; export again with the column as text")
	}
	return "", wrong(v, "must be an id of digits; it is "+v.shown())
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// rounding watches for ids that a program has rounded.
type rounding struct {
	exact bool            // an id that does not end in 0 has been seen
	round map[string]bool // those that do
	first Place
}

const (
	roundIDs = 20 // so many that all end in 0 by chance come once in 10^20
	longID   = 18
)

func (w *rounding) see(id string, v *value) {
	if w.exact || len(id) < longID {
		return
	}
	if id[len(id)-1] != '0' {
		w.exact, w.round = true, nil
		return
	}
	if w.round == nil {
		w.round = map[string]bool{}
		w.first.File, w.first.Path = v.where()
		w.first.Line = v.line
	}
	if len(w.round) < roundIDs {
		w.round[id] = true
	}
}

func (w *rounding) judge() error {
	if len(w.round) < roundIDs {
		return nil
	}
	return &Error{File: w.first.File, Line: w.first.Line, Path: w.first.Path, Text: "these ids have been rounded: every one ends in 0; " +
		"export again with a program that keeps all digits"}
}

// truth is a value that is true or false; one that is not there is false.
func truth(v *value) (bool, error) {
	if v.none() {
		return false, nil
	}
	if v.kind != kindBoolean {
		return false, wrong(v, "must be true or false; it is "+v.shown())
	}
	return v.text == "true", nil
}

// id is a member of the community or a channel; empty where it is nobody: absent,
// null, and what bots write for somebody who is deleted or was never known.
func (r *conversion) id(v *value) (string, error) {
	if v.none() {
		return "", nil
	}
	if v.kind == kindText || v.kind == kindNumber {
		switch strings.TrimSpace(v.text) {
		case "", "0", "default", "3553": // the last is Red's mark, 0xDE1
			return "", nil
		}
	}
	return r.key(v)
}

// key is the id of a channel or a message that makes the id of a record.
func (r *conversion) key(v *value) (string, error) {
	id, err := snowflake(v)
	if err == nil {
		r.ids.see(id, v)
	}
	return id, err
}

// subject is the member whom a record is about; empty if it is nobody, and the
// record is left out.
func (r *conversion) subject(v *value, of *value) (string, error) {
	id, err := r.id(v)
	if err == nil && id == "" {
		r.leave(of, "about nobody: its member is deleted or not known")
	}
	return id, err
}

// text reads a text of at most so many characters; empty where there is none.
func (r *conversion) text(v *value, most int) (string, error) {
	s, err := r.prose(v)
	return r.cut(v, s, most), err
}

// prose reads a text of any length.
func (r *conversion) prose(v *value) (string, error) {
	if v.none() {
		return "", nil
	}
	if v.kind != kindText {
		return "", wrong(v, "must be a text; it is "+v.shown())
	}
	s := v.text
	if v.damaged {
		r.change(v, "held half a character, which cannot be written", s)
	}
	if strings.ContainsRune(s, 0) {
		r.change(v, "held a zero byte, which was taken out", s)
		s = strings.ReplaceAll(s, "\x00", "")
	}
	if schema.Blank(s) {
		return "", nil
	}
	return s, nil
}

// cut shortens a text that is too long for its member; the whole is listed.
func (r *conversion) cut(v *value, s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	r.change(v, "was longer than "+strconv.Itoa(most)+" characters and is cut", s)
	return shorten(s, most)
}

// The ways in which something is not what it was. They count while the file is
// written, so that a second look at the input counts nothing twice.

func (r *conversion) place(v *value) Place {
	p := Place{Line: v.line}
	p.File, p.Path = v.where()
	return p
}

func (r *conversion) leave(v *value, why string) { r.find(&r.report.LeftOut, v, why, v.whole, false) }

func (r *conversion) change(v *value, why string, was any) {
	r.find(&r.report.Changed, v, why, func() any { return was }, true)
}

func (r *conversion) warn(v *value, why string) {
	if r.stage == writing {
		add(&r.report.Warnings, why, r.place(v))
	}
}

func (r *conversion) find(list *[]*Finding, v *value, why string, whole func() any, show bool) {
	if r.stage != writing {
		return
	}
	at := r.place(v)
	if r.lost != nil {
		r.fail(r.lost.add(at, why, whole()))
	}
	if show {
		at.Value = brief(whole())
	}
	add(list, why, at)
}

// brief is a value that a report shows: short ones only.
func brief(whole any) any {
	if s, ok := whole.(string); ok && len(s) > 100 {
		return nil
	}
	return whole
}

func (r *conversion) fail(err error) {
	if r.failed == nil {
		r.failed = err
	}
}

// maxPaths bounds the paths that are told apart, since a file may hold any number.
const (
	maxPaths = 1000
	others   = "(others)"
)

// cameBefore reports whether a record has come already, and leaves it out then.
func (r *conversion) cameBefore(id string, at *value) bool {
	if r.records[id] > 0 {
		r.leave(at, "came twice")
		return true
	}
	r.records[id] = r.row(at)
	return false
}

// row is where a value stands in the input, file and line.
func (r *conversion) row(at *value) int64 { return int64(len(r.names))<<32 | int64(at.line) }

// rowPlace says where a row stands, as seen from the file that is being read.
func (r *conversion) rowPlace(row int64) string {
	line := "line " + strconv.FormatInt(row&(1<<32-1), 10)
	if file := int(row >> 32); file < len(r.names) {
		line += " of " + r.names[file-1]
	}
	return line
}

// drop counts what is known to have no place.
func (r *conversion) drop(p *pattern) { r.dropAt(p.shown) }

// unused counts members that say nothing in the state in which their object is.
func (r *conversion) unused(of *value, state string, members ...string) {
	for _, name := range members {
		if !of.get(name).none() {
			r.dropAt(deeper("", name) + " of " + state)
		}
	}
}

func (r *conversion) dropAt(path string) {
	if r.stage != writing {
		return
	}
	if _, there := r.report.NoPlace[path]; !there && len(r.report.NoPlace) >= maxPaths {
		path = others
	}
	r.report.NoPlace[path]++
}

func (r *conversion) unknown(v *value, path string) {
	at := r.place(v)
	if r.stage == writing && r.lost != nil {
		r.fail(r.lost.add(at, "unknown", v.whole()))
	}
	r.note(path, at)
}

func (r *conversion) note(path string, at Place) {
	if r.stage != writing {
		return
	}
	if _, there := r.report.Unknown[path]; !there && len(r.report.Unknown) >= maxPaths {
		path = others
	}
	if r.report.Unknown[path]++; r.report.Unknown[path] == 1 {
		r.report.unknownFirst[path] = at
	}
}
