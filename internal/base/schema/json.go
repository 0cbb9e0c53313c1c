// Package schema reads JSON strictly and checks it against schemas of the contract. Request bodies
// and lines of guild files take the same path, so both have the document's limits and the same
// messages.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth bounds how deep a value may nest. It is several times the depth of any schema.
const maxDepth = 32

// Problem is one problem of a value at one place. A message shows five problems of possibly
// thousands, so detail computes the costly part of the text only for a problem that is shown.
type Problem struct {
	Place  string // a JSON pointer; empty for the whole value
	Text   string
	detail func() string // returns text to append to Text; may be nil
}

// Message returns the text of the problem, without the place.
func (p Problem) Message() string {
	if p.detail == nil {
		return p.Text
	}
	return p.Text + p.detail()
}

func (p Problem) String() string { return p.Place + ": " + p.Message() }

// With returns the problem with text after its message.
func (p Problem) With(text string) Problem {
	return Problem{Place: p.Place, detail: func() string { return p.Message() + text }}
}

// Under returns the problem with prefix before its place.
func (p Problem) Under(prefix string) Problem {
	p.Place = prefix + p.Place
	return p
}

// Read parses JSON more strictly than encoding/json does: one value, valid UTF-8, no duplicate
// members, no lone surrogates, no U+0000, bounded depth, at most maxValues values, and no number
// with a fraction or an exponent, since the contract has only integers. It returns the value for
// Check, and the problems found; ok is false when there is no value to check. A string may be blank
// only if it is empty or if its place matches one of the space-separated patterns in mayBeBlank,
// such as /records/*/content.
func Read(body []byte, maxValues int, mayBeBlank string) (value any, found []Problem, ok bool) {
	if !utf8.Valid(body) {
		return nil, []Problem{{Text: "must be valid UTF-8"}}, false
	}
	// The parser lets lone surrogates through here; loneSurrogate checks for them at the end.
	p := parser{
		Decoder:   jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)),
		maxValues: maxValues, mayBeBlank: strings.Fields(mayBeBlank),
	}
	v, err := p.value()
	if err == nil {
		if _, err = p.ReadToken(); errors.Is(err, io.EOF) {
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
		return nil, []Problem{{Text: err.Error()}}, false
	}
	return v, p.problems, true
}

type parser struct {
	*jsontext.Decoder
	maxValues  int
	mayBeBlank []string // patterns of places where a string may be blank
	values     int
	problems   []Problem
}

// malformed returns an error that says where the body stops being JSON.
func malformed(body []byte) error {
	err := json.Unmarshal(body, new(any))
	at, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return errors.New("must be well-formed JSON")
	}
	if bytes.HasPrefix(body, []byte("\xef\xbb\xbf")) {
		return errors.New("must be well-formed JSON; it begins with a byte order mark (U+FEFF): save or send it without one")
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

func (p *parser) value() (any, error) {
	if p.StackDepth() > maxDepth {
		return nil, fmt.Errorf("must not nest deeper than %d levels", maxDepth)
	}
	if p.values++; p.values > p.maxValues {
		return nil, fmt.Errorf("must not hold more than %d values", p.maxValues)
	}
	tok, err := p.ReadToken()
	if err != nil {
		return nil, errMalformed
	}
	switch tok.Kind() {
	case jsontext.KindBeginObject:
		return p.object()
	case jsontext.KindBeginArray:
		return p.array()
	case jsontext.KindNull:
		return nil, nil
	case jsontext.KindNumber:
		text := tok.String()
		if strings.ContainsAny(text, ".eE") {
			p.wrong("must be an integer, written without fraction or exponent, such as 1202 and not 1202.0")
			return json.Number("0"), nil
		}
		return json.Number(text), nil
	case jsontext.KindString:
		text := tok.String()
		if strings.ContainsRune(text, 0) {
			p.wrong("must not contain U+0000")
		} else if text != "" && Blank(text) {
			if !slices.ContainsFunc(p.mayBeBlank, func(pattern string) bool { may, _ := path.Match(pattern, string(p.StackPointer())); return may }) {
				p.wrong("must contain a character that is not blank")
			}
		}
		return text, nil
	default:
		return tok.Bool(), nil
	}
}

// wrong records a problem at the place that was read last.
func (p *parser) wrong(text string) {
	place := ""
	for name := range p.StackPointer().Tokens() {
		place += "/" + Printable(name)
	}
	p.problems = append(p.problems, Problem{Place: place, Text: text})
}

func (p *parser) object() (any, error) {
	m := map[string]any{}
	for {
		tok, err := p.ReadToken()
		if err != nil {
			return nil, errMalformed
		}
		if tok.Kind() == jsontext.KindEndObject {
			return m, nil
		}
		name := tok.String()
		if _, twice := m[name]; twice {
			p.wrong("must be given once")
		}
		if m[name], err = p.value(); err != nil {
			return nil, err
		}
	}
}

func (p *parser) array() (any, error) {
	a := []any{}
	for p.PeekKind() != jsontext.KindEndArray {
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		a = append(a, v)
	}
	_, err := p.ReadToken()
	return a, err
}

// Printable shortens a member name that a caller sent and escapes it for a message.
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

// Blank reports whether s shows nothing: only white space and zero-width characters.
func Blank(s string) bool {
	for _, r := range s {
		if !unicode.Is(unicode.White_Space, r) && (r < 0x200b || r > 0x200d) && r != 0x2060 && r != 0xfeff {
			return false
		}
	}
	return true
}

// loneSurrogate reports whether well-formed JSON contains a \u escape of a lone surrogate, which
// the decoder would silently replace.
func loneSurrogate(b []byte) bool {
	for i := 0; i+1 < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		i++ // skips the escaped character, also when it is a backslash
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
