package convert

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	maxValue  = 64 << 20  // maximum of bytes of one JSON value in memory
	maxValues = 1_000_000 // maximum of values within one value in memory
	maxNest   = 128       // maximum depth of objects and arrays
	maxDigits = 1000      // maximum of digits; the longest number that a bot writes has 24
	maxNames  = 4096      // maximum of member names that the scanner interns
)

// scanner reads JSON documents, one after another, with jsontext. The scanner adds the line of each
// token, and limits on memory.
type scanner struct {
	file string
	dec  *jsontext.Decoder
	src  *boundedReader
	line int // line of the next token, once peek has found it

	counted int64 // input offset up to which line breaks are counted
	scratch []byte
	names   map[string]string
	nodes   *nodes
}

// boundedReader returns an error when a single token has become longer than maxValue, because the
// decoder buffers a token until it is complete.
type boundedReader struct {
	from io.Reader
	dec  *jsontext.Decoder
	read int64
}

var errTooLong = errors.New("a value is longer than 64 MiB")

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.read-b.dec.InputOffset() > maxValue {
		return 0, errTooLong
	}
	n, err := b.from.Read(p)
	b.read += int64(n)
	return n, err
}

func newScanner(file string, src io.Reader) *scanner {
	s := &scanner{file: file, names: make(map[string]string), nodes: new(nodes), dec: new(jsontext.Decoder)}
	s.src = &boundedReader{dec: s.dec}
	s.reset(src)
	return s
}

// reset starts with another input, at line 1.
func (s *scanner) reset(src io.Reader) {
	s.src.from, s.src.read, s.line, s.counted = src, 0, 1, 0
	// A file may have millions of items, so the decoder must not store the names of an object;
	// members checks for duplicates. scalar finds invalid UTF-8, and distinguishes broken bytes
	// from half a surrogate pair.
	s.dec.Reset(s.src, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// fail returns an error at the line of the next token.
func (s *scanner) fail(text string) *Error { return &Error{File: s.file, Line: s.line, Text: text} }

func (s *scanner) early() error { return s.fail("ends too early; fetch the file again") }

// broken converts an error of the decoder or of the file into an error message for people.
func (s *scanner) broken(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return s.early()
	case errors.Is(err, errTooLong):
		return s.fail(errTooLong.Error())
	}
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		e := s.fail("is not JSON: " + strings.TrimPrefix(syntax.Err.Error(), "jsontext: "))
		e.missing = s.dec.StackDepth() == 0 // the whole file may have another format
		return e
	}
	return &Error{File: s.file, Line: s.line, Text: "cannot be read: " + err.Error(), cause: err}
}

// peek returns the first byte of the next token: a digit for every number. It returns
// io.EOF at the end of the file.
func (s *scanner) peek() (byte, error) {
	kind := s.dec.PeekKind()
	unread, at := s.dec.UnreadBuffer(), s.dec.InputOffset()
	blank := len(unread) - len(bytes.TrimLeft(unread, " \t\r\n,:"))
	if from := max(s.counted-at, 0); int64(blank) > from {
		s.line += bytes.Count(unread[from:blank], []byte("\n"))
		s.counted = at + int64(blank)
	}
	if kind == jsontext.KindInvalid {
		_, err := s.dec.ReadToken()
		return 0, err
	}
	return byte(kind), nil
}

// must is peek at a place where the document must not end.
func (s *scanner) must() (byte, error) {
	c, err := s.peek()
	if err != nil {
		return 0, s.broken(err)
	}
	return c, nil
}

// open reads the bracket that peek has found.
func (s *scanner) open() error {
	if _, err := s.dec.ReadToken(); err != nil {
		return s.broken(err)
	}
	return nil
}

// prepared returns src without a byte order mark. It refuses an empty file and UTF-16.
func prepared(file string, src io.Reader) (*bufio.Reader, error) {
	text := bufio.NewReaderSize(src, 64<<10)
	head, err := text.Peek(3)
	switch {
	case len(head) == 0 && errors.Is(err, io.EOF):
		return nil, &Error{File: file, Text: "is empty; fetch the file again"}
	case len(head) == 0:
		return nil, &Error{File: file, Line: 1, Text: "cannot be read: " + err.Error(), cause: err}
	case bytes.Equal(head, byteOrderMark):
		_, err = text.Discard(len(head))
		return text, err
	case isUTF16(head):
		return nil, &Error{File: file, Line: 1, Text: "is UTF-16; save it as UTF-8"}
	}
	return text, nil
}

var byteOrderMark = []byte("\xef\xbb\xbf")

func isUTF16(head []byte) bool {
	return bytes.HasPrefix(head, []byte{0xff, 0xfe}) || bytes.HasPrefix(head, []byte{0xfe, 0xff}) ||
		len(head) > 1 && (head[0] == 0) != (head[1] == 0)
}

// scalar reads a text, a number, true, false or null. The bytes are valid until the next read.
func (s *scanner) scalar() (jsontext.Value, error) {
	raw, err := s.dec.ReadValue()
	switch {
	case err != nil:
		return nil, s.broken(err)
	case raw.Kind() == jsontext.KindNumber && len(raw) > maxDigits:
		return nil, s.fail("a number has more than 1000 digits")
	case raw.Kind() == jsontext.KindString && !utf8.Valid(raw):
		return nil, s.fail("is not valid UTF-8; save it as UTF-8")
	}
	return raw, nil
}

// text decodes a JSON text. damaged is true if an escape for half a surrogate pair was replaced.
// The bytes are valid until the next call.
func (s *scanner) text(raw jsontext.Value) (text []byte, damaged bool) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], false
	}
	var err error
	s.scratch, err = jsontext.AppendUnquote(s.scratch[:0], raw)
	return s.scratch, err != nil
}

// isNumber reports whether b is a valid JSON number.
func isNumber(b []byte) bool {
	v := jsontext.Value(b)
	return len(b) > 0 && v.Kind() == jsontext.KindNumber && b[0] > ' ' && b[len(b)-1] > ' ' && v.IsValid()
}

// name reads the name of a member. Names repeat, so the scanner interns them.
func (s *scanner) name() (string, error) {
	raw, err := s.scalar()
	if err != nil {
		return "", err
	}
	text, _ := s.text(raw)
	name, ok := s.names[string(text)]
	if !ok {
		name = string(text)
		if len(s.names) < maxNames && len(name) < 100 {
			s.names[name] = name
		}
	}
	return name, nil
}

// more reports whether another member or item follows. If none does, more reads the closing
// bracket.
func (s *scanner) more() (bool, error) {
	c, err := s.must()
	if err != nil {
		return false, err
	}
	if c == '}' || c == ']' {
		return false, s.open()
	}
	return true, nil
}

// value reads one complete value, which is valid until the next call.
func (s *scanner) value() (*value, error) {
	s.nodes.reset()
	return s.beside()
}

// beside reads one complete value; earlier values stay valid.
func (s *scanner) beside() (*value, error) {
	return s.node(nil, "", s.dec.InputOffset())
}

// node reads a JSON value and adds it to the tree as a child of parent, with its children. begin is
// the offset in the file at which the outermost value begins.
func (s *scanner) node(parent *value, name string, begin int64) (*value, error) {
	c, err := s.must()
	if err != nil {
		return nil, err
	}
	v := s.nodes.add(parent, name, s.line)
	switch {
	case s.nodes.n > maxValues:
		return nil, s.fail("a value holds more than 1,000,000 others")
	case s.dec.InputOffset()-begin > maxValue:
		return nil, s.fail(errTooLong.Error())
	case s.dec.StackDepth() > maxNest:
		return nil, s.fail("nests deeper than 128 levels")
	case c == '{' || c == '[':
		return v, s.members(v, c, begin)
	}
	raw, err := s.scalar()
	if err != nil {
		return nil, err
	}
	text := []byte(raw)
	switch raw.Kind() {
	case jsontext.KindString:
		v.kind = kindText
		text, v.damaged = s.text(raw)
	case jsontext.KindNumber:
		v.kind = kindNumber
	case jsontext.KindNull:
		v.kind = kindNull
	default:
		v.kind = kindBoolean
	}
	v.text = string(text)
	return v, nil
}

func (s *scanner) members(v *value, bracket byte, begin int64) error {
	v.kind = cond(bracket == '[', kindArray, kindObject)
	if err := s.open(); err != nil {
		return err
	}
	var seen nameSet
	for {
		more, err := s.more()
		if err != nil || !more {
			return err
		}
		name := ""
		if v.kind == kindObject {
			if name, err = s.name(); err != nil {
				return err
			}
			if seen.again(v, name) {
				return s.fail("member " + strconv.Quote(shorten(name, 40)) + " must be given once")
			}
		}
		if _, err := s.node(v, name, begin); err != nil {
			return err
		}
	}
}

// nameSet is the set of names of an object with many members; in an object with few members, again
// compares the names one by one.
type nameSet map[string]bool

const fewMembers = 64

// again reports whether object v already has a member called name.
func (n *nameSet) again(v *value, name string) bool {
	if v.count < fewMembers {
		return v.get(name) != nil
	}
	if *n == nil {
		*n = make(nameSet, 2*fewMembers)
		for _, c := range v.members() {
			(*n)[c.name] = true
		}
	}
	twice := (*n)[name]
	(*n)[name] = true
	return twice
}

// skip passes over a value without holding it.
func (s *scanner) skip() error {
	for depth := s.dec.StackDepth(); ; {
		c, err := s.must()
		if err != nil {
			return err
		}
		if s.dec.StackDepth() > maxNest {
			return s.fail("nests deeper than 128 levels")
		}
		if c == '{' || c == '[' || c == '}' || c == ']' {
			err = s.open()
		} else {
			_, err = s.scalar()
		}
		if err != nil || s.dec.StackDepth() == depth {
			return err
		}
	}
}
