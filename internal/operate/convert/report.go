package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"guildhall/internal/base/output"
)

// Error describes what is wrong with the input: the file, the line, the path within the
// file, what is wrong and what to do about it.
type Error struct {
	File, Path string
	Line       int
	Text       string
	cause      error
	missing    bool // a required member is missing
}

func (e *Error) Error() string {
	parts := []string{}
	if e.File != "" {
		parts = append(parts, e.File)
	}
	if e.Line > 0 {
		parts = append(parts, "line "+strconv.Itoa(e.Line))
	}
	if e.Path != "" {
		parts = append(parts, e.Path)
	}
	return strings.Join(append(parts, e.Text), ": ")
}

func (e *Error) Unwrap() error { return e.cause }

func asError(err error) (*Error, bool) { return errors.AsType[*Error](err) }

// UsageError describes flags that contradict each other or the format.
type UsageError struct{ Text string }

func (e *UsageError) Error() string { return e.Text }

func usage(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// maxFirst is how many places a finding lists.
const maxFirst = 20

// Place is the place of a value that was left out, changed or is unknown.
type Place struct {
	File  string `json:"file"`
	Line  int    `json:"line"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

func (p Place) String() string {
	text := p.File
	if p.Line > 0 {
		text += " line " + strconv.Itoa(p.Line)
	}
	return text
}

// Finding counts the values that were left out or changed for one reason.
type Finding struct {
	Why   string  `json:"why"`
	Count int64   `json:"count"`
	First []Place `json:"first"`
}

// FileReport describes one file that was read.
type FileReport struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
	Items  int64  `json:"items"`
}

// Report summarizes a conversion: what was written, left out, changed or is unknown.
type Report struct {
	Format           string           `json:"format"`
	GuildID          string           `json:"guild_id"`
	At               string           `json:"at"`
	Files            []FileReport     `json:"files"`
	Written          map[string]int64 `json:"written"`
	LeftOut          []*Finding       `json:"left_out"`
	Changed          []*Finding       `json:"changed"`
	Warnings         []*Finding       `json:"warnings"`
	NoPlace          map[string]int64 `json:"no_place"`
	Unknown          map[string]int64 `json:"unknown"`
	LevelsThatDiffer int64            `json:"levels_that_differ"`
	OtherGuilds      map[string]int64 `json:"other_guilds"` // number of skipped items, by guild

	items        string // name of the items in the report
	unknownFirst map[string]Place
}

func newReport(f *format, guild, at string) *Report {
	return &Report{
		Format: f.name, GuildID: guild, At: at, items: f.items,
		Files: []FileReport{}, Written: map[string]int64{},
		LeftOut: []*Finding{}, Changed: []*Finding{}, Warnings: []*Finding{},
		NoPlace: map[string]int64{}, Unknown: map[string]int64{}, unknownFirst: map[string]Place{},
		OtherGuilds: map[string]int64{},
	}
}

// add counts one more value for a reason.
func add(list *[]*Finding, why string, at Place) {
	i := slices.IndexFunc(*list, func(f *Finding) bool { return f.Why == why })
	if i < 0 {
		*list = append(*list, &Finding{Why: why, First: []Place{}})
		i = len(*list) - 1
	}
	f := (*list)[i]
	f.Count++
	if len(f.First) < maxFirst {
		f.First = append(f.First, at)
	}
}

// Clean reports whether nothing was left out, changed or unknown. Values without a place in a guild
// file do not count.
func (r *Report) Clean() bool { return len(r.LeftOut)+len(r.Changed)+len(r.Unknown) == 0 }

// JSON writes the report for programs.
func (r *Report) JSON(w io.Writer) error { return output.JSON(w, r) }

// Print writes the report for people.
func (r *Report) Print(w io.Writer) error {
	var items, written int64
	for _, f := range r.Files {
		items += f.Items
	}
	kinds := make([]string, 0, len(r.Written))
	for _, kind := range slices.Sorted(maps.Keys(r.Written)) {
		written += r.Written[kind]
		kinds = append(kinds, output.Count(r.Written[kind], strings.ReplaceAll(kind, "_", " ")))
	}
	if written == 0 {
		kinds = []string{"nothing"}
	}
	lines := []string{fmt.Sprintf("%s: %s, %s: %s written.", r.Format, output.Count(int64(len(r.Files)), "file"), output.Count(items, r.items), strings.Join(kinds, ", "))}
	for _, list := range []struct {
		label string
		of    []*Finding
	}{{"left out", r.LeftOut}, {"changed", r.Changed}, {"warning", r.Warnings}} {
		for _, f := range list.of {
			lines = append(lines, fmt.Sprintf("  %-9s%5d  %s (first: %s)", list.label, f.Count, f.Why, f.First[0]))
		}
	}
	if len(r.NoPlace) > 0 {
		lines = append(lines, "  no place        "+names(r.NoPlace))
	}
	for _, at := range slices.Sorted(maps.Keys(r.Unknown)) {
		lines = append(lines, fmt.Sprintf("  %-9s%5d  %s (first: %s)", "unknown", r.Unknown[at], at, r.unknownFirst[at]))
	}
	for _, guild := range slices.Sorted(maps.Keys(r.OtherGuilds)) {
		lines = append(lines, fmt.Sprintf("  passed   %5d  of guild %s", r.OtherGuilds[guild], guild))
	}
	if r.LevelsThatDiffer > 0 {
		lines = append(lines, fmt.Sprintf("  levels   %5d  are others than the curve's", r.LevelsThatDiffer))
	}
	for _, line := range lines {
		if err := output.Say(w, "%s", line); err != nil {
			return err
		}
	}
	return nil
}

// names returns the last words of at most five paths.
func names(paths map[string]int64) string {
	set := map[string]bool{}
	for p := range paths {
		set[path.Base(strings.TrimSuffix(p, "/*"))] = true
	}
	all := slices.Sorted(maps.Keys(set))
	if len(all) > 5 {
		all = append(all[:5], "…")
	}
	return strings.Join(all, ", ")
}

// lost writes the values that were left out or changed as JSON, one value per line.
type lost struct{ out *json.Encoder }

func newLost(w io.Writer) *lost {
	if w == nil {
		return nil
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return &lost{e}
}

func (l *lost) add(at Place, why string, whole any) error {
	if l == nil {
		return nil
	}
	return l.out.Encode(struct {
		File  string `json:"file"`
		Line  int    `json:"line"`
		Path  string `json:"path"`
		Why   string `json:"why"`
		Value any    `json:"value"`
	}{at.File, at.Line, at.Path, why, whole})
}
