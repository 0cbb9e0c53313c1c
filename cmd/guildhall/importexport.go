package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"guildhall/internal/base/db"
	"guildhall/internal/base/output"
	"guildhall/internal/service/guildfile"
	"guildhall/internal/service/transfer"
)

type importCommand struct {
	connection
	Update   bool   `help:"Change what is there and make what is not; nothing is removed. Prints what became of each kind."`
	DryRun   bool   `help:"With --update: say what would become of it, from one look; nothing is kept."`
	Balances string `help:"With --update: of wallets and levels that are there, keep, set, take the higher, or add." enum:"keep,set,higher,add" default:"keep"`
	JSON     bool   `name:"json" help:"With --update: print JSON."`
	File     string `arg:"" help:"The guild file; - reads standard input."`
}

// Help says what an error leaves behind.
func (c *importCommand) Help() string {
	return "It runs in one transaction: an error names the line of the file, and nothing of it is kept. docs/bot/import.md describes the format."
}

func (c *importCommand) Run(ctx context.Context, io streams) error {
	in, size, name := io.in, int64(-1), "standard input"
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		in, name = f, c.File
		if info.Mode().IsRegular() {
			size = info.Size()
		} else { // a pipe may make it wait
			in = &stoppable{Reader: f, ctx: ctx}
		}
	}
	d, _, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	progress, done := output.Progress(io.err, size)
	if c.Update {
		outcomes, err := guildfile.Update{Balances: transfer.Balances(c.Balances), DryRun: c.DryRun}.Run(ctx, d, in, progress)
		done()
		if err != nil {
			return nothingKept(name, err)
		}
		return unreported(c.print(io, outcomes))
	}
	sum, err := guildfile.Import(ctx, d, in, progress)
	done()
	if err != nil {
		return nothingKept(name, err)
	}
	return io.result(false, nil, "Imported %s.", output.Count(sum.Records, "record"))
}

// Validate refuses flags that need --update.
func (c *importCommand) Validate() error {
	if !c.Update && (c.DryRun || c.JSON || c.Balances != "keep") {
		return errors.New("--dry-run, --balances and --json go with --update")
	}
	return nil
}

func nothingKept(name string, err error) error {
	if _, ok := errors.AsType[*guildfile.LineError](err); ok {
		return fmt.Errorf("%s: %w (nothing was kept)", name, err)
	}
	if db.Uncertain(err) {
		return fmt.Errorf("import %s: %w (the database was lost before it had said whether the file is in: look before you import it again)", name, err)
	}
	return fmt.Errorf("import %s: %w (nothing was kept)", name, err)
}

func (c *importCommand) print(io streams, outcomes []guildfile.Outcome) error {
	if c.JSON {
		return output.JSON(io.out, outcomes)
	}
	for _, o := range outcomes {
		if err := output.Say(io.out, "%s: %d created, %d updated, %d unchanged, %d kept", o.Record, o.Created, o.Updated, o.Unchanged, o.Kept); err != nil {
			return err
		}
	}
	if c.DryRun {
		return output.Say(io.out, "This was a dry run: nothing of it was kept.")
	}
	return nil
}

type exportCommand struct {
	connection
	Guild string `required:"" help:"The guild's id." placeholder:"ID"`
	File  string `arg:"" optional:"" default:"-" help:"Where to write; - is standard output."`
}

// Run writes to a temporary file beside the target and renames it, so that a failed export leaves
// no incomplete file. Only the owner can read the file, since it contains internal notes of the
// guild's staff.
func (c *exportCommand) Run(ctx context.Context, io streams) error {
	d, _, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := guildfile.NoteExport(ctx, d, c.Guild); err != nil && !db.TakesNoWrites(err) { // a standby can be exported, too
		return err
	}
	out, err := newDraft(c.File, io.out)
	if err != nil {
		return err
	}
	defer out.drop()
	if err := guildfile.Export(ctx, d, c.Guild, out); err != nil {
		return err
	}
	return out.keep()
}
