package dashboard

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"guildhall/internal/base/fault"
	"guildhall/internal/base/wire"
)

//go:embed templates assets
var files embed.FS

const (
	styleName  = "style.css"
	scriptName = "app.js"
)

// frame is what the layout shows around a page.
type frame struct {
	Title  string
	Crumbs []crumb // links between the guild and the page
	Tab    string  // tab of the guild's pages
	Live   bool    // reloaded every five seconds
}

type crumb struct{ Name, To string }

// outer is the data of a template: the frame, the signed-in person and the view.
type outer struct {
	frame
	Guild    guild
	Who      person
	Notice   string
	Problems []problem
	Failure  *errorView // the form could not be processed now
	Style    string
	Script   string
	Home     string
	Base     string // base of the API's URLs; empty before the sign-in
	Version  string // the program's version; empty before the sign-in
	V        any
	s        *Server
}

// problem is an error in the form field with this name.
type problem struct{ Field, Text string }

// problems are the errors in a form.
type problems []problem

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, problem{field, fmt.Sprintf(format, args...)})
}

// At returns the error of a field; empty if there is none.
func (p problems) At(field string) string {
	for _, one := range p {
		if one.Field == field {
			return one.Text
		}
	}
	return ""
}

// checked is the part of a form's view that holds the errors.
type checked struct{ Problems problems }

func (c *checked) wrong() []problem { return c.Problems }

// pageTemplate parses the template of a page when the page is shown for the first time: to parse all pages takes 20 ms of CPU.
type pageTemplate func() (*template.Template, error)

// readPages lists the templates. Each page is the layout with its own
// "main"; the pieces that several pages use are in parts.html and records.html.
func (s *Server) readPages() (map[string]pageTemplate, error) {
	base, err := template.New("layout").Funcs(s.funcs()).ParseFS(files, "templates/layout.html", "templates/parts.html", "templates/records.html")
	if err != nil {
		return nil, fault.Wrap(err, "dashboard")
	}
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		return nil, fault.Wrap(err, "dashboard")
	}
	pages := map[string]pageTemplate{}
	for _, name := range names {
		file := path.Base(name)
		if base.Lookup(file) != nil {
			continue
		}
		pages[strings.TrimSuffix(file, ".html")] = sync.OnceValues(func() (*template.Template, error) {
			t, err := base.Clone()
			if err != nil {
				return nil, err
			}
			return t.ParseFS(files, name)
		})
	}
	return pages, nil
}

// render renders the page of a reply.
func (c *call) render(r reply) ([]byte, error) {
	read, ok := c.pages[r.page]
	if !ok {
		return nil, fmt.Errorf("dashboard: there is no page %q", r.page)
	}
	p, err := read()
	if err != nil {
		return nil, fault.Wrap(err, "read", r.page)
	}
	o := outer{
		frame: r.frame, Guild: c.guild, Who: c.who, V: r.view, s: c.Server, Home: Prefix, Notice: c.said, Failure: c.failure,
		Style: Prefix + "/assets/" + styleName, Script: Prefix + "/assets/" + scriptName,
	}
	if f, ok := r.view.(interface{ wrong() []problem }); ok && c.failure == nil {
		o.Problems = f.wrong()
	}
	if c.who.ID != "" {
		o.Base, o.Version = c.base+"/api/v1", c.cfg.Version
	}
	if c.who.ID != "" && c.said == "" && !c.refreshing() {
		o.Notice = c.sessions.PopString(c.ctx, keyNotice)
	}
	var b bytes.Buffer
	b.Grow(16 << 10)
	if err := p.ExecuteTemplate(&b, "layout", o); err != nil {
		return nil, fault.Wrap(err, "render", r.page)
	}
	return b.Bytes(), nil
}

func (s *Server) funcs() template.FuncMap {
	return template.FuncMap{
		"utc":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
		"short":   func(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04 UTC") },
		"stamp":   func(t time.Time) string { return t.UTC().Format("2 Jan 15:04:05") },
		"precise": func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
		"iso":     func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"ago":     func(t time.Time) string { return ago(s.now().Sub(t)) },
		"within":  func(t time.Time) string { return within(t.Sub(s.now())) },
		"days":    func(t time.Time) int { return int(t.Sub(s.now()) / (24 * time.Hour)) },
		"past":    func(t time.Time) bool { return !s.now().Before(t) },
		"number":  number,
		"scopes":  scopeWords,
		"agent":   agentName,
		"field":   newField,
		"seq":     func(list ...any) []any { return list },
		"dict":    dict,
		"visible": func(v any) string {
			if p, ok := v.(*string); ok && p != nil {
				v = *p
			}
			return visible(fmt.Sprint(v))
		},
	}
}

func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict: names and values belong together")
	}
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: %v is no name", pairs[i])
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}

// field is a form input with its label.
type field struct{ Name, Label, Type, Value, Hint, Wrong string }

func newField(p problems, name, label, kind, value, hint string) field {
	return field{name, label, kind, value, hint, p.At(name)}
}

// ago returns roughly how long ago something was.
func ago(d time.Duration) string {
	if d < 5*time.Second {
		return "just now"
	}
	return rough(d) + " ago"
}

// within returns roughly how far in the future something is.
func within(d time.Duration) string {
	if d < time.Second {
		return "now"
	}
	return "in " + rough(d)
}

func rough(d time.Duration) string {
	for _, unit := range []struct {
		name string
		size time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}} {
		if n := int(d / unit.size); n >= 1 {
			if n == 1 {
				return "1 " + unit.name
			}
			return strconv.Itoa(n) + " " + unit.name + "s"
		}
	}
	return "a moment"
}

// number formats a number with groups of digits: 12,345.
func number(v any) string {
	if p, ok := v.(*int); ok && p != nil {
		v = *p
	}
	s := fmt.Sprint(v)
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// visible replaces the characters that would change the text around them: control characters, and
// marks that change the direction of writing. Joiners and flag tags that belong to the text stay.
func visible(s string) string {
	text := []rune(strings.ToValidUTF8(s, "\ufffd"))
	shown := make([]rune, len(text))
	for i, r := range text {
		switch {
		case r == '\n' || r == '\t':
		case r < ' ' || r == 0x7f:
			r = '\u2400' + r%0x7f%0x21
		case unicode.Is(unicode.Cf, r) && !wire.IsJoining(text, i) || unicode.Is(unicode.Cc, r) || r == '\u2028' || r == '\u2029':
			r = '\ufffd'
		}
		shown[i] = r
	}
	return string(shown)
}

// plainText returns a name from outside as one line of at most n characters, without control
// characters and invisible marks.
func plainText(s string, n int) string {
	text := []rune(strings.ToValidUTF8(s, ""))
	var kept []rune
	for i, r := range text {
		if r >= ' ' && !unicode.Is(unicode.Cc, r) && (!unicode.Is(unicode.Cf, r) || wire.IsJoining(text, i)) {
			kept = append(kept, r)
		}
	}
	kept = []rune(strings.TrimSpace(string(kept)))
	return string(kept[:min(n, len(kept))])
}
