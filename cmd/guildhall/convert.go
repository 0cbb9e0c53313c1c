package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"guildhall/internal/base/fault"
	"guildhall/internal/base/output"
	"guildhall/internal/base/wire"
	"guildhall/internal/operate/convert"
)

type convertCommand struct {
	From        string   `required:"" help:"What the files are of; help lists the formats and what becomes of them." placeholder:"FORMAT"`
	Guild       string   `help:"The guild that is written; may be left out where the files name one." placeholder:"ID"`
	SourceGuild string   `help:"Whose data is taken, if not that guild's." placeholder:"ID"`
	Out         string   `default:"-" help:"Where to write; - is standard output." placeholder:"FILE"`
	Report      string   `help:"Write the report as JSON too." placeholder:"FILE"`
	LeftOut     string   `help:"Write what was left out, cut or changed, whole, a line of JSON each." placeholder:"FILE"`
	Strict      bool     `help:"Fail when anything was left out, changed or is unknown."`
	XP          string   `name:"xp" help:"Keep the number of XP, or the level and the way to the next: keep or level." placeholder:"MODE"`
	Curve       string   `help:"The source's curve: mee6, lurkr, amari, arcane-linear, -exponential or -flat, total:C0,C1,… or step:C0,C1,…" placeholder:"CURVE"`
	Balance     string   `help:"What a wallet gets of two pockets: total, cash or bank." placeholder:"POCKET"`
	Moderator   string   `help:"Who stands for a moderator that the source does not name; by default the guild's id." placeholder:"ID"`
	Numbers     string   `help:"Numbers of cases and tickets: keep the source's, or new ones of the guild." placeholder:"keep|new"`
	InForce     string   `help:"Bans and mutes that hold now: CSV with user_id, type and expires_at." placeholder:"FILE"`
	CaseType    []string `sep:"none" help:"What a kind of case becomes; NAME= leaves it out. May be repeated." placeholder:"NAME=TYPE"`
	Settings    bool     `help:"Write settings too: the name of Red's currency."`
	Running     bool     `help:"Write giveaways that have not ended, too."`
	At          string   `help:"The instant that counts as now." placeholder:"TIME"`
	Record      string   `help:"csv, json: what a row or an item is: wallet, level, case or member." placeholder:"RECORD"`
	Path        string   `help:"json: where the items are, such as /data/members/# or /{guild}/{user}." placeholder:"PATH"`
	Map         []string `sep:"none" help:"csv, json: the column or the path of a member. May be repeated." placeholder:"MEMBER=COLUMN"`
	NoHeader    bool     `help:"csv: the first row is no heading; columns are named by number, from 1."`
	Separator   mark     `help:"csv: , or ; or tab; by default what the first line has most of." placeholder:"CHAR"`
	Decimal     mark     `help:"csv: the sign before decimals, . or a comma." placeholder:"CHAR"`
	Timezone    string   `help:"csv, json: where times without an offset were written; by default UTC." placeholder:"ZONE"`
	Dates       string   `help:"csv, json: the order of days such as 03/01/2024: dmy or mdy." placeholder:"ORDER"`
	Files       []string `arg:"" optional:"" name:"file" help:"The files to read; - is standard input."`
}

func (c *convertCommand) options() (convert.Options, error) {
	o := convert.Options{
		From: c.From, Guild: c.Guild, SourceGuild: c.SourceGuild, Strict: c.Strict, At: time.Now(), XP: c.XP, Curve: c.Curve, Balance: c.Balance,
		Moderator: c.Moderator, Numbers: c.Numbers, InForce: c.InForce, CaseTypes: c.CaseType, Settings: c.Settings, Running: c.Running,
		Record: c.Record, Path: c.Path, Map: c.Map, NoHeader: c.NoHeader, Separator: string(c.Separator), Decimal: string(c.Decimal), Timezone: c.Timezone, Dates: c.Dates,
	}
	if c.At != "" {
		at, err := wire.ParseTime(c.At)
		if err != nil {
			return o, usageError{fault.Wrap(err, "--at")}
		}
		o.At = at
	}
	return o, nil
}

// Help says where the formats are described.
func (c *convertCommand) Help() string {
	return "It prints what becomes of which data, and what was left out; docs/bot/convert.md has the tables of each format. " +
		"Load the result with import."
}

// Run reads another bot's data and writes a guild file. It opens no database and no network
// connection.
func (c *convertCommand) Run(ctx context.Context, io streams) error {
	if c.From == "help" {
		return convert.Help(io.out)
	}
	o, err := c.options()
	if err != nil {
		return err
	}
	if err = o.Check(); err == nil {
		err = c.apart()
	}
	if err == nil {
		var inputs []*convert.Input
		var done func()
		inputs, done, err = convert.Inputs(c.Files, io.in)
		defer done()
		if err == nil {
			err = c.write(ctx, io, o, inputs)
		}
	}
	if wrong, ok := errors.AsType[*convert.UsageError](err); ok {
		return usageError{wrong}
	}
	return err
}

// apart refuses a path that is used twice, where one output would overwrite another or an input.
func (c *convertCommand) apart() error {
	var outs [][2]string
	for _, out := range [][2]string{{"--out", c.Out}, {"--report", c.Report}, {"--left-out", c.LeftOut}} {
		if out[1] == "" || out[1] == "-" {
			continue
		}
		for _, in := range append(c.Files, c.InForce) {
			if sameFile(out[1], in) {
				return usageError{fmt.Errorf("%s: %s is a file that is read", out[0], out[1])}
			}
		}
		for _, other := range outs {
			if sameFile(out[1], other[1]) {
				return usageError{fmt.Errorf("%s: %s is named for %s too", out[0], out[1], other[0])}
			}
		}
		outs = append(outs, out)
	}
	return nil
}

// sameFile reports whether two paths name the same file, or will once it is created.
func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	if err == nil && err2 == nil {
		return os.SameFile(x, y) && x.Mode().IsRegular()
	}
	folder := func(path string) string {
		dir, _ := filepath.EvalSymlinks(filepath.Dir(path))
		return filepath.Join(dir, filepath.Base(path))
	}
	return err != nil && err2 != nil && folder(a) == folder(b)
}

// write writes up to three files: all of them or none. Exception: with --strict it keeps the files
// that explain why there is no guild file.
func (c *convertCommand) write(ctx context.Context, io streams, o convert.Options, inputs []*convert.Input) error {
	signal.Ignore(syscall.SIGPIPE) // so that a reader that goes away causes a write error, after which the files are removed
	out, err := newDraft(c.Out, io.out)
	if err != nil {
		return err
	}
	defer out.drop()
	lost, err := newDraft(c.LeftOut, nil)
	if err != nil {
		return err
	}
	defer lost.drop()
	list, err := newDraft(c.Report, nil)
	if err != nil {
		return err
	}
	defer list.drop()
	err = convert.Run(ctx, o, inputs, out, lost.writer(), func(r *convert.Report) error {
		err := r.Print(io.err)
		if err == nil && c.Report != "" {
			err = r.JSON(list)
		}
		return errors.Join(err, lost.close(), list.close())
	})
	if err != nil && !errors.Is(err, convert.ErrStrict) {
		return err
	}
	if err := errors.Join(err, lost.keep(), list.keep()); err != nil {
		return err
	}
	return out.keep()
}

// draft is a temporary file beside its target that replaces the target in the end. Only the owner
// can read it. A stream or a device is written directly.
type draft struct {
	io.Writer
	path   string
	file   *os.File // nil for a stream, which the caller owns
	closed bool
}

// newDraft creates a draft; "-" is the stream, and an empty path writes nothing.
func newDraft(path string, stream io.Writer) (*draft, error) {
	if path == "" {
		return &draft{}, nil
	}
	if path == "-" && stream == nil {
		return nil, usageError{errors.New("- is the guild file's: name a file for --report and --left-out")}
	}
	if path == "-" {
		if f, ok := stream.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			stream = output.NewTerminal(f)
		}
		return &draft{Writer: stream}, nil
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		return &draft{Writer: f, file: f}, nil
	}
	path, err := leadsTo(path)
	if err != nil {
		return nil, err
	}
	dir, name := filepath.Split(path)
	f, err := os.CreateTemp(cmp.Or(dir, "."), ".guildhall-"+strings.TrimPrefix(name, ".")+"-*")
	if err != nil {
		return nil, err
	}
	return &draft{Writer: f, path: path, file: f}, nil
}

// leadsTo resolves symbolic links, so that the target of a link is replaced and not the link.
func leadsTo(path string) (string, error) {
	for range 40 { // Linux follows at most this many
		next, err := os.Readlink(path)
		if err != nil {
			return path, nil //nolint:nilerr // no link, or nothing yet
		}
		if !filepath.IsAbs(next) {
			dir, _ := filepath.Split(path) // unchanged, since a link may precede ".."
			next = dir + next
		}
		path = next
	}
	return "", fmt.Errorf("%s: too many links", path)
}

// writer returns nil if nothing is to be written.
func (d *draft) writer() io.Writer {
	if d.Writer == nil {
		return nil
	}
	return d
}

// close closes the file.
func (d *draft) close() error {
	if d.file == nil || d.closed {
		return nil
	}
	d.closed = true
	return d.file.Close()
}

// keep renames the draft to its target.
func (d *draft) keep() error {
	if err := d.close(); err != nil || d.path == "" {
		return err
	}
	return os.Rename(d.file.Name(), d.path)
}

// drop deletes a draft that was not kept.
func (d *draft) drop() {
	_ = d.close()
	if d.path != "" {
		os.Remove(d.file.Name())
	}
}
