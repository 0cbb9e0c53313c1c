package convert

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// format is what is known of one source.
type format struct {
	name  string
	title string // the bot's own name
	where string // where its file comes from, for people
	items string // what its items are called
	table []row
	flags []string // besides those of every format
	xp    string   // what --xp is without the flag
	curve string   // what --curve is without the flag
	kinds map[string]becomes
	once  bool // two items of one member are an error
	seeks bool // the file is not read from front to back
	notes []string

	start  func(r *conversion) (handler, error)
	read   func(r *conversion, in *Input, src *source) (int64, error)
	survey func(r *conversion) bool // the input is looked at once before it is written
	// prepare changes an item before it is read.
	prepare func(v *value)
	roots   []*pattern
}

// formats in the order of the help.
var formats = []*format{
	csvFormat, mee6Format, unbelievaboatFormat, zeppelinFormat, redFormat, ticketsFormat, modmailFormat,
	ladders[0].asFormat(), ladders[1].asFormat(), ladders[2].asFormat(), ladders[3].asFormat(), ladders[4].asFormat(), giveawaysFormat,
}

func init() {
	for _, f := range formats {
		if f.survey == nil {
			f.survey = func(*conversion) bool { return false }
		}
		if f.name == "csv" {
			continue
		}
		root := grow(f.table)
		f.roots = []*pattern{root}
		if f.read == nil {
			f.read = func(r *conversion, in *Input, src *source) (int64, error) { return r.walk(in.Name, src, root) }
		}
	}
}

func formatNamed(name string) *format {
	if i := slices.IndexFunc(formats, func(f *format) bool { return f.name == name }); i >= 0 {
		return formats[i]
	}
	return nil
}

func formatNames() []string {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = f.name
	}
	return names
}

// Help writes each format: where its file comes from, and what becomes of it.
func Help(w io.Writer) error {
	const legend = "Paths: # is each item of a list, a name in braces each id. \"No place\" is what Guildhall has no field for; it is counted.\n\n"
	if _, err := io.WriteString(w, legend); err != nil {
		return err
	}
	for i, f := range formats {
		text := cond(i > 0, "\n", "") + f.name + "\n" + indent(f.where, "  ") + "\n"
		width := 0
		for _, row := range f.table {
			width = max(width, len(row.path))
		}
		for _, row := range f.table {
			if !row.item {
				text += fmt.Sprintf("    %-*s  %s\n", width, row.path, cond(row.to == "", "no place", row.to))
			}
		}
		for _, note := range f.notes {
			text += indent(note, "  ") + "\n"
		}
		text += "  flags: " + strings.Join(f.flagNames(), ", ") + "\n"
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	return nil
}

func (f *format) flagNames() []string {
	names := make([]string, len(f.flags))
	for i, flag := range f.flags {
		names[i] = "--" + flag
	}
	return names
}

func indent(text, by string) string { return by + strings.ReplaceAll(text, "\n", "\n"+by) }

// folded breaks prose into lines of at most 99 columns.
func folded(text string) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		switch n := utf8.RuneCountInString(word); {
		case column == 0:
			column = n
		case column+1+n > 99:
			b.WriteByte('\n')
			column = n
		default:
			b.WriteByte(' ')
			column += 1 + n
		}
		b.WriteString(word)
	}
	return b.String()
}

// Markdown writes the tables of the formats as they stand in the documents.
func Markdown(w io.Writer) error {
	for _, f := range formats {
		text := "### " + f.title + " (`--from " + f.name + "`)\n\n" + folded(f.where) + "\n\n| In the file | Becomes |\n|---|---|\n"
		var none []string
		for _, row := range f.table {
			switch {
			case row.item:
			case row.to == "":
				none = append(none, "`"+row.path+"`")
			default:
				text += "| `" + row.path + "` | " + row.to + " |\n"
			}
		}
		if len(none) > 0 {
			text += "\n| No place for |\n|---|\n"
			for three := range slices.Chunk(none, 3) {
				text += "| " + strings.Join(three, ", ") + " |\n"
			}
		}
		for _, note := range f.notes {
			text += "\n" + folded(note) + "\n"
		}
		text += "\n" + folded("Flags besides those of every format: `"+strings.Join(f.flagNames(), "`, `")+"`.") + "\n\n"
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	return nil
}

// export is what the format's files are called.
func (f *format) export() string {
	if f.name == "csv" {
		return "a table"
	}
	return cond(strings.ContainsAny(f.title[:1], "AEIOU"), "an ", "a ") + f.title + " export"
}

// misread says what a file may be that is not what it was said to be.
func (r *conversion) misread(in *Input, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || !e.missing || in.file == nil {
		return err
	}
	like := r.likeness(in)
	if like == nil || like == r.f {
		return err
	}
	return &Error{File: e.File, Line: e.Line, Text: "this looks like " + like.export() + ": --from " + like.name}
}
