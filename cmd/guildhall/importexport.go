package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"guildhall/internal/base/db"
	"guildhall/internal/base/output"
	"guildhall/internal/service/guildfile"
)

type importCommand struct {
	connection
	File string `arg:"" help:"The guild file; - reads standard input."`
}

// Help says what an error leaves.
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
		if info.Mode().IsRegular() {
			size = info.Size()
		}
		in, name = f, c.File
	}
	d, _, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	progress, done := output.Progress(io.err, size)
	sum, err := guildfile.Import(ctx, d, in, progress)
	done()
	if err != nil {
		if _, ok := errors.AsType[*guildfile.LineError](err); ok {
			return fmt.Errorf("%s: %w (nothing was kept)", name, err)
		}
		return fmt.Errorf("import %s: %w (nothing was kept)", name, err)
	}
	return output.Say(io.out, "Imported %d records.", sum.Records)
}

type exportCommand struct {
	connection
	Guild string `required:"" help:"The guild's id." placeholder:"ID"`
	File  string `arg:"" optional:"" default:"-" help:"Where to write; - is standard output."`
}

// Run writes to a file beside the wanted one and renames it, so that a failed
// export leaves no half of a file. It holds what staff say among themselves, so
// the file is its owner's alone.
func (c *exportCommand) Run(ctx context.Context, io streams) error {
	d, _, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := guildfile.NoteExport(ctx, d, c.Guild); err != nil && !db.TakesNoWrites(err) { // of a standby a copy can be made all the same
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
