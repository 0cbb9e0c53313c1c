package guildfile

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds nesting; no record needs more than four levels.
const maxDepth = 32

// The kinds of JSON value.
const (
	isString byte = 's'
	isNumber byte = 'n'
	isTrue   byte = 't'
	isFalse  byte = 'f'
	isNull   byte = '0'
	isArray  byte = '['
	isObject byte = '{'
)

// value is a JSON value. Text holds a string's characters or a number's
// literal, which is kept as written so that no integer loses digits.
type value struct {
	kind    byte
	text    string
	items   []value
	members []member
}

type member struct {
	name  string
	value value
	used  bool
}

// parser reads one JSON object at a time, more strictly than encoding/json:
// names must be unique, text must be valid Unicode without U+0000, and nothing
// is repaired silently.
type parser struct {
	in      []byte
	at      int
	members []member // the outermost object's, reused from line to line
}

// object reads a line that must hold one JSON object. The members are valid
// until the next call.
func (p *parser) object(line []byte) ([]member, error) {
	p.in, p.at = line, 0
	p.space()
	if p.peek() != '{' {
		return nil, errors.New("is not a JSON object")
	}
	var err error
	if p.members, err = p.pairs(p.members[:0], 1); err != nil {
		return nil, err
	}
	p.space()
	if p.at < len(p.in) {
		return nil, fmt.Errorf("is not one JSON object: text follows it at byte %d", p.at+1)
	}
	return p.members, nil
}

func (p *parser) peek() byte {
	if p.at < len(p.in) {
		return p.in[p.at]
	}
	return 0
}

func (p *parser) space() {
	for p.at < len(p.in) {
		switch p.in[p.at] {
		case ' ', '\t', '\r', '\n':
			p.at++
		default:
			return
		}
	}
}

func (p *parser) malformed(what string) error {
	return fmt.Errorf("is not valid JSON: %s at byte %d", what, p.at+1)
}

// pairs reads an object whose brace is next.
func (p *parser) pairs(into []member, depth int) ([]member, error) {
	if depth > maxDepth {
		return nil, p.malformed(fmt.Sprintf("nested deeper than %d", maxDepth))
	}
	p.at++
	p.space()
	if p.peek() == '}' {
		p.at++
		return into, nil
	}
	for {
		p.space()
		if p.peek() != '"' {
			return nil, p.malformed("a member name is missing")
		}
		name, err := p.str()
		if err != nil {
			return nil, err
		}
		for i := range into {
			if into[i].name == name {
				return nil, fmt.Errorf("has the member %q twice", name)
			}
		}
		p.space()
		if p.peek() != ':' {
			return nil, p.malformed("a colon is missing")
		}
		p.at++
		v, err := p.value(depth)
		if err != nil {
			return nil, err
		}
		into = append(into, member{name: name, value: v})
		p.space()
		switch p.peek() {
		case ',':
			p.at++
		case '}':
			p.at++
			return into, nil
		default:
			return nil, p.malformed("a comma or closing brace is missing")
		}
	}
}

func (p *parser) list(depth int) ([]value, error) {
	if depth > maxDepth {
		return nil, p.malformed(fmt.Sprintf("nested deeper than %d", maxDepth))
	}
	p.at++
	p.space()
	if p.peek() == ']' {
		p.at++
		return nil, nil
	}
	var items []value
	for {
		v, err := p.value(depth)
		if err != nil {
			return nil, err
		}
		items = append(items, v)
		p.space()
		switch p.peek() {
		case ',':
			p.at++
		case ']':
			p.at++
			return items, nil
		default:
			return nil, p.malformed("a comma or closing bracket is missing")
		}
	}
}

// value reads any value that lies inside something nested depth deep.
func (p *parser) value(depth int) (v value, err error) {
	p.space()
	switch c := p.peek(); {
	case c == '"':
		v.kind = isString
		v.text, err = p.str()
	case c == '{':
		v.kind = isObject
		v.members, err = p.pairs(nil, depth+1)
	case c == '[':
		v.kind = isArray
		v.items, err = p.list(depth + 1)
	case c == '-' || c >= '0' && c <= '9':
		v.kind = isNumber
		v.text, err = p.number()
	default:
		v.kind, err = p.word()
	}
	return v, err
}

func (p *parser) word() (byte, error) {
	for _, w := range [...]struct {
		text string
		kind byte
	}{{"true", isTrue}, {"false", isFalse}, {"null", isNull}} {
		if end := p.at + len(w.text); end <= len(p.in) && string(p.in[p.at:end]) == w.text {
			p.at = end
			return w.kind, nil
		}
	}
	return 0, p.malformed("a value is missing")
}

func (p *parser) digits() bool {
	from := p.at
	for p.peek() >= '0' && p.peek() <= '9' {
		p.at++
	}
	return p.at > from
}

func (p *parser) number() (string, error) {
	from := p.at
	if p.peek() == '-' {
		p.at++
	}
	if p.peek() == '0' {
		p.at++
	} else if !p.digits() {
		return "", p.malformed("a digit is missing")
	}
	if p.peek() == '.' {
		p.at++
		if !p.digits() {
			return "", p.malformed("a digit is missing")
		}
	}
	if p.peek() == 'e' || p.peek() == 'E' {
		p.at++
		if p.peek() == '+' || p.peek() == '-' {
			p.at++
		}
		if !p.digits() {
			return "", p.malformed("a digit is missing")
		}
	}
	if c := p.peek(); c >= '0' && c <= '9' {
		return "", p.malformed("a number begins with 0")
	}
	return string(p.in[from:p.at]), nil
}

// str reads a string whose quote is next.
func (p *parser) str() (string, error) {
	p.at++
	from := p.at
	for p.at < len(p.in) {
		switch c := p.in[p.at]; {
		case c == '"':
			s := p.in[from:p.at]
			p.at++
			return text(s)
		case c == '\\':
			return p.escaped(append([]byte(nil), p.in[from:p.at]...))
		case c < 0x20:
			return "", p.malformed("an unescaped control character stands in a string")
		default:
			p.at++
		}
	}
	return "", p.malformed("a closing quote is missing")
}

// escaped goes on reading a string from its first escape; s is what came
// before.
func (p *parser) escaped(s []byte) (string, error) {
	for p.at < len(p.in) {
		c := p.in[p.at]
		switch {
		case c == '"':
			p.at++
			return text(s)
		case c < 0x20:
			return "", p.malformed("an unescaped control character stands in a string")
		case c != '\\':
			s = append(s, c)
			p.at++
			continue
		}
		p.at++
		switch c := p.peek(); c {
		case '"', '\\', '/':
			s = append(s, c)
		case 'b':
			s = append(s, '\b')
		case 'f':
			s = append(s, '\f')
		case 'n':
			s = append(s, '\n')
		case 'r':
			s = append(s, '\r')
		case 't':
			s = append(s, '\t')
		case 'u':
			r, err := p.unicode()
			if err != nil {
				return "", err
			}
			s = utf8.AppendRune(s, r)
			continue
		default:
			return "", p.malformed("an unknown escape stands in a string")
		}
		p.at++
	}
	return "", p.malformed("a closing quote is missing")
}

// unicode reads \uXXXX, or a pair of them, from its u on.
func (p *parser) unicode() (rune, error) {
	r, ok := p.hex()
	if !ok {
		return 0, p.malformed("an unknown escape stands in a string")
	}
	if !utf16.IsSurrogate(r) {
		return r, nil
	}
	if p.peek() == '\\' && p.at+1 < len(p.in) && p.in[p.at+1] == 'u' {
		p.at++
		low, ok := p.hex()
		if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
			return pair, nil
		}
	}
	return 0, errors.New("holds half of a surrogate pair, which is no character")
}

// hex reads the u and four hexadecimal digits.
func (p *parser) hex() (rune, bool) {
	if p.at+5 > len(p.in) {
		return 0, false
	}
	var r rune
	for _, c := range p.in[p.at+1 : p.at+5] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	p.at += 5
	return r, true
}

func text(b []byte) (string, error) {
	if !utf8.Valid(b) {
		return "", errors.New("is not valid UTF-8")
	}
	for _, c := range b {
		if c == 0 {
			return "", errors.New("holds the character U+0000")
		}
	}
	return string(b), nil
}

// integer is v as an integer literal; a fraction or exponent is refused even
// when the value is whole, as the API does.
func (v *value) integer() (int64, error) {
	if v.kind != isNumber {
		return 0, errors.New("must be an integer")
	}
	n, err := strconv.ParseInt(v.text, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, errors.New("is out of range")
	}
	if err != nil {
		return 0, errors.New("must be an integer, written without fraction or exponent")
	}
	return n, nil
}
