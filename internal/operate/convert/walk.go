package convert

import (
	"errors"
	"io"
	"strconv"
	"strings"
)

// item is what becomes records, with the ids on the way to it.
type item struct {
	*value
	who   *value            // the cell of a table's row that names the member
	nodes *nodes            // where what is read beside it may stand
	since *stamp            // when a row of a table last changed
	keys  map[string]string // by the names in braces of its path
}

// handler is what is special about a format. It lives as long as the run, and
// sees the input once or several times (run.stage).
type handler interface {
	fact(to string, v *value) error
	item(it *item) error
	end() error
}

// step is one word of the path to where a walker stands.
type step struct {
	name  string
	key   string // the name in braces, if it is an id
	index int    // in a list
	list  bool
}

// walker goes through the documents of one file along a table, and holds no more
// of them than an item at a time.
type walker struct {
	r      *conversion
	s      *scanner
	file   string
	steps  []step
	items  int64
	shaped bool // the document has what the format is about
	base   position
	guilds map[string]bool // that the file names
}

func (r *conversion) walk(file string, src io.Reader, root *pattern) (int64, error) {
	text, err := prepared(file, src)
	if errors.Is(err, io.EOF) {
		return 0, &Error{File: file, Text: "is empty; fetch the file again"}
	}
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

// ours refuses a file that names guilds, and not the one that is wanted.
func (w *walker) ours() error {
	if w.r.stage == finding || len(w.guilds) == 0 || w.guilds[w.r.source] || w.r.source == "global" {
		return nil
	}
	return w.r.elsewhere(w.file, w.guilds)
}

// at reads the value that begins here.
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
	case c == '{' && p.item():
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

// under reads what stands below an id. It passes over what belongs to another guild.
func (w *walker) under(p, child *pattern, name string) error {
	if p.key == "guild" {
		w.guilds[name] = true
		if w.r.stage == finding {
			w.r.found[name] = true
		}
		if name != w.r.source {
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

// value reads the value that begins here whole.
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
	ours, err := w.belongs(v, p)
	if !ours {
		return err
	}
	w.items++
	if err := w.r.h.item(it); err != nil {
		if e, ok := errors.AsType[*Error](err); ok && w.items > 1 {
			e.missing = false // the items before were of the right shape
		}
		return err
	}
	w.r.account(v, p, nil)
	return w.r.failed
}

// belongs looks for the guild that an item names. One of another guild is neither
// read nor a loss.
func (w *walker) belongs(v *value, p *pattern) (bool, error) {
	ours := true
	for name, child := range p.names {
		if !child.mapped() || child.row.to != "guild" || v.get(name).none() {
			continue
		}
		guild, err := snowflake(v.get(name))
		if err != nil {
			return false, err
		}
		w.guilds[guild] = true
		if w.r.stage == finding {
			w.r.found[guild] = true
		}
		ours = guild == w.r.source
	}
	return ours && w.r.stage != finding, nil
}

// leaf reads a value beside the items.
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

// guild notes the guild that a whole document belongs to.
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
	return w.ours()
}

// strange reads a member that the table does not have.
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

// account holds every member of an item against the table: each goes somewhere, is
// known to have no place, or is unknown. up is the longest path above of which
// everything below has no place.
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

// deeper is the path of a member. A name may have any length; a report shows it short.
func deeper(path, name string) string { return path + "/" + shorten(name, maxName) }

// pathOf is the path that steps make.
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
