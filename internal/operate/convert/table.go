package convert

import (
	"maps"
	"slices"
	"strings"
)

// row is one path of a format. Its last word is a member's name, # for each item
// of a list, or a name in braces for each member of an object by id: {guild} is
// the guild that everything below belongs to. A path stands for all that lies below it,
// unless a longer path says otherwise.
type row struct {
	path string
	to   string // the record and its member; empty: it has no place
	item bool   // an object that is read whole and becomes records
}

// pattern is a table as a tree.
type pattern struct {
	row      *row
	shown    string // its path, with * for ids and items
	names    map[string]*pattern
	index    *pattern // of each item
	any      *pattern // of each member
	key      string   // the name in braces of any
	list     bool     // each item of it is what the file is about
	object   bool     // it is what the file is about itself, or its members are
	interior bool     // it has children
}

func grow(rows []row) *pattern {
	root := &pattern{names: map[string]*pattern{}}
	for i := range rows {
		at := root
		for _, word := range strings.Split(rows[i].path, "/")[1:] {
			at = at.grow(word)
		}
		at.row = &rows[i]
	}
	root.mark()
	return root
}

func (p *pattern) grow(word string) *pattern {
	p.interior = true
	var slot **pattern
	switch {
	case word == "#":
		slot = &p.index
	case strings.HasPrefix(word, "{"):
		slot, p.key = &p.any, strings.Trim(word, "{}")
	default:
		if p.names[word] == nil {
			p.names[word] = &pattern{shown: p.shown + "/" + word, names: map[string]*pattern{}}
		}
		return p.names[word]
	}
	if *slot == nil {
		*slot = &pattern{shown: p.shown + "/*", names: map[string]*pattern{}}
	}
	return *slot
}

// mark finds the lists that a file is about.
func (p *pattern) mark() {
	p.list = p.index.item()
	p.object = p.item() || p.any.item() || p.key == "guild"
	for _, c := range p.children() {
		c.mark()
	}
}

// about reports whether what begins with this byte, at this path, is what the file is about.
func (p *pattern) about(c byte) bool { return p.list && c == '[' || p.object && c == '{' }

func (p *pattern) children() []*pattern {
	all := slices.Collect(maps.Values(p.names))
	for _, c := range []*pattern{p.index, p.any} {
		if c != nil {
			all = append(all, c)
		}
	}
	return all
}

func (p *pattern) item() bool { return p != nil && p.row != nil && p.row.item }

// dropped reports whether a path is known to have no place.
func (p *pattern) dropped() bool { return p != nil && p.row != nil && p.row.to == "" && !p.row.item }

// mapped reports whether a value at this path goes somewhere.
func (p *pattern) mapped() bool { return p != nil && p.row != nil && p.row.to != "" && !p.row.item }

// member is the path of a member of an object.
func (p *pattern) member(name string) *pattern {
	if p == nil {
		return nil
	}
	if c := p.names[name]; c != nil {
		return c
	}
	return p.any
}
