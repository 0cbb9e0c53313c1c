package convert

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// format describes one source: where its files come from, its table and its handler.
type format struct {
	name       string
	title      string // name of the bot
	where      string // where the files come from, as the help shows it
	items      string // name of the items in the report
	table      []row
	flags      []string // flags besides those of every format
	xp         string   // default of --xp
	curve      string   // default of --curve
	kinds      map[string]becomes
	once       bool // two items of one member are an error
	equalTwice bool // … unless the two are equal
	// people is the column or path with a member's id, if the caller can set it: --map
	// user_id=COLUMN. Mentions count as ids there.
	people        string
	needs         []needed // members by which a file of this format is recognized
	newestFirst   bool     // if two cases have the same instant, the first in the file is the later one
	nullIsEndless bool     // a balance of null is infinite
	// manyGuilds is set if the files contain many guilds of a bot: --guild selects one.
	manyGuilds bool
	seeks      bool // the file is read by position, so a pipe has to be copied first
	notes      []string

	start  func(r *conversion) (handler, error)
	read   func(r *conversion, in *Input, src *source) (int64, error)
	survey func(r *conversion) bool // reports whether the input is read twice: a first pass collects what the second needs
	// prepare changes an item before the handler gets it.
	prepare func(v *value)
	roots   []*pattern
}

// formats lists all formats in the order of the help.
var formats = []*format{
	csvFormat, jsonFormat, mee6Format, unbelievaboatFormat, zeppelinFormat, dynoFormat, redFormat, ticketsFormat, ticketsBotFormat, ticketToolFormat, modmailFormat,
	ladders[0].asFormat(), ladders[1].asFormat(), ladders[2].asFormat(), ladders[3].asFormat(), ladders[4].asFormat(), giveawaysFormat,
}

func init() {
	for _, f := range formats {
		if f.survey == nil {
			f.survey = func(*conversion) bool { return false }
		}
		if f == csvFormat || f == jsonFormat {
			continue // the mapping depends on the command line
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

// Help writes, for each format, where its files come from and what each path becomes.
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

// folded wraps text at 99 columns.
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

// Markdown writes the tables of all formats for docs/bot/convert.md.
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

// export returns a name for the format's files in a sentence: a table, an Amari export.
func (f *format) export() string {
	if f.name == "csv" {
		return "a table"
	}
	return cond(strings.ContainsAny(f.title[:1], "AEIOU"), "an ", "a ") + f.title + " export"
}
