// Package convert makes guild files from the exports of other bots. The package reads files that a
// person has downloaded; it uses no database and no network, and never runs the content of a file.
// A format consists of a table (format.table: which path becomes which member of which record, and
// which paths are known but have no place in a guild file), a reader, and a handler for special
// cases. The help, the report and the documents are made from the table. The rules that the formats
// share (what counts as a number, an instant or no member) are in rules.go, cases.go and levels.go.
//
// Every value that is left out, changed or unknown is counted in the report with its first place,
// and written in full to the file that the caller names.
package convert

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // so that --timezone works on machines without a time zone database

	"guildhall/internal/base/output"
)

// Options are the flags of a conversion. An empty option stands for the format's default.
type Options struct {
	From        string
	Guild       string
	SourceGuild string
	Strict      bool
	At          time.Time // the instant that counts as now

	XP, Curve, Balance, Moderator, Numbers string
	InForce                                string // a file
	CaseTypes                              []string
	Settings, Running                      bool

	// For tables and JSON.
	Record, Path, Timezone, Dates string
	Separator, Decimal            string
	Map                           []string
	NoHeader                      bool
}

// stage is one pass over the input. The finding pass looks for the guild's id. The surveying pass
// collects facts that change how earlier items are written, such as an unban that ends a ban. The
// writing pass writes the guild file.
type stage int

const (
	finding stage = iota
	surveying
	writing
)

// conversion is one run over the files of a source.
type conversion struct {
	ctx context.Context
	o   Options
	f   *format
	h   handler

	guild  string // id of the guild in the guild file
	source string // id of the guild whose data is read from the input
	found  map[string]bool
	stage  stage

	report    *Report
	lost      *lost
	failed    error // the first error of writing --left-out
	out       *sheet
	schemas   schemas
	documents int

	ids     rounding
	wallets map[uint64]int64
	levels  map[uint64]int64
	members map[uint64]int64
	seenAs  map[uint64]int64 // values of each member's first item, if the format allows an equal second one
	records map[string]int64 // rows of cases, tickets and giveaways, by record id
	names   []string         // names of the files that were opened in this pass

	ofGuilds   bool   // the items are grouped by guild id, and --guild selects a guild
	namesGuild bool   // a row or an item has named its guild
	nameless   *Error // the first row or item without a guild
	cases      *casebook
	channels   map[string]openTicket // open tickets by channel id, collected in the first pass over the files
	curve      *curve                // the source bot's XP for each level; nil if it is unknown
	own        *curve                // Guildhall's own
	tz         *time.Location
	layout     string // date layout that matched last, tried first for the next timestamp
	keep       bool   // keep the XP and not the level
}

// ErrStrict is returned under --strict when the report lists something that was left out,
// changed or unknown.
var ErrStrict = errors.New("something was left out, changed or is unknown, and --strict was given")

// Run reads the inputs and writes a guild file to out. If leftOut is not nil, Run writes every
// value there that was left out or changed. Run calls report with the report before the last lines
// are written. If Run fails after lines were written, it adds a line that makes every import refuse
// the file.
func Run(ctx context.Context, o Options, inputs []*Input, out, leftOut io.Writer, report func(*Report) error) error {
	r, err := newRun(o, out, leftOut)
	if err != nil {
		return err
	}
	r.ctx = ctx
	if len(inputs) == 0 {
		return usage("name the files to read, or - for standard input")
	}
	if err = r.convert(inputs); err == nil {
		err = report(r.report)
	}
	if err == nil && o.Strict && !r.report.Clean() {
		err = ErrStrict
	}
	if err != nil {
		return errors.Join(err, r.out.fail())
	}
	return r.out.flush()
}

// Check validates the options without reading any input.
func (o Options) Check() error {
	_, err := newRun(o, io.Discard, nil)
	return err
}

func newRun(o Options, out, leftOut io.Writer) (*conversion, error) {
	f := formatNamed(o.From)
	if f == nil {
		return nil, usage("--from: there is no format %q; there are %s", o.From, strings.Join(formatNames(), ", "))
	}
	r := &conversion{
		o: o, f: f, guild: o.Guild, source: o.SourceGuild, found: map[string]bool{},
		lost: newLost(leftOut), out: newSheet(out), schemas: schemas{}, own: &curve{total: xpAtLevel}, tz: time.UTC, channels: map[string]openTicket{},
	}
	if r.source == "" {
		r.source = r.guild
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	var err error
	r.h, err = f.start(r)
	return r, err
}

// check refuses flags that have no effect for the format, and parses the others.
func (r *conversion) check() error {
	o := &r.o
	given := map[string]bool{
		"source-guild": o.SourceGuild != "", "xp": o.XP != "", "curve": o.Curve != "", "balance": o.Balance != "", "moderator": o.Moderator != "",
		"numbers": o.Numbers != "", "in-force": o.InForce != "", "case-type": len(o.CaseTypes) > 0, "settings": o.Settings, "running": o.Running,
		"record": o.Record != "", "map": len(o.Map) > 0, "no-header": o.NoHeader, "separator": o.Separator != "", "timezone": o.Timezone != "",
		"path": o.Path != "", "dates": o.Dates != "", "decimal": o.Decimal != "",
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if given[name] && !slices.Contains(r.f.flags, name) {
			return usage("--%s means nothing for %s", name, r.f.name)
		}
	}
	for flag, id := range map[string]string{"guild": o.Guild, "moderator": o.Moderator, "source-guild": cond(r.f.name == "red" && o.SourceGuild == "global", "", o.SourceGuild)} {
		if _, err := snowflake(&value{kind: kindText, text: id}); id != "" && err != nil {
			return usage("--%s: must be an id of digits; it is %q", flag, id)
		}
	}
	for flag, of := range map[string][]string{
		"xp": {o.XP, "keep", "level"}, "balance": {o.Balance, "total", "cash", "bank"}, "numbers": {o.Numbers, "keep", "new"},
		"dates": {o.Dates, "dmy", "mdy"}, "decimal": {o.Decimal, ".", ","},
	} {
		if of[0] != "" && !slices.Contains(of[1:], of[0]) {
			return usage("--%s: must be one of %s", flag, strings.Join(of[1:], ", "))
		}
	}
	if r.guild == "" && !slices.Contains(r.f.flags, "source-guild") {
		return usage("the files of %s name no guild; say which is written: --guild ID", r.f.name)
	}
	var err error
	if r.cases, err = newCasebook(r); err != nil {
		return err
	}
	if o.Curve != "" {
		if r.curve, err = curveNamed(o.Curve); err != nil {
			return err
		}
	} else if r.f.curve != "" {
		r.curve, err = curveNamed(r.f.curve)
	}
	if o.Timezone != "" {
		if r.tz, err = time.LoadLocation(o.Timezone); err != nil {
			return usage("--timezone: there is no time zone %q; an example is Europe/Berlin", o.Timezone)
		}
	}
	r.keep = cond(o.XP == "", r.f.xp, o.XP) != "level"
	return err
}

func (r *conversion) convert(inputs []*Input) error {
	stages := []stage{writing}
	if r.f.survey(r) {
		stages = []stage{surveying, writing}
	}
	if r.guild == "" {
		stages = append([]stage{finding}, stages...)
	}
	if err := hold(inputs, len(stages) > 1 || r.f.seeks); err != nil {
		return err
	}
	r.report = newReport(r.f, r.guild, stamp{r.o.At}.String())
	for _, s := range stages {
		if err := r.pass(s, inputs); err != nil {
			return err
		}
	}
	r.cases.unmatched(r)
	return r.finish()
}

// pass reads all files once.
func (r *conversion) pass(s stage, inputs []*Input) error {
	r.stage, r.documents = s, 0
	r.wallets, r.levels, r.members, r.seenAs, r.records = map[uint64]int64{}, map[uint64]int64{}, map[uint64]int64{}, map[uint64]int64{}, map[string]int64{}
	r.names, r.namesGuild, r.nameless = nil, false, nil
	r.cases.rewind()
	if s == writing {
		if err := r.open(); err != nil {
			return err
		}
	}
	for _, in := range inputs {
		if err := r.file(in); err != nil {
			return err
		}
	}
	if s == finding {
		return r.choose(inputs)
	}
	if s == surveying {
		return errors.Join(r.cases.match(r), r.h.end())
	}
	return r.h.end()
}

// file reads one file.
func (r *conversion) file(in *Input) error {
	r.names = append(r.names, in.Name)
	src, err := in.open()
	if err != nil {
		return err
	}
	items, err := r.f.read(r, in, src)
	if err != nil {
		return r.misread(in, err)
	}
	if r.stage != writing {
		return nil
	}
	sum, size, err := src.sum()
	if err != nil {
		return &Error{File: in.Name, Text: "cannot be read: " + err.Error(), cause: err}
	}
	r.report.Files = append(r.report.Files, FileReport{Name: in.Name, SHA256: sum, Bytes: size, Items: items})
	return nil
}

// choose returns the guild if --guild was not given: the only guild that the files name.
func (r *conversion) choose(inputs []*Input) error {
	all := slices.Sorted(maps.Keys(r.found))
	switch {
	case r.source != "" && r.found[r.source]:
		r.guild = r.source
	case len(all) == 1 && r.source == "":
		r.guild, r.source = all[0], all[0]
	case len(all) == 0:
		return usage("the files name no guild; say which is written: --guild ID")
	case r.source != "":
		names := make([]string, len(inputs))
		for i, in := range inputs {
			names[i] = in.Name
		}
		return r.elsewhere(shorten(strings.Join(names, ", "), 200), r.found)
	default:
		return usage("the files name several guilds, %s; say which: --guild ID", shorten(strings.Join(all, ", "), 200))
	}
	if _, err := snowflake(&value{kind: kindText, text: r.guild}); err != nil {
		return usage("the guild that is written must be an id of digits: --guild ID")
	}
	r.report.GuildID = r.guild
	return nil
}

// otherGuild reports whether a row or an item belongs to a guild other than the source guild, and
// counts it then. named is the value that names the guild. Only with --source-guild, or for the
// files of a whole bot, are the items of other guilds skipped; otherwise they are an error.
func (r *conversion) otherGuild(named, of *value) (bool, error) {
	if named.none() || strings.TrimSpace(named.text) == "" {
		if r.nameless == nil {
			r.nameless, _ = errors.AsType[*Error](wrong(of, "names no guild, and others do"))
		}
	} else {
		guild, err := snowflake(named)
		if err != nil {
			return false, err
		}
		r.namesGuild = true
		if r.stage == finding {
			r.found[guild] = true
		} else if guild != r.source {
			if !r.manyGuilds() && r.o.SourceGuild == "" {
				return false, r.foreign(named, guild)
			}
			r.passOver(guild)
			return true, nil
		}
	}
	if r.f.people != "" && r.namesGuild && r.nameless != nil {
		return false, r.nameless
	}
	return r.stage == finding, nil
}

// manyGuilds reports whether the files contain many guilds of a bot.
func (r *conversion) manyGuilds() bool { return r.f.manyGuilds || r.ofGuilds }

// foreign returns the error for data of another guild.
func (r *conversion) foreign(v *value, guild string) error {
	err, _ := errors.AsType[*Error](wrong(v, "is of guild "+guild+", and --guild says "+r.guild+"; to take one guild's rows: --source-guild ID"))
	err.missing = true // the whole file may have another format
	return err
}

// passOver counts an item of another guild, which does not count as left out.
func (r *conversion) passOver(guild string) {
	if r.stage == writing {
		r.report.OtherGuilds[guild]++
	}
}

func (r *conversion) elsewhere(file string, guilds map[string]bool) error {
	all := strings.Join(slices.Sorted(maps.Keys(guilds)), ", ")
	return &Error{File: file, Text: "names guild " + shorten(all, 200) + " and not " + r.source + "; if that is the one to take, say so: --source-guild ID"}
}

// finish returns the errors that only show after all input was read.
func (r *conversion) finish() error {
	if err := r.ids.judge(); err != nil {
		return err
	}
	if len(r.report.Written) == 0 && r.failed == nil {
		names := make([]string, len(r.report.Files))
		for i, f := range r.report.Files {
			names[i] = f.Name
		}
		return &Error{File: shorten(strings.Join(names, ", "), 200), Text: "there is nothing in it to write for guild " + r.source + r.reasons()}
	}
	return r.failed
}

// reasons lists the first reasons for which items were left out.
func (r *conversion) reasons() string {
	var texts []string
	for _, f := range r.report.LeftOut[:min(len(r.report.LeftOut), 3)] {
		texts = append(texts, output.Count(f.Count, "item")+" "+f.Why)
	}
	return cond(len(texts) > 0, ": ", "") + strings.Join(texts, "; ")
}

func cond[T any](is bool, yes, no T) T {
	if is {
		return yes
	}
	return no
}
