// Package output prints the results of commands, for people and as JSON. Unprintable characters in
// outside text are escaped, so a terminal obeys none of them.
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

// Say prints a sentence for people. It escapes unprintable characters in args, which may come from
// outside.
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

// Count returns a number with its noun, in the plural unless the number is 1.
func Count(n int64, noun string) string {
	stem, y := strings.CutSuffix(noun, "ry")
	switch {
	case n == 1 || noun == "settings":
	case y:
		noun = stem + "ries"
	default:
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// JSON prints one value as indented JSON, with unprintable characters escaped.
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

// Escaped writes JSON with all unprintable characters in its strings escaped. The result means the
// same as JSON.
func Escaped(w io.Writer, text []byte) error {
	for line := range bytes.Lines(text) {
		body, ended := bytes.CutSuffix(line, []byte("\n")) // outside strings only JSON's own white space occurs
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

// Visible escapes, as JSON does, every character of a text that is not visible: control characters,
// which a terminal obeys, characters that reverse or hide the text around them, and invalid
// characters.
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

// List returns s, or an empty slice for nil, which JSON would show as null.
func List(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// Instant formats t for people. It returns none if t is nil.
func Instant(t *time.Time, none string) string {
	if t == nil {
		return none
	}
	return t.UTC().Format(time.RFC3339)
}
