package convert

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// lookAhead is how much of a file is looked at to tell its format.
const lookAhead = 256 << 10

// likeness is the format whose table fits a file best; nil if none does.
func (r *conversion) likeness(in *Input) *format {
	head := make([]byte, lookAhead)
	n, _ := in.file.ReadAt(head, 0)
	head = bytes.TrimPrefix(head[:n], []byte("\xef\xbb\xbf"))
	begin := bytes.TrimSpace(head)
	switch {
	case len(begin) == 0:
		return nil
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return formatNamed("discord-tickets")
	case begin[0] != '{' && begin[0] != '[':
		line, _, _ := bytes.Cut(begin, []byte("\n"))
		if bytes.ContainsAny(line, ",;\t") && utf8.Valid(line) {
			return formatNamed("csv")
		}
		return nil
	}
	s := newScanner(in.Name, bytes.NewReader(head))
	_, _ = s.value() // it may end in the middle of the tree
	if s.nodes.n == 0 {
		return nil
	}
	var best *format
	most := 0
	for _, f := range formats {
		for _, root := range f.roots {
			if fit, items := root.fit(&s.nodes.chunks[0][0]); items > 0 && fit > most {
				best, most = f, fit
			}
		}
	}
	return best
}

// fit counts what a table knows of a tree against what it does not, and the members
// of items that become something.
func (p *pattern) fit(v *value) (fit, items int) {
	switch {
	case p == nil:
		return -2, 0
	case p.interior && (v.kind == kindObject || v.kind == kindArray):
		for c := v.first; c != nil; c = c.next {
			child := p.index
			if v.kind == kindObject {
				child = p.member(c.name)
			}
			if child == nil && p.dropped() {
				continue
			}
			f, i := child.fit(c)
			fit, items = fit+f, items+i
		}
		return fit, items
	case p.mapped():
		return 3, cond(strings.Contains(p.shown, "*") || v.parent != nil && v.parent.parent == nil, 1, 0)
	case p.dropped():
		return 1, 0
	}
	return 0, 0
}
