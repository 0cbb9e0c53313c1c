package convert

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

const maxRow = 1 << 20

// cell is one field of a row.
type cell struct {
	text   string
	quoted bool
	line   int
}

// tableReader reads rows of cells with encoding/csv. It keeps the bytes of the row, because only
// the bytes show whether a cell was in quotes, and that decides whether 1,234 is a number.
type tableReader struct {
	file string
	csv  *csv.Reader
	src  io.Reader
	raw  []byte // bytes that the csv reader has read, from the start of the next row
	from int64  // the input offset of raw
	line int    // line of the first byte of raw
}

var errLongRow = errors.New("a line is longer than 1 MiB")

// Read passes input to the csv reader, and stores the bytes until the row was read.
func (t *tableReader) Read(p []byte) (int, error) {
	if len(t.raw) > maxRow+len(p) {
		return 0, errLongRow
	}
	n, err := t.src.Read(p)
	t.raw = append(t.raw, p[:n]...)
	return n, err
}

// newTable opens a table. If sep is 0, the separator is the most frequent one in the first line.
func newTable(file string, src io.Reader, sep byte) (*tableReader, error) {
	text, err := prepared(file, src)
	if err != nil {
		return nil, err
	}
	head, _ := text.Peek(text.Size()) // the same error is returned again when the rows are read
	first, _, _ := bytes.Cut(head, []byte("\n"))
	begin := bytes.TrimSpace(first)
	if bytes.HasPrefix(first, []byte("PK\x03\x04")) || bytes.HasPrefix(begin, []byte("{")) || bytes.HasPrefix(begin, []byte("[")) || isPage(begin) {
		return nil, &Error{File: file, Line: 1, Text: "is no table", missing: true}
	}
	t := &tableReader{file: file, src: text, line: 1}
	t.csv = csv.NewReader(t)
	t.csv.Comma = rune(cond(sep != 0, sep, separator(first)))
	t.csv.FieldsPerRecord, t.csv.ReuseRecord = -1, true
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

// next returns the next row that is not blank, or io.EOF.
func (t *tableReader) next() ([]cell, error) {
	fields, err := t.csv.Read()
	if errors.Is(err, io.EOF) {
		return nil, err
	}
	size := int(t.csv.InputOffset() - t.from)
	if size > maxRow {
		err = errLongRow
	}
	if err != nil {
		return nil, t.broken(err)
	}
	row, begin := t.raw[:size], 0 // begin is the start of the cell's line
	cells := make([]cell, len(fields))
	for i, text := range fields {
		line, column := t.csv.FieldPos(i)
		for ; t.line < line; t.line++ {
			begin += bytes.IndexByte(row[begin:], '\n') + 1
		}
		at := begin + column - 1
		cells[i] = cell{text: strings.Clone(text), quoted: at < size && row[at] == '"', line: line}
		if !utf8.ValidString(text) {
			return nil, t.fail("is not valid UTF-8; save it as UTF-8")
		}
	}
	t.line += bytes.Count(row[begin:], []byte("\n"))
	t.from, t.raw = t.from+int64(size), t.raw[size:]
	return cells, nil
}

func (t *tableReader) fail(text string) error { return &Error{File: t.file, Line: t.line, Text: text} }

// broken converts an error of the csv reader or of the file into an error message for people.
func (t *tableReader) broken(err error) error {
	syntax, ok := errors.AsType[*csv.ParseError](err)
	switch {
	case errors.Is(err, errLongRow):
		return t.fail(errLongRow.Error())
	case !ok:
		return &Error{File: t.file, Line: t.line, Text: "cannot be read: " + err.Error(), cause: err}
	}
	begin := 0
	for line := t.line; line < syntax.Line; line++ {
		begin += bytes.IndexByte(t.raw[begin:], '\n') + 1
	}
	if begin+syntax.Column > len(t.raw) { // the file ends inside quotes
		t.line += bytes.Count(t.raw, []byte("\n"))
		return t.fail("ends too early; fetch the file again")
	}
	t.line = syntax.Line
	return t.fail("a quote stands in the middle of a cell; put quotes around the whole cell and write each inside twice")
}

// columnMap holds the index of the column of each member of a record.
type columnMap struct {
	headings []string
	of       map[string]int // index by member
}

// rows reads a table and calls do with each row, as an object whose members have the headings as
// names.
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
	base, unique := position{file: in, table: true, separator: byte(t.csv.Comma)}, distinct(headings)
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

// distinct numbers headings that occur more than once, so that all names differ.
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
		if !c.quoted && (c.text == "NULL" || c.text == `\N`) { // how MySQL exports NULL
			v.text = ""
		}
	}
	return row
}

// cell returns the cell of a member, or nil if the table has no column for it.
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

// readInForce reads the table of --in-force: user_id, type, expires_at.
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
		if end := c.cell(it, "expires_at"); end != nil {
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

// detached copies a row out of the memory that the next row reuses.
func detached(v *value) *value {
	c := &value{kind: v.kind, line: v.line, at: v.at}
	for m := v.first; m != nil; m = m.next {
		c.put(&value{kind: m.kind, line: m.line, name: m.name, text: m.text, parent: c})
	}
	return c
}
