package convert

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// lookAhead is how many bytes of a file are read to recognize its format.
const lookAhead = 256 << 10

// needed describes the items of a format: where they are, and their required members.
type needed struct {
	path    string
	members string // name=kind, separated by blanks; a|b means either name
	without string // a member that shows that the items have another format
}

// misread adds to an error which format the file may really have.
func (r *conversion) misread(in *Input, err error) error {
	e, ok := asError(err)
	if !ok || !e.missing || in.file == nil {
		return err
	}
	head, cut := in.head()
	say := func(text string) error { return &Error{File: e.File, Line: e.Line, Text: text} }
	if text := r.otherFile(in, head); text != "" {
		return say(text)
	}
	begin := bytes.TrimSpace(head)
	if len(begin) == 0 || begin[0] != '{' && begin[0] != '[' {
		line, _, _ := bytes.Cut(begin, []byte("\n"))
		if bytes.ContainsAny(line, ",;\t") && utf8.Valid(line) && r.f.name != "csv" {
			return say("this looks like a table: --from csv")
		}
		return err
	}
	root := beginning(in.Name, head)
	if root == nil {
		return err
	}
	if text := r.otherJSON(root, cut, e.Path == ""); text != "" {
		return say(text)
	}
	return err
}

// head returns the first bytes of the file without a byte order mark, and whether the file may
// continue after them.
func (in *Input) head() (head []byte, cut bool) {
	head = make([]byte, lookAhead)
	n, _ := in.file.ReadAt(head, 0)
	return bytes.TrimPrefix(head[:n], byteOrderMark), n == lookAhead
}

// beginning parses head as far as possible as the start of a document; nil if head is not JSON.
func beginning(name string, head []byte) *value {
	s := newScanner(name, bytes.NewReader(head))
	_, _ = s.value() // head may end in the middle of the document
	if s.nodes.n == 0 {
		return nil
	}
	return &s.nodes.chunks[0][0]
}

var (
	hexDump  = regexp.MustCompile(`^[0-9a-fA-F]{64,}\s*$`)
	sqlBegin = regexp.MustCompile(`(?i)^(--|/\*!|create table|insert into|pragma |begin transaction)`)
)

const encrypted = "is a dump whose texts are encrypted; use Export in the dashboard (4.0.29)"

// otherFile describes a file that is neither JSON nor a table.
func (r *conversion) otherFile(in *Input, head []byte) string {
	begin := bytes.TrimSpace(head)
	switch {
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return r.likeZip(in)
	case bytes.HasPrefix(head, []byte("SQLite format 3\x00")):
		return "is a database of SQLite; give the result of a query: --from csv"
	case bytes.Contains(head, []byte("let messages")):
		return r.looksLike(formatNamed("ticket-tool"))
	case isPage(begin):
		return "is a page (HTML) and holds no data; fetch the export again"
	case sqlBegin.Match(begin):
		return "is SQL, which is never run; give the result of a query: --from csv"
	case hexDump.Match(begin):
		return encrypted
	}
	return ""
}

// isPage reports whether a file starts like HTML. A table may start with a mention or an instant,
// <@ID> or <t:SECONDS>.
func isPage(begin []byte) bool {
	return bytes.HasPrefix(begin, []byte("<")) && !bytes.HasPrefix(begin, []byte("<@")) && !bytes.HasPrefix(begin, []byte("<t:"))
}

// likeZip describes a zip by the names of its files.
func (r *conversion) likeZip(in *Input) string {
	z, err := in.zip()
	if err != nil {
		return ""
	}
	for _, f := range z.File {
		if f.Name == "tickets.jsonl" {
			return r.looksLike(formatNamed("discord-tickets"))
		}
		if f.Name == "data.json" || strings.HasPrefix(f.Name, "transcripts/") {
			return r.looksLike(formatNamed("tickets-bot"))
		}
	}
	return ""
}

// looksLike returns a sentence with the format that a file seems to have; empty if the caller has
// named that format.
func (r *conversion) looksLike(f *format) string {
	return cond(f == r.f, "", "this looks like "+f.export()+": --from "+f.name)
}

// refusalMembers are the members of an error response of an API.
var refusalMembers = strings.Fields("message error errors detail code status status_code statusCode success retry_after global")

// otherJSON describes JSON of another format. cut means that the end of the document was not read;
// whole means that the error is about the whole document.
func (r *conversion) otherJSON(root *value, cut, whole bool) string {
	if text := refusal(root); text != "" {
		return text
	}
	if first := root.first; root.kind == kindArray && first != nil && first.kind == kindArray && first.count == 2 &&
		first.first.kind == kindText && first.last.kind == kindArray {
		return encrypted
	}
	var like []*format
	for _, f := range formats {
		if slices.ContainsFunc(f.needs, func(n needed) bool { return n.fits(root, cut) }) {
			like = append(like, f)
		}
	}
	switch {
	case slices.Contains(like, r.f):
		return "" // the error itself says more
	case len(like) == 1:
		return r.looksLike(like[0])
	case len(like) == 0:
		return cond(whole || root.kind == kindArray || !r.f.shares(root), r.anyJSON(root), "")
	}
	names := make([]string, len(like))
	for i, f := range like {
		names[i] = f.name
	}
	last := len(names) - 1
	return holds(root) + "; could be " + strings.Join(names[:last], ", ") + " or " + names[last] + ": say which bot it is from"
}

// refusal returns the error text if the document is an error response of an API.
func refusal(root *value) string {
	text := root.get("message")
	if text.none() {
		text = root.get("error")
	}
	if text == nil {
		return ""
	}
	for _, m := range root.members() {
		if !slices.Contains(refusalMembers, m.name) {
			return ""
		}
	}
	return "is an answer that refuses (" + text.shown() + "); fetch it again"
}

// holds describes a document by its first item.
func holds(root *value) string {
	of, item := "an object with ", root
	if root.kind == kindArray {
		if of, item = "a list of objects with ", root.first; item == nil || item.kind != kindObject {
			return "holds a list"
		}
	}
	var names []string
	for _, m := range item.members() {
		names = append(names, shorten(m.name, 40))
	}
	if len(names) > 8 {
		names = append(names[:8], "…")
	}
	return "holds " + of + strings.Join(names, ", ")
}

// anyJSON suggests --from json for a document that fits no other format.
func (r *conversion) anyJSON(root *value) string {
	paths := jsonPaths(root)
	switch {
	case r.f.name == "json":
	case len(paths) > 0:
		return fmt.Sprintf("%s; --from json reads any: --path %s", holds(root), paths[0])
	case slices.ContainsFunc(root.members(), func(m *value) bool { return isID(m.text) }):
		return holds(root) + "; --from json reads any" // one document per line
	}
	return ""
}

// shares reports whether a document has a member that is at the top level of the format's files.
func (f *format) shares(root *value) bool {
	for _, n := range f.needs {
		first, _, _ := strings.Cut(strings.TrimPrefix(n.path, "/"), "/")
		if root.get(first) != nil {
			return true
		}
		for m := range strings.FieldsSeq(n.members) {
			names, kind, _ := strings.Cut(m, "=")
			for name := range strings.SplitSeq(names, "|") {
				if n.path == "" && kind != "any" && root.get(name) != nil {
					return true
				}
			}
		}
	}
	return false
}

// fits reports whether at least one item has all required members with their types, and no item
// lacks one. If the document was cut, the last item of a list is ignored.
func (n needed) fits(root *value, cut bool) bool {
	items := []*value{root}
	for word := range strings.SplitSeq(strings.TrimPrefix(n.path, "/"), "/") {
		if n.path == "" {
			break
		}
		var below []*value
		for _, v := range items {
			switch {
			case word == "#":
				below = append(below, v.list()...)
			case strings.HasPrefix(word, "{"):
				below = append(below, v.members()...)
			case v.get(word) != nil:
				below = append(below, v.get(word))
			}
		}
		if items = below; cut && len(items) > 1 && (word == "#" || word[0] == '{') {
			items = items[:len(items)-1]
		}
	}
	for _, item := range items {
		if item.kind != kindObject || n.without != "" && item.get(n.without) != nil {
			return false
		}
		for m := range strings.FieldsSeq(n.members) {
			names, kind, _ := strings.Cut(m, "=")
			has := false
			for name := range strings.SplitSeq(names, "|") {
				has = has || item.get(name).is(kind)
			}
			if !has {
				return false
			}
		}
	}
	return len(items) > 0
}

// is reports whether a value has a kind that an item requires.
func (v *value) is(kind string) bool {
	if v == nil {
		return false
	}
	switch kind {
	case "id":
		return (v.kind == kindText || v.kind == kindNumber) && digits(strings.TrimSpace(v.text))
	case "number":
		return v.kind == kindNumber || v.kind == kindText && isNumber([]byte(v.text))
	case "text":
		return v.kind == kindText
	case "list":
		return v.kind == kindArray
	case "object":
		return v.kind == kindObject
	}
	return true
}
