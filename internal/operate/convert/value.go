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

// value is a JSON value, or a cell of a table, that knows where it stands.
type value struct {
	kind    kind
	damaged bool      // half a character was replaced in it
	quoted  bool      // a cell of a table that stood in quotes
	line    int       // of its first character
	index   int       // among the members or items of parent
	count   int       // of its own members or items
	name    string    // as a member of parent
	text    string    // a text, the digits of a number, true or false
	at      *position // of the outermost value

	parent, first, last, next *value
}

// position is where an outermost value stands.
type position struct {
	file  string
	steps []step // to it within its document; they change as the reading goes on
	table bool   // its values are cells, which are named by their columns
}

// nodes are the values of one tree; the next tree takes the same memory.
type nodes struct {
	chunks [][]value
	n      int
}

const chunk = 256

func (a *nodes) reset() {
	if len(a.chunks) > 1024 {
		a.chunks = nil // one value was huge; the others need not pay for it
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

// get is a member of an object, nil when it has none of that name.
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

// list is the items of an array; an object has none.
func (v *value) list() []*value { return v.children(kindArray) }

// members are those of an object.
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

// none reports whether a member is not there or null.
func (v *value) none() bool { return v == nil || v.kind == kindNull }

// empty reports whether a value says nothing: null, an object or a list without members.
func (v *value) empty() bool { return v.kind == kindNull || v.kind <= kindArray && v.count == 0 }

// where is the place of a value: the file, and the path in its document.
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

// maxName is how much of a name is shown, which may be anything.
const maxName = 100

var pointer = strings.NewReplacer("~", "~0", "/", "~1")

// escaped is a name as it stands in a JSON pointer.
func escaped(name string) string { return pointer.Replace(shorten(name, maxName)) }

// whole is the value as Go has it, for what lists values.
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

// shown is how an error quotes a value.
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

// shorten cuts a text to so many characters, the last of them an ellipsis.
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

// relined puts everything below a value on its line: it was one text.
func (v *value) relined() {
	for c := v.first; c != nil; c = c.next {
		c.line = v.line
		c.relined()
	}
}
