// Package output prints what a command has to say, for people and as JSON. Text from
// outside is shown, and never obeyed by a terminal.
package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"
)

// Say prints a sentence for people. Texts among args may come from outside, so
// what does not print is escaped in them.
func Say(w io.Writer, format string, args ...any) error {
	for i, a := range args {
		switch a := a.(type) {
		case string:
			args[i] = Visible(a)
		case error:
			args[i] = Visible(a.Error())
		}
	}
	_, err := fmt.Fprintf(w, format+"\n", args...)
	return err
}

// JSON prints one value, indented and without a character that does not
// print.
func JSON(w io.Writer, v any) error {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	return Escaped(w, out.Bytes())
}

// Escaped writes JSON with every character that does not print in a string
// escaped, which means the same to whoever reads it as JSON.
func Escaped(w io.Writer, text []byte) error {
	for line := range bytes.Lines(text) {
		body, ended := bytes.CutSuffix(line, []byte("\n")) // between values, where white space is JSON's own
		out := Visible(string(body))
		if ended {
			out += "\n"
		}
		if _, err := io.WriteString(w, out); err != nil {
			return err
		}
	}
	return nil
}

// Table prints rows in columns; the first row is the heading.
func Table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, r := range rows {
		cells := make([]string, len(r))
		for i, cell := range r {
			cells[i] = Visible(cell)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}

// Visible escapes every character of a text that does not show as itself, as
// JSON escapes it: control characters, which a terminal obeys, those that turn
// or hide what stands around them, and what is no character at all.
func Visible(text string) string {
	if strings.IndexFunc(text, hidden) < 0 && utf8.ValidString(text) {
		return text
	}
	var out strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\ufffd"):
			out.WriteString(`\ufffd`)
		case !hidden(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

func hidden(r rune) bool {
	return !unicode.IsPrint(r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}

// List is never null in JSON.
func List(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// Instant is an instant for people, or none.
func Instant(t *time.Time, none string) string {
	if t == nil {
		return none
	}
	return t.UTC().Format(time.RFC3339)
}
