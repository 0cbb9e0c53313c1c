package convert

import (
	"errors"
	"io"
	"strconv"
	"strings"
)

// item is a value that becomes records, with the keys of its path.
type item struct {
	*value
	who   *value            // the cell of a table's row that identifies the member
	nodes *nodes            // memory for values that the handler parses in addition to the item
	since *stamp            // time of a table row's last change
	keys  map[string]string // ids in the path, by the names in braces
}

// handler makes records from a format's items. One handler is used for all passes of a run, so it
// gets the input once or several times (conversion.stage).
type handler interface {
	fact(to string, v *value) error
	item(it *item) error
	end() error
}

// step is one word of the walker's current path.
type step struct {
	name  string
	key   string // the name in braces, if it is an id
	index int    // in a list
	list  bool
}

// walker reads the documents of one file with a table, and has at most one item in memory.
type walker struct {
	r      *conversion
	s      *scanner
	file   string
	steps  []step
	items  int64
	shaped bool // the document has a list or an object of items
	base   position
	guilds map[string]bool // guilds that the file names
}

func (r *conversion) walk(file string, src io.Reader, root *pattern) (int64, error) {
	text, err := prepared(file, src)
	if err != nil {
		return 0, err
	}
	w := &walker{r: r, s: newScanner(file, text), file: file, guilds: map[string]bool{}}
	for n := 0; ; n++ {
		c, err := w.s.peek()
		if errors.Is(err, io.EOF) && n > 0 {
			return w.items, w.ours()
		}
		if err != nil {
			return 0, w.s.broken(err)
		}
		if c != '{' && c != '[' {
			return 0, &Error{File: file, Line: w.s.line, Text: "is not JSON: it begins with " + strconv.QuoteRune(rune(c)), missing: n == 0}
		}
		w.shaped = false
		line := w.s.line
		if err := w.at(root); err != nil {
			return 0, err
		}
		if !w.shaped {
			return 0, &Error{File: file, Line: line, Text: "holds nothing that " + r.f.name + " has", missing: true}
		}
		r.documents++
	}
}

// ours returns an error if the file names guilds and none of them is the source guild.
func (w *walker) ours() error {
	if w.r.stage == finding || len(w.guilds) == 0 || w.guilds[w.r.source] || w.r.source == "global" {
		return nil
	}
	return w.r.elsewhere(w.file, w.guilds)
}

// at reads the next value, whose pattern is p.
func (w *walker) at(p *pattern) error {
	if err := w.r.ctx.Err(); err != nil {
		return err
	}
	c, err := w.s.must()
	if err != nil {
		return err
	}
	w.shaped = w.shaped || p.about(c)
	switch {
	case p.item() && (c == '{' || p.bare && c != '['):
		return w.item(p)
	case c == '{' && p.interior:
		return w.object(p)
	case c == '[' && p.index != nil:
		return w.list(p)
	case p.item():
		v, err := w.value()
		if err != nil {
			return err
		}
		return wrong(v, "must be an object; it is "+v.shown())
	default:
		return w.leaf(p)
	}
}

func (w *walker) object(p *pattern) error {
	if err := w.s.open(); err != nil {
		return err
	}
	for {
		more, err := w.s.more()
		if err != nil || !more {
			return err
		}
		name, err := w.s.name()
		if err != nil {
			return err
		}
		child := p.member(name)
		w.steps = append(w.steps, step{name: name})
		switch child {
		case nil:
			err = w.strange(p, name)
		case p.any:
			w.steps[len(w.steps)-1].key = p.key
			if p.dropped() && p.key != "number" && !isID(name) {
				err = w.strange(p, name) // a setting next to the members
				break
			}
			err = w.under(p, child, name)
		default:
			err = w.at(child)
		}
		if err != nil {
			return err
		}
		w.steps = w.steps[:len(w.steps)-1]
	}
}

// under reads the value of a key that is an id. The values of other guilds are skipped.
func (w *walker) under(p, child *pattern, name string) error {
	if p.key == "guild" {
		w.guilds[name] = true
		if w.r.stage == finding {
			w.r.found[name] = true
		}
		if name != w.r.source {
			w.r.passOver(name)
			return w.s.skip()
		}
	}
	return w.at(child)
}

func (w *walker) list(p *pattern) error {
	if err := w.s.open(); err != nil {
		return err
	}
	w.steps = append(w.steps, step{list: true})
	for i := 0; ; i++ {
		more, err := w.s.more()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		w.steps[len(w.steps)-1].index = i
		if err := w.at(p.index); err != nil {
			return err
		}
	}
	w.steps = w.steps[:len(w.steps)-1]
	return nil
}

// value reads the next complete value.
func (w *walker) value() (*value, error) {
	v, err := w.s.value()
	if v != nil {
		w.base = position{file: w.file}
		v.at = &w.base
		v.at.steps = w.steps
	}
	return v, err
}

func (w *walker) item(p *pattern) error {
	v, err := w.value()
	if err != nil {
		return err
	}
	it := &item{value: v, nodes: w.s.nodes}
	for _, s := range w.steps {
		if s.key != "" {
			if it.keys == nil {
				it.keys = make(map[string]string, 2)
			}
			it.keys[s.key] = s.name
		}
	}
	if w.r.f.prepare != nil {
		w.r.f.prepare(v)
	}
	if ours, err := w.belongs(v, p); !ours && !p.bare {
		return err
	}
	w.items++
	if err := w.r.h.item(it); err != nil {
		if e, ok := errors.AsType[*Error](err); ok && w.items > 1 {
			e.missing = false // earlier items had the right form
		}
		return err
	}
	if !p.bare {
		w.r.account(v, p, nil)
	}
	return w.r.failed
}

// belongs checks the guild that an item names. An item of another guild is skipped and does not
// count as left out.
func (w *walker) belongs(v *value, p *pattern) (bool, error) {
	ours := true
	for name, child := range p.names {
		named := v.get(name)
		switch {
		case child.mapped() && child.row.to == "guild":
			elsewhere, err := w.r.otherGuild(named, v)
			if err != nil {
				return false, err
			}
			if !named.none() {
				w.guilds[strings.TrimSpace(named.text)] = true
			}
			ours = ours && !elsewhere
		case child.interior && named != nil && named.kind == kindObject:
			below, err := w.belongs(named, child)
			if err != nil {
				return false, err
			}
			ours = ours && below
		}
	}
	return ours && w.r.stage != finding, nil
}

// leaf reads a value that is not part of an item.
func (w *walker) leaf(p *pattern) error {
	if !p.mapped() {
		if p.dropped() {
			w.r.drop(p)
			return w.s.skip()
		}
		v, err := w.value()
		if err == nil && !v.empty() {
			w.r.unknown(v, p.shown)
		}
		return errors.Join(err, w.r.failed)
	}
	v, err := w.value()
	if err != nil || v.kind == kindNull {
		return err
	}
	if p.row.to == "guild" {
		return w.guild(v)
	}
	return w.r.h.fact(p.row.to, v)
}

// guild reads the id of the guild that the whole document belongs to.
func (w *walker) guild(v *value) error {
	guild, err := snowflake(v)
	if err != nil {
		return err
	}
	w.guilds[guild] = true
	if w.r.stage == finding {
		w.r.found[guild] = true
		return nil
	}
	if guild != w.r.source && !w.r.manyGuilds() && w.r.o.SourceGuild == "" {
		return w.r.foreign(v, guild)
	}
	return w.ours()
}

// strange reads a member that the table does not name.
func (w *walker) strange(p *pattern, name string) error {
	if p.dropped() {
		w.r.dropAt(deeper(p.shown, name))
		return w.s.skip()
	}
	if w.r.lost == nil || w.r.stage != writing {
		file, path := (&value{at: &position{file: w.file, steps: w.steps}, line: w.s.line}).where()
		w.r.note(deeper(p.shown, name), Place{File: file, Line: w.s.line, Path: path})
		return w.s.skip()
	}
	v, err := w.value()
	if err == nil {
		w.r.unknown(v, deeper(p.shown, name))
	}
	return errors.Join(err, w.r.failed)
}

// account compares every member of an item with the table: each is mapped, has no place in a guild
// file, or is unknown. up is the nearest parent without a place, or nil.
func (r *conversion) account(v *value, p, up *pattern) {
	if p.dropped() {
		up = p
	}
	holds := v.kind == kindObject || v.kind == kindArray
	switch {
	case p != nil && p.interior && holds:
		for c := v.first; c != nil; c = c.next {
			if v.kind == kindObject {
				r.member(c, p, p.member(c.name), up)
			} else {
				r.member(c, p, p.index, up)
			}
		}
	case p.mapped() && !holds:
	case up != nil:
		r.drop(up)
	case !v.empty():
		r.unknown(v, p.shown)
	}
}

func (r *conversion) member(c *value, parent, p, up *pattern) {
	if p == nil && up == nil {
		r.unknown(c, deeper(parent.shown, cond(c.parent.kind == kindArray, "*", c.name)))
		return
	}
	if p == nil && c.parent.kind == kindObject {
		r.dropAt(deeper(up.shown, c.name))
		return
	}
	r.account(c, p, up)
}

// deeper returns the path of a member, with a shortened name.
func deeper(path, name string) string { return path + "/" + shorten(name, maxName) }

// pathOf returns the JSON pointer of steps.
func pathOf(steps []step) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteByte('/')
		if s.list {
			b.WriteString(strconv.Itoa(s.index))
		} else {
			b.WriteString(escaped(s.name))
		}
	}
	return b.String()
}
