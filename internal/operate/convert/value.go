package convert

import (
	"encoding/json"
	"strconv"
	"strings"
)

type kind uint8

const (
	kindObject kind = iota
	kindArray
	kindText
	kindNumber
	kindBoolean
	kindNull
)

// value is a JSON value or a cell of a table, with its place in the input.
type value struct {
	kind    kind
	damaged bool      // half a surrogate pair was replaced
	quoted  bool      // a cell of a table in quotes
	line    int       // line of the value's first character
	index   int       // position among the members or items of parent
	count   int       // number of its own members or items
	name    string    // name as a member of parent
	text    string    // a text, the digits of a number, true or false
	at      *position // place of the outermost value

	parent, first, last, next *value
}

// position is the place of an outermost value.
type position struct {
	file  string
	steps []step // path within the document; the walker changes it while it reads
	table bool   // the value is a row of a table; its members have the names of the columns

	separator byte // separator of the cells
}

// table returns the position of a cell's row, or nil if the value is not a cell.
func (v *value) table() *position {
	if v.parent == nil || v.parent.at == nil || !v.parent.at.table {
		return nil
	}
	return v.parent.at
}

// as returns a copy of the value with another text, at the same place.
func (v *value) as(text string) *value {
	c := *v
	c.kind, c.text = kindText, text
	return &c
}

// nodes allocates the values of one tree. The next tree reuses the memory.
type nodes struct {
	chunks [][]value
	n      int
}

const chunk = 256

func (a *nodes) reset() {
	if len(a.chunks) > 1024 {
		a.chunks = nil // one tree was huge; free its memory
	}
	a.n = 0
}

func (a *nodes) add(parent *value, name string, line int) *value {
	if a.n == len(a.chunks)*chunk {
		a.chunks = append(a.chunks, make([]value, chunk))
	}
	v := &a.chunks[a.n/chunk][a.n%chunk]
	a.n++
	*v = value{parent: parent, name: name, line: line}
	if parent != nil {
		parent.put(v)
	}
	return v
}

func (v *value) put(child *value) {
	if v.last == nil {
		v.first = child
	} else {
		v.last.next = child
	}
	v.last = child
	child.index = v.count
	v.count++
}

// get returns the member of an object with that name, or nil.
func (v *value) get(name string) *value {
	if v == nil || v.kind != kindObject {
		return nil
	}
	for c := v.first; c != nil; c = c.next {
		if c.name == name {
			return c
		}
	}
	return nil
}

// list returns the items of an array, and nil for any other value.
func (v *value) list() []*value { return v.children(kindArray) }

// members returns the members of an object, and nil for any other value.
func (v *value) members() []*value { return v.children(kindObject) }

func (v *value) children(of kind) []*value {
	if v == nil || v.kind != of {
		return nil
	}
	var all []*value
	for c := v.first; c != nil; c = c.next {
		all = append(all, c)
	}
	return all
}

// none reports whether a value is missing or null.
func (v *value) none() bool { return v == nil || v.kind == kindNull }

// empty reports whether a value is null, {} or [].
func (v *value) empty() bool { return v.kind == kindNull || v.kind <= kindArray && v.count == 0 }

// where returns the file of a value and its path within the document.
func (v *value) where() (file, path string) {
	var up []string
	for ; v.parent != nil; v = v.parent {
		name := v.name
		if v.parent.kind == kindArray {
			name = strconv.Itoa(v.index)
		}
		up = append(up, name)
	}
	if v.at == nil {
		return "", ""
	}
	if v.at.table {
		if len(up) > 0 {
			path = "column " + strconv.Quote(shorten(up[0], maxName))
		}
		return v.at.file, path
	}
	path = pathOf(v.at.steps)
	for i := len(up) - 1; i >= 0; i-- {
		path += "/" + escaped(up[i])
	}
	return v.at.file, path
}

// maxName bounds the characters of a name in messages and reports.
const maxName = 100

var pointer = strings.NewReplacer("~", "~0", "/", "~1")

// escaped returns a name as a token of a JSON pointer (RFC 6901).
func escaped(name string) string { return pointer.Replace(shorten(name, maxName)) }

// whole returns the value in the form that encoding/json would decode.
func (v *value) whole() any {
	switch v.kind {
	case kindObject:
		m := make(map[string]any)
		for c := v.first; c != nil; c = c.next {
			m[c.name] = c.whole()
		}
		return m
	case kindArray:
		a := []any{}
		for c := v.first; c != nil; c = c.next {
			a = append(a, c.whole())
		}
		return a
	case kindNumber:
		return json.Number(v.text)
	case kindBoolean:
		return v.text == "true"
	case kindNull:
		return nil
	default:
		return v.text
	}
}

// shown returns a short form of the value for error messages.
func (v *value) shown() string {
	switch v.kind {
	case kindObject:
		return "an object"
	case kindArray:
		return "a list"
	case kindText:
		return strconv.Quote(shorten(v.text, 40))
	case kindNull:
		return "null"
	default:
		return shorten(v.text, 40)
	}
}

// shorten cuts a text to most characters, of which the last is an ellipsis.
func shorten(s string, most int) string {
	n, end := 0, 0
	for i := range s {
		if n == most-1 {
			end = i
		}
		if n++; n > most {
			return s[:end] + "…"
		}
	}
	return s
}

// relined sets the line of everything below a value to the value's line, for JSON that was
// the content of one string.
func (v *value) relined() {
	for c := v.first; c != nil; c = c.next {
		c.line = v.line
		c.relined()
	}
}
