package convert

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"guildhall/internal/base/schema"
)

// wrong returns an error about a value, with the value's place.
func wrong(v *value, what string) error {
	if v == nil {
		return &Error{Text: what}
	}
	file, path := v.where()
	return &Error{File: file, Line: v.line, Path: path, Text: what}
}

// required returns a member of an object, or an error if the object lacks it.
func required(v *value, name string) (*value, error) {
	if c := v.get(name); c != nil {
		return c, nil
	}
	file, path := v.where()
	return nil, &Error{File: file, Line: v.line, Path: path + "/" + name, Text: "is missing", missing: true}
}

// snowflake reads an id as text. A float64 would lose the last digits of an id with 18 digits.
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

// rounding detects ids that a program has rounded to floating-point numbers.
type rounding struct {
	exact bool            // an id that does not end in 0 was found
	round map[string]bool // different ids that end in 0
	first Place
}

const (
	roundIDs = 20 // by chance, 20 ids all end in 0 once in 10^20
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

// parseFlag reads a boolean. A missing value is false.
func parseFlag(v *value) (bool, error) {
	if v.none() {
		return false, nil
	}
	if v.kind != kindBoolean {
		return false, wrong(v, "must be true or false; it is "+v.shown())
	}
	return v.text == "true", nil
}

// id reads the id of a member or a channel. The id is empty if the value means nobody: missing,
// null, and the values that bots store for a deleted or unknown user.
func (r *conversion) id(v *value) (string, error) {
	if v.none() {
		return "", nil
	}
	if v.kind == kindText || v.kind == kindNumber {
		switch strings.TrimSpace(v.text) {
		case "", "0", "default", "3553": // the last is Red's value for a deleted user, 0xDE1
			return "", nil
		}
	}
	if m := mention.FindStringSubmatch(strings.TrimSpace(v.text)); m != nil && r.f.people != "" {
		return r.key(v.as(m[1]))
	}
	return r.key(v)
}

var mention = regexp.MustCompile(`^<@!?([0-9]+)>$`)

const (
	minPerson = 15 // digits of the oldest user ids
	maxPerson = 20
)

// person reads the id of a member, a moderator or an author, which has 15 to 20 digits. A shorter
// number is the id of a row: with it, money or bans would belong to nobody. member is the record's
// member for which the id is read.
func (r *conversion) person(v *value, member string) (string, error) {
	id, err := r.id(v)
	if err == nil && id != "" && !isID(id) {
		ask := ""
		if r.f.people != "" {
			ask = "; which " + r.f.people + " has it? --map " + member + "=" + strings.ToUpper(r.f.people)
		}
		err = wrong(v, shorten(id, 40)+" is no id of the platform"+ask)
	}
	return id, err
}

// key reads the id of a channel or a message, from which a record's id is made.
func (r *conversion) key(v *value) (string, error) {
	id, err := snowflake(v)
	if err == nil {
		r.ids.see(id, v)
	}
	return id, err
}

// subject reads the member whom a record is about. If the value means nobody, subject returns an
// empty string and reports the record as left out.
func (r *conversion) subject(v *value, of *value) (string, error) {
	id, err := r.person(v, "user_id")
	if err == nil && id == "" {
		r.leave(of, "about nobody: its member is deleted or not known")
	}
	return id, err
}

// text reads a text and cuts it to most characters. A missing text is empty.
func (r *conversion) text(v *value, most int) (string, error) {
	s, err := r.prose(v)
	return r.cut(v, s, most), err
}

// prose reads a text of any length. A missing text is empty.
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

// cut shortens a text to most characters and reports the whole text as changed.
func (r *conversion) cut(v *value, s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	r.change(v, "was longer than "+strconv.Itoa(most)+" characters and is cut", s)
	return shorten(s, most)
}

// The functions below add to the report, in the writing pass only, so that an earlier pass
// counts nothing twice.

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

// brief returns a value for the report, or nil if it is a long text.
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

// maxPaths bounds the different paths that a report counts. Further paths are counted together as
// others.
const (
	maxPaths = 1000
	others   = "(others)"
)

// cameBefore reports whether a record with this id was read before. It then reports the
// record as left out.
func (r *conversion) cameBefore(id string, at *value) bool {
	if r.records[id] > 0 {
		r.leave(at, "came twice")
		return true
	}
	r.records[id] = r.row(at)
	return false
}

// row encodes the file and the line of a value.
func (r *conversion) row(at *value) int64 { return int64(len(r.names))<<32 | int64(at.line) }

// rowPlace returns the line of a row, with its file if that is not the current one.
func (r *conversion) rowPlace(row int64) string {
	line := "line " + strconv.FormatInt(row&(1<<32-1), 10)
	if file := int(row >> 32); file < len(r.names) {
		line += " of " + r.names[file-1]
	}
	return line
}

// drop counts a value at a path that has no place in a guild file.
func (r *conversion) drop(p *pattern) { r.dropAt(p.shown) }

// unused counts members that have no meaning in the object's state, such as the closer of an open
// ticket.
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
