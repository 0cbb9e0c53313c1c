// Command guildhall is the whole program: the API server and its workers, commands to manage
// tokens, webhooks and data, and `dev`, which starts everything on a developer's machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"guildhall/internal/access/audit"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/logging"
	"guildhall/internal/base/output"
	"guildhall/internal/base/wire"
)

//go:generate go test -count=1 -run ^TestReferencePagesAreFresh$ . -write

// commands is the command line, in the order and the groups in which help prints it.
type commands struct {
	Dev       devCommand        `cmd:"" group:"Run" help:"Start everything on this machine: a Postgres, demo data, a certificate, the API and its workers."`
	Serve     serveCommand      `cmd:"" group:"Run" help:"Run the API and the workers against your Postgres."`
	Migrate   migrateCommand    `cmd:"" group:"Run" help:"Bring the database up to this program's schema."`
	Doctor    doctorCommand     `cmd:"" group:"Run" help:"Examine an installation, a line for each check: exit 0, or 1 when one fails."`
	Ready     readyCommand      `cmd:"" group:"Run" help:"Ask the server on this machine whether it is ready: exit 0, or 1 and why not."`
	Token     tokenCommands     `cmd:"" group:"Access" help:"Make, list and revoke API tokens."`
	BotKey    botKeyCommands    `cmd:"" group:"Access" help:"Make, list and revoke keys of the operator's own bot."`
	Stream    streamCommands    `cmd:"" group:"Access" help:"Begin, change, list and end the streams that the bot fetches events from."`
	Dashboard dashboardCommands `cmd:"" group:"Access" help:"Open the dashboard for an operator."`
	Webhook   webhookGroup      `cmd:"" group:"Webhooks" help:"Look after webhook endpoints and their deliveries."`
	Listen    listenCommand     `cmd:"" group:"Webhooks" help:"Fetch a guild's events on this machine, print them, and post them to a local receiver."`
	Guild     guildCommands     `cmd:"" group:"Data" help:"List guilds, remove one that the bot has left, and take one back."`
	Forget    forgetCommand     `cmd:"" group:"Data" help:"Have a guild, or all of them, forget a member; a running worker does it."`
	Import    importCommand     `cmd:"" group:"Data" help:"Load a guild file, all of it or nothing."`
	Export    exportCommand     `cmd:"" group:"Data" help:"Write a guild as a guild file."`
	Convert   convertCommand    `cmd:"" group:"Data" help:"Make a guild file of what another bot left behind; no database, no network."`
	Reseal    resealCommand     `cmd:"" group:"Care" help:"Rewrite with the first GUILDHALL_SECRET_KEY what an older one sealed."`
	Restore   restoreCommands   `cmd:"" group:"Care" help:"Look at what a restored backup has undone."`
	OpenAPI   openapiCommand    `cmd:"" group:"About" name:"openapi" help:"Print the API's contract."`
	Version   versionCommand    `cmd:"" group:"About" help:"Print the version of the program and of its contract."`
}

const description = "Guildhall keeps what a Discord bot knows about its servers, for programs that read and change it over HTTPS.\n\n" +
	"Every setting is a flag and an environment variable; the flag wins."

// whereToBegin is the end of the program's help.
const whereToBegin = `
Most stories begin with one of these:
  guildhall dev                                  # try it: prints a token and calls that work
  guildhall migrate && guildhall serve           # run it, with GUILDHALL_DATABASE_URL set
  guildhall token create --guild ID --name NAME --all-scopes

The documents are in the folder docs of the source; a running server shows the contract at /docs.
`

// help prints a command's help, and for the program itself also where to begin.
func help(options kong.HelpOptions, ctx *kong.Context) error {
	err := kong.DefaultHelpPrinter(options, ctx)
	if err == nil && ctx.Selected() == nil {
		_, err = fmt.Fprint(ctx.Stdout, whereToBegin)
	}
	if err != nil {
		return unprinted{err} // not wrong usage
	}
	return nil
}

// streams are the streams that a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// stoppable is a reader whose Read returns when ctx ends.
type stoppable struct {
	io.Reader
	ctx    context.Context
	buffer []byte // an abandoned Read may still write into it
}

func (s *stoppable) Read(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	if s.buffer == nil {
		s.buffer = make([]byte, 64<<10)
	}
	type read struct {
		n   int
		err error
	}
	done := make(chan read, 1)
	go func() {
		n, err := s.Reader.Read(s.buffer[:min(len(p), len(s.buffer))])
		done <- read{n, err}
	}()
	select {
	case r := <-done:
		return copy(p, s.buffer[:r.n]), r.err
	case <-s.ctx.Done():
		return 0, context.Cause(s.ctx)
	}
}

// print prints v as JSON, or a sentence.
func (io streams) print(asJSON bool, v any, format string, args ...any) error {
	if asJSON {
		return output.JSON(io.out, v)
	}
	return output.Say(io.out, format, args...)
}

// result prints the result of a command that has changed something.
func (io streams) result(asJSON bool, v any, format string, args ...any) error {
	return unreported(io.print(asJSON, v, format, args...))
}

// unreported returns an error in writing the result of a change, which says that the change is made.
func unreported(err error) error {
	return fault.Wrap(err, "it is done, but the result could not be written")
}

// lastWords writes a line to standard error. The program ends even if nobody reads it.
func (io streams) lastWords(line string) {
	written := make(chan struct{})
	go func() {
		fmt.Fprintln(io.err, line)
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(lastLines):
	}
}

// usageError is an error in how the command was called: exit code 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func main() {
	os.Exit(run(untilSignal(), os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}))
}

// untilSignal returns a context that ends with the first SIGINT, SIGTERM or SIGHUP, unless SIGHUP is
// ignored, as under nohup. A second after that, stop restores the default, so a further signal ends
// the program at once. The delay is for timeout(1), which sends its signal to the program and again
// to its process group.
func untilSignal() context.Context {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
	return ctx
}

// run runs one command line and returns the exit code: 0, 1 for a failure, 2 for wrong usage. A
// failure is one line on standard error.
func run(ctx context.Context, args []string, io streams) int {
	var cli commands
	exit := -1
	unknown, misspelt := checkEnvironment(os.Environ())
	parser, err := kong.New(&cli,
		kong.Resolvers(installed(installedSettings)),
		kong.Name("guildhall"),
		kong.Description(description),
		kong.Help(help),
		kong.Writers(io.out, io.err),
		kong.Exit(func(code int) { exit = code }),
		kong.BindTo(audit.With(ctx, atShell()), (*context.Context)(nil)),
		kong.Bind(streams{&stoppable{Reader: io.in, ctx: ctx}, io.out, io.err}, unknown),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		panic(err) // cannot happen: commands is well formed
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if exit >= 0 { // --help has printed
		return exit
	}
	if err == nil {
		err = saysSomething(parsed)
	}
	failed, isHelp := errors.AsType[unprinted](err)
	switch {
	case isHelp:
		err = failed
	case misspelt != nil: // reported first, since the command may fail because the setting is missing
		err = misspelt
	case err != nil:
		err = usageError{fmt.Errorf("%w (try --help)", err)}
	default:
		err = parsed.Run()
	}
	if err == nil {
		return 0
	}
	text, invalid := err.Error(), false
	if f, ok := fault.As(err); ok {
		// The fault's code and cause are for programs and logs.
		text = strings.Replace(text, f.Error(), strings.TrimPrefix(f.Message, "body /"), 1) // the place is an option of the command
		invalid = f.Kind == fault.Invalid
	}
	if db.ConnectionsTaken(err) {
		text = "the database admits no more connections now, of this role or at all: try again in a moment; `guildhall doctor` says how many it admits"
	}
	if cause := context.Cause(ctx); cause != nil && !strings.Contains(text, cause.Error()) {
		text = cause.Error() + ": " + text // other errors are consequences of this one
	}
	io.lastWords("guildhall: " + output.Visible(oneLine(logging.Redact(text))))
	if _, ok := errors.AsType[usageError](err); ok || invalid {
		return 2
	}
	return 1
}

// mark is the value of a flag for which a single comma is allowed.
type mark string

// saysSomething refuses a flag or an argument with an empty value: an empty variable in a script
// must not mean "no restriction".
func saysSomething(parsed *kong.Context) error {
	for _, p := range parsed.Path {
		var value reflect.Value
		switch {
		case p.Flag != nil && !p.Resolved:
			value = p.Flag.Target
		case p.Positional != nil:
			value = p.Positional.Target
		default:
			continue
		}
		empty := func(text string) bool { return len(wire.Items(text)) == 0 }
		silent := false
		switch v := value.Interface().(type) {
		case mark:
			silent = v == ""
		case string:
			silent = empty(v)
		case []string:
			silent = len(v) == 0 || slices.ContainsFunc(v, empty)
		}
		if silent {
			return fmt.Errorf("%s is given and says nothing: leave it out, or give it a value", flagName(p))
		}
	}
	return nil
}

// flagName returns a flag or an argument as it is written on the command line.
func flagName(p *kong.Path) string {
	if p.Flag != nil {
		return "--" + p.Flag.Name
	}
	return "<" + p.Positional.Name + ">"
}

// oneLine joins the lines of a text.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
