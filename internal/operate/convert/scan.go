package convert

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	maxValue  = 64 << 20  // bytes of one JSON value that is held in memory
	maxValues = 1_000_000 // values in one that is held
	maxNest   = 128
	maxDigits = 1000 // of a number; the longest that a bot writes has 24
	maxNames  = 4096 // names of members that are kept for the next object
)

// scanner reads JSON documents, one after another, and knows the line of each
// token. The standard decoder knows only offsets, and holds a whole value before
// it says where in it something is wrong.
type scanner struct {
	src   io.Reader
	file  string
	buf   []byte
	pos   int
	end   int
	gone  int64 // bytes before buf
	begin int64 // where the value begins that is held
	held  bool
	line  int

	scratch []byte
	names   map[string]string
	nodes   *nodes
}

func newScanner(file string, src io.Reader) *scanner {
	return &scanner{src: src, file: file, buf: make([]byte, 64<<10), line: 1, names: make(map[string]string), nodes: new(nodes)}
}

// fail is an error at the line where the scanner stands.
func (s *scanner) fail(text string) error { return &Error{File: s.file, Line: s.line, Text: text} }

func (s *scanner) early() error { return s.fail("ends too early; fetch the file again") }

// fill reads on; it is called when everything in buf has been taken.
func (s *scanner) fill() error {
	if s.held && s.gone+int64(s.end)-s.begin > maxValue {
		return s.fail("a value is longer than 64 MiB")
	}
	s.gone += int64(s.end)
	s.pos, s.end = 0, 0
	for range 100 {
		n, err := s.src.Read(s.buf)
		if n > 0 {
			s.end = n
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// broken says that reading failed where a value had begun.
func (s *scanner) broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return s.early()
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	return &Error{File: s.file, Line: s.line, Text: "cannot be read: " + err.Error(), cause: err}
}

// peek is the next byte that is not white space; io.EOF at the end.
func (s *scanner) peek() (byte, error) {
	for {
		for s.pos < s.end {
			switch c := s.buf[s.pos]; c {
			case '\n':
				s.line++
				s.pos++
			case ' ', '\t', '\r':
				s.pos++
			default:
				return c, nil
			}
		}
		if err := s.fill(); err != nil {
			return 0, err
		}
	}
}

// must is peek where the document cannot end.
func (s *scanner) must() (byte, error) {
	c, err := s.peek()
	if err != nil {
		return 0, s.broken(err)
	}
	return c, nil
}

// expect takes one byte of punctuation.
func (s *scanner) expect(want byte) error {
	c, err := s.must()
	if err != nil {
		return err
	}
	if c != want {
		return s.fail("is not JSON: " + strconv.QuoteRune(rune(want)) + " is missing")
	}
	s.pos++
	return nil
}

// start skips the mark that some programs put before UTF-8, and tells what is
// no text in UTF-8. An empty file is io.EOF.
func (s *scanner) start() error {
	if err := s.fill(); err != nil {
		if errors.Is(err, io.EOF) {
			return err
		}
		return s.broken(err)
	}
	for s.end < 3 { // a reader may give one byte at a time
		n, err := s.src.Read(s.buf[s.end:4])
		s.end += n
		if err != nil {
			break
		}
	}
	head := s.buf[:s.end]
	switch {
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		s.pos = 3
	case isUTF16(head):
		return s.fail("is UTF-16; save it as UTF-8")
	}
	return nil
}

func isUTF16(head []byte) bool {
	return bytes.HasPrefix(head, []byte{0xff, 0xfe}) || bytes.HasPrefix(head, []byte{0xfe, 0xff}) ||
		len(head) > 1 && (head[0] == 0) != (head[1] == 0)
}

// text reads a string into scratch, where it is good until the next one. damaged
// says that an escape of half a character was replaced.
func (s *scanner) text() (damaged bool, err error) {
	s.pos++ // the quote
	s.scratch = s.scratch[:0]
	escaped := false
	for {
		i := s.pos
		for i < s.end && s.buf[i] != '"' && s.buf[i] != '\\' && s.buf[i] >= ' ' {
			i++
		}
		s.scratch = append(s.scratch, s.buf[s.pos:i]...)
		s.pos = i
		if len(s.scratch) > maxValue {
			return false, s.fail("a text is longer than 64 MiB")
		}
		switch {
		case i == s.end:
			if err := s.fill(); err != nil {
				return false, s.broken(err)
			}
		case s.buf[i] == '"':
			s.pos++
			return s.whole(escaped)
		case s.buf[i] == '\\':
			escaped = true
			s.pos++
			c, err := s.byte()
			if err != nil {
				return false, err
			}
			s.scratch = append(s.scratch, '\\', c)
		default:
			return false, s.fail("is not JSON: a text holds a control character or a line break")
		}
	}
}

// whole makes the text of what stands between quotes.
func (s *scanner) whole(escaped bool) (damaged bool, err error) {
	if !utf8.Valid(s.scratch) {
		return false, s.fail("is not valid UTF-8; save it as UTF-8")
	}
	if !escaped {
		return false, nil
	}
	text, damaged, ok := unescape(s.scratch)
	if !ok {
		return false, s.fail("is not JSON: a text holds an escape that there is not")
	}
	s.scratch = text
	return damaged, nil
}

// unescape replaces the escapes of a text in its own bytes: none is shorter than
// what it stands for. Half a character becomes the mark of what cannot be read.
func unescape(raw []byte) (text []byte, damaged, ok bool) {
	text = raw[:0]
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			text = append(text, raw[i])
			i++
			continue
		}
		if at := bytes.IndexByte([]byte(`"\/bfnrt`), raw[i+1]); at >= 0 {
			text = append(text, "\"\\/\b\f\n\r\t"[at])
			i += 2
			continue
		}
		r, ok := hex4(raw[i:])
		if !ok {
			return nil, false, false
		}
		i += 6
		if utf16.IsSurrogate(r) {
			low, ok := hex4(raw[i:])
			if r = utf16.DecodeRune(r, low); ok && r != utf8.RuneError {
				i += 6
			} else {
				r, damaged = utf8.RuneError, true
			}
		}
		text = utf8.AppendRune(text, r)
	}
	return text, damaged, true
}

// hex4 reads an escape of four digits.
func hex4(raw []byte) (rune, bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	r, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	return rune(r), err == nil
}

// byte takes one byte inside a token.
func (s *scanner) byte() (byte, error) {
	if s.pos == s.end {
		if err := s.fill(); err != nil {
			return 0, s.broken(err)
		}
	}
	s.pos++
	return s.buf[s.pos-1], nil
}

// word reads what stands without quotes: a number, true, false or null. It ends
// where the next token begins, or the file.
func (s *scanner) word() (kind, error) {
	s.scratch = s.scratch[:0]
	for {
		if s.pos == s.end {
			err := s.fill()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return 0, s.broken(err)
			}
		}
		c := s.buf[s.pos]
		if !bytes.ContainsRune([]byte("+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"), rune(c)) {
			break
		}
		if len(s.scratch) > maxDigits {
			return 0, s.fail("a number has more than 1000 digits")
		}
		s.scratch = append(s.scratch, c)
		s.pos++
	}
	switch string(s.scratch) {
	case "true", "false":
		return kindBoolean, nil
	case "null":
		return kindNull, nil
	}
	if isNumber(s.scratch) {
		return kindNumber, nil
	}
	if _, err := s.peek(); err != nil { // a word that the end has cut
		return 0, s.early()
	}
	return 0, s.fail("is not JSON: " + strconv.QuoteToASCII(shorten(string(s.scratch)+string(s.buf[s.pos:min(s.pos+1, s.end)]), 40)) + " is no value")
}

// isNumber is JSON's grammar of numbers.
func isNumber(b []byte) bool {
	digits := func() bool {
		n := 0
		for n < len(b) && b[n] >= '0' && b[n] <= '9' {
			n++
		}
		b = b[n:]
		return n > 0
	}
	b = bytes.TrimPrefix(b, []byte("-"))
	if len(b) > 1 && b[0] == '0' && b[1] >= '0' && b[1] <= '9' || !digits() {
		return false
	}
	if len(b) > 0 && b[0] == '.' {
		if b = b[1:]; !digits() {
			return false
		}
	}
	if len(b) > 0 && (b[0] == 'e' || b[0] == 'E') {
		if b = b[1:]; len(b) > 0 && (b[0] == '+' || b[0] == '-') {
			b = b[1:]
		}
		if !digits() {
			return false
		}
	}
	return len(b) == 0
}

// name reads the name of a member and its colon. Names come again and again, so
// they are kept.
func (s *scanner) name() (string, error) {
	c, err := s.must()
	if err != nil {
		return "", err
	}
	if c != '"' {
		return "", s.fail("is not JSON: the name of a member is missing")
	}
	if _, err := s.text(); err != nil {
		return "", err
	}
	name, ok := s.names[string(s.scratch)]
	if !ok {
		name = string(s.scratch)
		if len(s.names) < maxNames && len(name) < 100 {
			s.names[name] = name
		}
	}
	return name, s.expect(':')
}

// more says whether another member or item follows in what ends with the bracket.
func (s *scanner) more(first bool, bracket byte) (bool, error) {
	c, err := s.must()
	if err != nil {
		return false, err
	}
	if c == bracket {
		s.pos++
		return false, nil
	}
	if first {
		return true, nil
	}
	if err := s.expect(','); err != nil {
		return false, err
	}
	c, err = s.must()
	if err == nil && c == bracket {
		err = s.fail("is not JSON: a comma stands before " + strconv.QuoteRune(rune(bracket)))
	}
	return true, err
}

// value reads one value whole. It is good until the next call.
func (s *scanner) value() (*value, error) {
	s.nodes.reset()
	return s.beside()
}

// beside reads one value whole and leaves those before it good.
func (s *scanner) beside() (*value, error) {
	s.held, s.begin = true, s.gone+int64(s.pos)
	v, err := s.node(nil, "", 0)
	s.held = false
	return v, err
}

func (s *scanner) node(parent *value, name string, depth int) (*value, error) {
	c, err := s.must()
	if err != nil {
		return nil, err
	}
	v := s.nodes.add(parent, name, s.line)
	switch {
	case s.nodes.n > maxValues:
		return nil, s.fail("a value holds more than 1,000,000 others")
	case depth > maxNest:
		return nil, s.fail("nests deeper than 128 levels")
	case c == '{' || c == '[':
		s.pos++
		return v, s.members(v, c, depth)
	case c == '"':
		v.kind = kindText
		v.damaged, err = s.text()
	default:
		v.kind, err = s.word()
	}
	if err != nil {
		return nil, err
	}
	v.text = string(s.scratch)
	return v, nil
}

func (s *scanner) members(v *value, open byte, depth int) error {
	v.kind = kindObject
	bracket := byte('}')
	if open == '[' {
		v.kind, bracket = kindArray, ']'
	}
	var seen nameSet
	for first := true; ; first = false {
		more, err := s.more(first, bracket)
		if err != nil || !more {
			return err
		}
		name := ""
		if v.kind == kindObject {
			if name, err = s.name(); err != nil {
				return err
			}
			if seen.again(v, name) {
				return &Error{File: s.file, Line: s.line, Text: "member " + strconv.Quote(shorten(name, 40)) + " must be given once"}
			}
		}
		if _, err := s.node(v, name, depth+1); err != nil {
			return err
		}
	}
}

// nameSet is the names of an object that has many; those of a few are looked through.
type nameSet map[string]bool

const fewMembers = 64

// again reports whether an object has a member of that name already.
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
func (s *scanner) skip(depth int) error {
	c, err := s.must()
	if err != nil {
		return err
	}
	bracket := byte('}')
	switch c {
	case '"':
		_, err := s.text()
		return err
	case '{':
	case '[':
		bracket = ']'
	default:
		_, err := s.word()
		return err
	}
	if depth > maxNest {
		return s.fail("nests deeper than 128 levels")
	}
	s.pos++
	for first := true; ; first = false {
		more, err := s.more(first, bracket)
		if err != nil || !more {
			return err
		}
		if c == '{' {
			if _, err := s.name(); err != nil {
				return err
			}
		}
		if err := s.skip(depth + 1); err != nil {
			return err
		}
	}
}
