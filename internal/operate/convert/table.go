package convert

import (
	"maps"
	"slices"
	"strings"
)

// row maps one path of a format to a member of a record. The words of a path are member names, #
// for each item of a list, and a name in braces for each member of an object whose keys are ids;
// {guild} is the guild of everything below. A path applies to everything below itself, unless a
// longer path matches.
type row struct {
	path string
	to   string // the kind and member of the record; empty if the path has no place in a guild file
	item bool   // an object that is read completely and becomes records
}

// rows returns a row for each path below of. All of them become the same member; if to is empty,
// they have no place in a guild file.
func rows(to, of string, paths ...string) []row {
	all := make([]row, len(paths))
	for i, path := range paths {
		all[i] = row{path: of + "/" + path, to: to}
	}
	return all
}

// embedRows returns the rows of an embed of the chat platform.
func embedRows(of string) []row {
	return append(rows("ticket_message.content", of, "title", "description", "fields/#/name", "fields/#/value"),
		rows("", of, "fields/#/inline", "author", "color", "footer", "image", "provider", "thumbnail", "timestamp", "type", "url", "video")...)
}

// pattern is a node of a table's tree.
type pattern struct {
	row      *row
	shown    string // path of the value in the file, with * for ids and items
	names    map[string]*pattern
	index    *pattern // pattern of each item
	any      *pattern // pattern of each member
	key      string   // the name in braces of any
	list     bool     // a list whose items become records
	object   bool     // an object that becomes records, or whose members do
	interior bool     // it has children
	bare     bool     // an item may be a plain number, and its handler counts the other values
}

func grow(table []row) *pattern {
	root := &pattern{names: map[string]*pattern{}}
	for i := range table {
		at := root
		for _, word := range strings.Split(table[i].path, "/")[1:] {
			at = at.grow(word)
		}
		at.row = &table[i]
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

// mark sets list and object in the whole tree.
func (p *pattern) mark() {
	p.list = p.index.item()
	p.object = p.item() || p.any.item() || p.key == "guild"
	for _, c := range p.children() {
		c.mark()
	}
}

// about reports whether a value that begins with c at this path holds the file's items.
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

// dropped reports whether the path has no place in a guild file.
func (p *pattern) dropped() bool { return p != nil && p.row != nil && p.row.to == "" && !p.row.item }

// mapped reports whether a value at this path becomes part of a record.
func (p *pattern) mapped() bool { return p != nil && p.row != nil && p.row.to != "" && !p.row.item }

// member returns the node of an object's member.
func (p *pattern) member(name string) *pattern {
	if p == nil {
		return nil
	}
	if c := p.names[name]; c != nil {
		return c
	}
	return p.any
}
