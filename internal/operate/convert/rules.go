package convert

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
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

// amount is a number as a bot wrote it: rounded down, and held within what can be
// added without running over.
type amount struct {
	n        int64
	fraction bool
}

const tooLarge = 1 << 60 // stands for everything that is too much

// decimal reads a number as it was written.
func decimal(s string) (amount, bool) {
	if len(s) > maxDigits {
		return amount{}, false
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return amount{n: min(max(n, -tooLarge), tooLarge)}, true
	}
	if !isNumber([]byte(strings.TrimPrefix(s, "+"))) {
		return amount{}, false
	}
	mantissa, exponent, has := strings.Cut(strings.ToLower(s), "e")
	if has {
		e, _ := strconv.Atoi(exponent) // the largest or the smallest, where it is beyond them
		switch {
		case strings.Trim(mantissa, "+-0.") == "":
			return amount{}, true
		case e > maxDigits:
			return amount{n: cond[int64](strings.HasPrefix(s, "-"), -tooLarge, tooLarge)}, true
		case e < -2*maxDigits:
			return amount{n: cond[int64](strings.HasPrefix(s, "-"), -1, 0), fraction: true}, true
		}
	}
	q, ok := new(big.Rat).SetString(s)
	if !ok {
		return amount{}, false
	}
	whole, rest := new(big.Int).DivMod(q.Num(), q.Denom(), new(big.Int))
	a := amount{n: tooLarge, fraction: rest.Sign() != 0}
	if q.Sign() < 0 {
		a.n = -tooLarge
	}
	if whole.IsInt64() {
		a.n = min(max(whole.Int64(), -tooLarge), tooLarge)
	}
	return a, true
}

// number reads XP or coins. In a table thousands may stand apart, in quotes.
func (r *conversion) number(v *value) (amount, error) {
	s := strings.TrimSpace(v.text)
	if v.quoted && thousands(s) {
		s = strings.ReplaceAll(s, ",", "")
	}
	if v.kind == kindNumber || v.kind == kindText {
		if a, ok := decimal(s); ok {
			return a, nil
		}
	}
	return amount{}, wrong(v, "must be a whole number; it is "+v.shown())
}

// thousands reports whether a text is 1,234,567.
func thousands(s string) bool {
	whole, _, _ := strings.Cut(strings.TrimPrefix(s, "-"), ".")
	groups := strings.Split(whole, ",")
	for i, g := range groups {
		if !digits(g) || len(g) > 3 || i > 0 && len(g) < 3 {
			return false
		}
	}
	return len(groups) > 1
}

// coins reads a pocket, which may be without a bottom.
func (r *conversion) coins(v *value) (amount, error) {
	switch {
	case v.kind == kindNull, v.text == "Infinity":
		return amount{n: tooLarge}, nil
	case v.text == "-Infinity":
		return amount{n: -tooLarge}, nil
	}
	return r.number(v)
}

// settle makes of a number one that a record can hold, and says where that changed
// it. was is what is listed, at where it stood.
func (r *conversion) settle(a amount, at *value, was any) int64 {
	switch {
	case a.n < 0:
		r.change(at, "was below 0 and became 0", was)
		return 0
	case a.n > maxWhole:
		r.change(at, "was above 9007199254740991 and became that", was)
		return maxWhole
	case a.fraction:
		r.change(at, "was a fraction and is rounded down", was)
	}
	return a.n
}

// xp reads a number of XP.
func (r *conversion) xp(v *value) (int64, error) {
	a, err := r.number(v)
	if err != nil {
		return 0, err
	}
	return r.settle(a, v, v.whole()), nil
}

// whole reads a number that counts something, such as a case's own.
func (r *conversion) whole(v *value) (int64, error) {
	a, err := r.number(v)
	if err != nil || a.fraction || a.n < 1 || a.n > maxNumber {
		err = wrong(v, "must be a whole number from 1; it is "+v.shown())
	}
	return a.n, err
}

var (
	// theFirst is when the platform began; before it nothing can have happened.
	theFirst = time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC)
	layouts  = []string{
		time.RFC3339, "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 Z07:00", "2006-01-02 15:04:05-0700", "2006-01-02 15:04:05 -0700",
		"2006-01-02 15:04:05-07", // of Postgres
		"2006-01-02 15:04:05", "2006-01-02T15:04:05",
	}
)

const (
	epoch        = 1420070400000 // ms; ids of the platform count from then
	milliseconds = 1e11          // from here on a number of time is one of milliseconds
	lastInstant  = 253402300799  // s; the year 9999
)

// clock reads an instant in any form that bots write; ok is false where there is none.
func (r *conversion) clock(v *value, zone *time.Location) (at *stamp, err error) {
	if v.none() || strings.TrimSpace(v.text) == "" && v.kind == kindText {
		return nil, nil
	}
	s := strings.TrimSpace(v.text)
	if isNumber([]byte(s)) {
		if t, ok := fromEpoch(s); ok {
			return &stamp{t}, nil
		}
	}
	if v.kind == kindText {
		for _, layout := range layouts {
			if t, err := time.ParseInLocation(layout, s, zone); err == nil && t.UTC().Year() >= 1 && t.UTC().Year() <= 9999 {
				return &stamp{t.UTC().Truncate(time.Millisecond)}, nil
			}
		}
	}
	return nil, wrong(v, "must be a date and time such as 2024-03-01 10:00:00, or a number of seconds; it is "+v.shown())
}

func fromEpoch(s string) (time.Time, bool) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return time.Time{}, false
	}
	if math.Abs(f) >= milliseconds {
		f /= 1000
	}
	if math.Abs(f) > lastInstant || f < -62135596800 {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(math.Round(f * 1000))).UTC(), true
}

// instant is when something happened: not before the platform, and not later than now.
func (r *conversion) instant(v *value) (*stamp, error) {
	at, err := r.clock(v, r.tz)
	if at == nil {
		return nil, err
	}
	r.early(v, at)
	if at.After(r.o.At) {
		r.change(v, "lies after the instant of the conversion and became that", v.whole())
		return &stamp{r.o.At}, nil
	}
	return at, nil
}

// deadline is when something ends, which may lie ahead.
func (r *conversion) deadline(v *value) (*stamp, error) {
	at, err := r.clock(v, r.tz)
	if at != nil {
		r.early(v, at)
	}
	return at, err
}

func (r *conversion) early(v *value, at *stamp) {
	if at.Before(theFirst) {
		r.warn(v, "lies before 2015")
	}
}

// mintedAt is the instant at which the platform gave an id; none if it cannot have.
func mintedAt(id string) *stamp {
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil || len(id) < 15 {
		return nil
	}
	return &stamp{time.UnixMilli(int64(n>>22) + epoch).UTC()}
}

// made is the same, held against the instant of the conversion.
func (r *conversion) made(id string, v *value) *stamp {
	at := mintedAt(id)
	if at != nil && at.After(r.o.At) {
		r.change(v, "lies after the instant of the conversion and became that", id)
		return &stamp{r.o.At}
	}
	return at
}

// since is when something with an id of the platform happened; where nobody says, when
// the id was given.
func (r *conversion) since(v *value, id string, of *value) (*stamp, error) {
	at, err := r.instant(v)
	if err != nil || at != nil {
		return at, err
	}
	return r.made(id, of), nil
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
	r.records[id] = at.line
	return false
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
