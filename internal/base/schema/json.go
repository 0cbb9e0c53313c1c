// Package schema reads JSON strictly and holds it against the schemas of the
// contract. Bodies of requests and lines of guild files go the same way, so that
// both know one set of limits, which is the document's, and are refused in the
// same words.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxDepth bounds how deep a value may nest, several times deeper than any schema.
const maxDepth = 32

// Problem is one offending place.
type Problem struct {
	Place string // a JSON pointer, empty for the whole
	Text  string
}

func (p Problem) String() string { return p.Place + ": " + p.Text }

// Read reads JSON more strictly than encoding/json does: one value, valid UTF-8,
// no duplicate members, no lone surrogates, no U+0000, bounded depth, at most
// that many values, and no number written with a fraction or an exponent, since
// the contract knows only integers. It returns the value for Check and the
// places that are wrong; ok is false when there is no value to check. A text may be
// blank only where it is empty or a member of the name mayBeBlank.
func Read(body []byte, maxValues int, mayBeBlank string) (value any, found []Problem, ok bool) {
	if !utf8.Valid(body) {
		return nil, []Problem{{"", "must be valid UTF-8"}}, false
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	p := parser{dec: dec, maxValues: maxValues, mayBeBlank: mayBeBlank}
	v, err := p.value("", 0)
	if err == nil {
		if _, err = dec.Token(); errors.Is(err, io.EOF) {
			err = nil
		} else {
			err = errors.New("must be one JSON value and nothing after it")
		}
	}
	if err == nil && loneSurrogate(body) {
		err = errors.New(`must not contain lone surrogates (\ud800 to \udfff without their partner)`)
	}
	if errors.Is(err, errMalformed) {
		err = malformed(body)
	}
	if err != nil {
		return nil, []Problem{{"", err.Error()}}, false
	}
	return v, p.problems, true
}

type parser struct {
	dec        *json.Decoder
	maxValues  int
	mayBeBlank string // name of a member, or empty
	values     int
	problems   []Problem
}

// malformed says where the body stops being JSON.
func malformed(body []byte) error {
	err := json.Unmarshal(body, new(any))
	at, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return errors.New("must be well-formed JSON")
	}
	end := min(max(int(at.Offset)-1, 0), len(body))
	line := 1 + bytes.Count(body[:end], []byte("\n"))
	column := 1 + utf8.RuneCount(body[bytes.LastIndexByte(body[:end], '\n')+1:end])
	what := "it is not"
	if int(at.Offset) >= len(body) && strings.Contains(at.Error(), "unexpected end") {
		what = "it ends too early"
		column++
	}
	return fmt.Errorf("must be well-formed JSON; %s at line %d, column %d", what, line, column)
}

var errMalformed = errors.New("must be well-formed JSON")

func (p *parser) value(place string, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("must not nest deeper than %d levels", maxDepth)
	}
	if p.values++; p.values > p.maxValues {
		return nil, fmt.Errorf("must not hold more than %d values", p.maxValues)
	}
	tok, err := p.dec.Token()
	if err != nil {
		return nil, errMalformed
	}
	switch t := tok.(type) {
	case json.Delim:
		if t == '{' {
			return p.object(place, depth)
		}
		return p.array(place, depth)
	case json.Number:
		if strings.ContainsAny(t.String(), ".eE") {
			p.wrong(place, "must be an integer, written without fraction or exponent, such as 1202 and not 1202.0")
			return json.Number("0"), nil
		}
		return t, nil
	case string:
		if strings.ContainsRune(t, 0) {
			p.wrong(place, "must not contain U+0000")
		} else if t != "" && Blank(t) && !p.blankMay(place) {
			p.wrong(place, "must contain a character that is not blank")
		}
		return t, nil
	default:
		return t, nil
	}
}

// blankMay says whether a text may be blank at place.
func (p *parser) blankMay(place string) bool {
	return p.mayBeBlank != "" && strings.HasSuffix(place, "/"+p.mayBeBlank)
}

func (p *parser) wrong(place, text string) {
	p.problems = append(p.problems, Problem{place, text})
}

func (p *parser) object(place string, depth int) (any, error) {
	m := map[string]any{}
	for p.dec.More() {
		tok, err := p.dec.Token()
		if err != nil {
			return nil, errMalformed
		}
		name, ok := tok.(string)
		if !ok {
			return nil, errMalformed
		}
		at := place + "/" + Printable(name)
		if _, twice := m[name]; twice {
			p.wrong(at, "must be given once")
		}
		v, err := p.value(at, depth+1)
		if err != nil {
			return nil, err
		}
		m[name] = v
	}
	if _, err := p.dec.Token(); err != nil {
		return nil, errMalformed
	}
	return m, nil
}

func (p *parser) array(place string, depth int) (any, error) {
	a := []any{}
	for p.dec.More() {
		v, err := p.value(fmt.Sprintf("%s/%d", place, len(a)), depth+1)
		if err != nil {
			return nil, err
		}
		a = append(a, v)
	}
	if _, err := p.dec.Token(); err != nil {
		return nil, errMalformed
	}
	return a, nil
}

// Printable shortens a caller's member name and makes it safe to show.
func Printable(name string) string {
	clean := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, name)
	if utf8.RuneCountInString(clean) > 40 {
		return string([]rune(clean)[:40]) + "…"
	}
	return clean
}

// Blank reports whether s shows nothing: white space and zero-width characters.
func Blank(s string) bool {
	for _, r := range s {
		if !unicode.Is(unicode.White_Space, r) && (r < 0x200b || r > 0x200d) && r != 0x2060 && r != 0xfeff {
			return false
		}
	}
	return true
}

// loneSurrogate reports whether well-formed JSON holds a \u escape of half a
// character. The decoder would replace it silently.
func loneSurrogate(b []byte) bool {
	for i := 0; i+1 < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		i++ // whatever is escaped is consumed, a backslash too
		if b[i] != 'u' {
			continue
		}
		r := hex4(b[i+1:])
		i += 4
		switch {
		case r >= 0xdc00 && r <= 0xdfff:
			return true
		case r >= 0xd800 && r <= 0xdbff:
			if i+6 >= len(b) || b[i+1] != '\\' || b[i+2] != 'u' {
				return true
			}
			if low := hex4(b[i+3:]); low < 0xdc00 || low > 0xdfff {
				return true
			}
			i += 6
		}
	}
	return false
}

func hex4(b []byte) rune {
	var r rune
	for i := 0; i < 4 && i < len(b); i++ {
		r <<= 4
		switch c := b[i]; {
		case c >= '0' && c <= '9':
			r |= rune(c - '0')
		case c >= 'a' && c <= 'f':
			r |= rune(c-'a') + 10
		case c >= 'A' && c <= 'F':
			r |= rune(c-'A') + 10
		}
	}
	return r
}
