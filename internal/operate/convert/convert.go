// Package convert makes guild files of what other bots leave behind. It reads files
// that a person has fetched, and knows no database and no network; what it reads it
// never runs. A format is a table (format.table: which path becomes which member of
// which record, and which are known to have no place), a reader, and a handler for
// what is special about it. The help, the report and the documents are made from
// that table. The rules that the formats share (what counts as a number, an instant or
// no member) stand in rules.go, cases.go and levels.go.
//
// Nothing is guessed in silence: what is left out, changed or unknown is counted,
// with its first place, and is written whole to the file that the caller names.
package convert

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // --timezone names a zone where the machine knows none
)

// Options are what a caller decides. Empty is the format's default.
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

	// Of tables.
	Record, Separator, Timezone string
	Map                         []string
	NoHeader                    bool
}

// The input is read up to three times: to find the guild that it names, to look at
// what decides about what stands before it, and to write.
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

	guild  string // that is written
	source string // whose data is taken
	found  map[string]bool
	stage  stage

	report    *Report
	lost      *lost
	failed    error // writing what was left out has failed
	out       *sheet
	schemas   schemas
	documents int

	ids     rounding
	wallets map[uint64]int64
	levels  map[uint64]int64
	records map[string]int64 // ids of cases, tickets and giveaways, with their rows
	names   []string         // of the files that have been begun
	cases   *casebook
	curve   *curve // the source's, nil if it is not known
	own     *curve // that of guild files
	tz      *time.Location
	keep    bool // the number of XP, not the level
}

// ErrStrict is a conversion that was well but for what the report lists.
var ErrStrict = errors.New("something was left out, changed or is unknown, and --strict was given")

// Run reads the inputs and writes a guild file. It writes to leftOut, which may be nil,
// what it left out or changed, and tells the report before the file is whole. When it
// fails after lines have gone out, the last is one that no import takes.
func Run(ctx context.Context, o Options, inputs []*Input, out, leftOut io.Writer, tell func(*Report) error) error {
	r, err := newRun(o, out, leftOut)
	if err != nil {
		return err
	}
	r.ctx = ctx
	if len(inputs) == 0 {
		return usage("name the files to read, or - for standard input")
	}
	if err = r.convert(inputs); err == nil {
		err = tell(r.report)
	}
	if err == nil && o.Strict && !r.report.Clean() {
		err = ErrStrict
	}
	if err != nil {
		return errors.Join(err, r.out.fail())
	}
	return r.out.flush()
}

// Check says what is wrong with options, before anything is read.
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
		lost: newLost(leftOut), out: newSheet(out), schemas: schemas{}, own: &curve{total: xpAtLevel}, tz: time.UTC,
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

// check refuses flags that mean nothing.
func (r *conversion) check() error {
	o := &r.o
	given := map[string]bool{
		"source-guild": o.SourceGuild != "", "xp": o.XP != "", "curve": o.Curve != "", "balance": o.Balance != "", "moderator": o.Moderator != "",
		"numbers": o.Numbers != "", "in-force": o.InForce != "", "case-type": len(o.CaseTypes) > 0, "settings": o.Settings, "running": o.Running,
		"record": o.Record != "", "map": len(o.Map) > 0, "no-header": o.NoHeader, "separator": o.Separator != "", "timezone": o.Timezone != "",
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
	for flag, of := range map[string][]string{"xp": {o.XP, "keep", "level"}, "balance": {o.Balance, "total", "cash", "bank"}, "numbers": {o.Numbers, "keep", "new"}} {
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

// pass goes through all the input once.
func (r *conversion) pass(s stage, inputs []*Input) error {
	r.stage, r.documents = s, 0
	r.wallets, r.levels, r.records = map[uint64]int64{}, map[uint64]int64{}, map[string]int64{}
	r.names = nil
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
		return errors.Join(r.cases.settle(r), r.h.end())
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

// choose takes the one guild that the files name.
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

func (r *conversion) elsewhere(file string, guilds map[string]bool) error {
	all := strings.Join(slices.Sorted(maps.Keys(guilds)), ", ")
	return &Error{File: file, Text: "names guild " + shorten(all, 200) + " and not " + r.source + "; if that is the one to take, say so: --source-guild ID"}
}

// finish says what only the end shows.
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

// reasons is why there is nothing to write, if anything was left out.
func (r *conversion) reasons() string {
	var texts []string
	for _, f := range r.report.LeftOut[:min(len(r.report.LeftOut), 3)] {
		texts = append(texts, count(f.Count, "item")+" "+f.Why)
	}
	return cond(len(texts) > 0, ": ", "") + strings.Join(texts, "; ")
}

func cond[T any](is bool, yes, no T) T {
	if is {
		return yes
	}
	return no
}
