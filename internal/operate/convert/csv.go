package convert

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const maxRow = 1 << 20

// cell is what stands between two separators.
type cell struct {
	text   string
	quoted bool
	line   int
}

// tableReader reads rows of cells. The standard reader does not say which cells stood in
// quotes, which decides whether 1,234 is a number.
type tableReader struct {
	file    string
	src     *bufio.Reader
	sep     byte
	line    int
	row     int // bytes
	scratch []byte
}

// newTable opens a table. Without a separator it is the one that is most frequent in
// the first line.
func newTable(file string, src io.Reader, sep byte) (*tableReader, error) {
	t := &tableReader{file: file, src: bufio.NewReaderSize(src, maxRow), sep: sep, line: 1}
	head, err := t.src.ReadSlice('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		if errors.Is(err, bufio.ErrBufferFull) {
			return nil, t.fail("a line is longer than 1 MiB")
		}
		return nil, t.broken(err)
	}
	if isUTF16(head) {
		return nil, t.fail("is UTF-16; save it as UTF-8")
	}
	head = bytes.Clone(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")))
	if len(head) == 0 {
		return nil, &Error{File: file, Text: "is empty; fetch the file again"}
	}
	if bytes.HasPrefix(head, []byte("PK\x03\x04")) || slices.Contains([]byte("{["), bytes.TrimSpace(append(head[:len(head):len(head)], 'x'))[0]) {
		return nil, &Error{File: file, Line: 1, Text: "is no table", missing: true}
	}
	if t.sep == 0 {
		t.sep = separator(head)
	}
	t.src = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(head), t.src), 64<<10)
	return t, nil
}

func separator(head []byte) byte {
	best, most := byte(','), 0
	for _, sep := range []byte(",;\t") {
		n, quoted := 0, false
		for _, c := range head {
			if c == '"' {
				quoted = !quoted
			}
			if c == sep && !quoted {
				n++
			}
		}
		if n > most {
			best, most = sep, n
		}
	}
	return best
}

func (t *tableReader) fail(text string) error { return &Error{File: t.file, Line: t.line, Text: text} }

func (t *tableReader) broken(err error) error {
	return &Error{File: t.file, Line: t.line, Text: "cannot be read: " + err.Error(), cause: err}
}

func (t *tableReader) byte() (byte, error) {
	c, err := t.src.ReadByte()
	if err != nil {
		return 0, err
	}
	if t.row++; t.row > maxRow {
		return 0, t.fail("a line is longer than 1 MiB")
	}
	return c, nil
}

// next is the next row that is not blank; io.EOF at the end.
func (t *tableReader) next() ([]cell, error) {
	for {
		t.row = 0
		var cells []cell
		for {
			c, last, err := t.cell()
			if errors.Is(err, io.EOF) && len(cells) == 0 && c.text == "" && !c.quoted {
				return nil, io.EOF
			}
			if err != nil && !errors.Is(err, io.EOF) {
				if _, ok := errors.AsType[*Error](err); !ok {
					err = t.broken(err)
				}
				return nil, err
			}
			cells = append(cells, c)
			if last || err != nil {
				break
			}
		}
		if len(cells) > 1 || cells[0].text != "" || cells[0].quoted {
			return cells, nil
		}
	}
}

// cell reads one; last says that its row ends with it, io.EOF that the file does.
func (t *tableReader) cell() (c cell, last bool, err error) {
	c.line = t.line
	t.scratch = t.scratch[:0]
	b, err := t.byte()
	if err == nil && b == '"' {
		c.quoted = true
		if b, err = t.quoted(); err != nil && !errors.Is(err, io.EOF) {
			return c, false, err
		}
	}
	for ; err == nil && b != t.sep && b != '\n'; b, err = t.byte() {
		switch {
		case c.quoted && b != '\r':
			return c, false, t.fail("a quote stands in the middle of a cell; put quotes around the whole cell and write each inside twice")
		case b == '"':
			return c, false, t.fail("a quote stands in the middle of a cell; put quotes around the whole cell and write each inside twice")
		case !c.quoted:
			t.scratch = append(t.scratch, b)
		}
	}
	text := t.scratch
	if !c.quoted && (err != nil || b == '\n') {
		text = bytes.TrimSuffix(text, []byte("\r"))
	}
	if !utf8.Valid(text) {
		return c, false, t.fail("is not valid UTF-8; save it as UTF-8")
	}
	c.text = string(text)
	if err == nil && b == '\n' {
		t.line++
		last = true
	}
	return c, last, err
}

// quoted reads to the closing quote, and returns the byte behind it.
func (t *tableReader) quoted() (byte, error) {
	for {
		b, err := t.byte()
		if errors.Is(err, io.EOF) {
			return 0, t.fail("ends too early; fetch the file again")
		}
		if err != nil {
			return 0, err
		}
		switch b {
		case '\n':
			t.line++
		case '"':
			after, err := t.byte()
			if err != nil || after != '"' {
				return after, err
			}
		}
		t.scratch = append(t.scratch, b)
	}
}

// columnMap says where the members of a record stand.
type columnMap struct {
	headings []string
	of       map[string]int // by member
}

// rows reads a table and gives each row to do, as an object whose members are its
// headings.
func (r *conversion) rows(in string, src io.Reader, sep byte, header bool, choose func(headings []string) (columnMap, error), do func(it *item, c columnMap) error) (int64, error) {
	t, err := newTable(in, src, sep)
	if err != nil {
		return 0, err
	}
	cells, err := t.next()
	if errors.Is(err, io.EOF) {
		return 0, &Error{File: in, Text: "is empty; fetch the file again"}
	}
	if err != nil {
		return 0, err
	}
	headings := make([]string, len(cells))
	for i, c := range cells {
		headings[i] = strconv.Itoa(i + 1)
		if header {
			headings[i] = oneLine(c.text)
		}
	}
	cols, err := choose(headings)
	if err != nil {
		return 0, err
	}
	base, unique := position{file: in, table: true}, distinct(headings)
	var all nodes
	for items := int64(0); ; items++ {
		if header || items > 0 {
			if cells, err = t.next(); errors.Is(err, io.EOF) {
				return items, nil
			}
		}
		if err == nil {
			err = r.ctx.Err()
		}
		if err != nil {
			return 0, err
		}
		if len(cells) != len(headings) {
			return 0, &Error{File: in, Line: cells[0].line, Text: fmt.Sprintf("has %d cells and not %d; put quotes around a cell that holds the separator", len(cells), len(headings))}
		}
		it := &item{value: asObject(&all, cells, unique)}
		it.at = &base
		if err := do(it, cols); err != nil {
			return 0, err
		}
		if r.failed != nil {
			return 0, r.failed
		}
	}
}

// distinct makes different names of headings that are the same.
func distinct(headings []string) []string {
	seen := map[string]int{}
	all := make([]string, len(headings))
	for i, h := range headings {
		seen[h]++
		all[i] = cond(seen[h] > 1, fmt.Sprintf("%s (%d)", h, seen[h]), h)
	}
	return all
}

func asObject(all *nodes, cells []cell, headings []string) *value {
	all.reset()
	row := all.add(nil, "", cells[0].line)
	for i, c := range cells {
		v := all.add(row, headings[i], c.line)
		v.kind, v.text, v.quoted = kindText, c.text, c.quoted
		if !c.quoted && (c.text == "NULL" || c.text == `\N`) { // MySQL's nothing
			v.text = ""
		}
	}
	return row
}

// cell is the cell of a member, nil if the table has no column for it.
func (c columnMap) cell(it *item, member string) *value {
	n, ok := c.of[member]
	if !ok {
		return nil
	}
	v := it.first
	for range n {
		v = v.next
	}
	return v
}

// filled is cell, nil also where there is nothing in it.
func (c columnMap) filled(it *item, member string) *value {
	v := c.cell(it, member)
	if v == nil || strings.TrimSpace(v.text) == "" {
		return nil
	}
	return v
}

// readInForce reads what holds now: user_id,type,expires_at.
func (b *casebook) readInForce(r *conversion) error {
	inputs, done, err := Inputs([]string{r.o.InForce}, nil)
	defer done()
	if err != nil {
		return err
	}
	src, err := inputs[0].open()
	if err != nil {
		return err
	}
	listed := map[string]bool{}
	aliases := map[string][]string{"user_id": headingsOf["user_id"], "type": headingsOf["type"], "expires_at": headingsOf["expires_at"]}
	_, err = r.rows(r.o.InForce, src, 0, true, func(h []string) (columnMap, error) {
		return chooseColumns(r.o.InForce, h, aliases, []string{"user_id", "type"}, nil)
	}, func(it *item, c columnMap) error {
		user, err := snowflake(c.cell(it, "user_id"))
		if err != nil {
			return err
		}
		kind := class(kindName(c.cell(it, "type").text))
		if kind == "" {
			return wrong(c.cell(it, "type"), "must be ban, mute or timeout; it is "+c.cell(it, "type").shown())
		}
		f := &inForce{user: user, kind: kind}
		if listed[user+kind] {
			return wrong(c.cell(it, "user_id"), "member "+user+" comes twice with a "+kind+"; leave one row of each")
		}
		if end := c.filled(it, "expires_at"); end != nil {
			if f.until, err = r.deadline(end); err != nil {
				return err
			}
		}
		f.at, listed[user+kind] = detached(it.value), true
		b.force = append(b.force, f)
		return nil
	})
	return err
}

// detached is a copy of a row that lasts.
func detached(v *value) *value {
	c := &value{kind: v.kind, line: v.line, at: v.at}
	for m := v.first; m != nil; m = m.next {
		c.put(&value{kind: m.kind, line: m.line, name: m.name, text: m.text, parent: c})
	}
	return c
}
