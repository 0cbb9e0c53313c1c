package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"guildhall/internal/guildfile"
)

type importCommand struct {
	connection
	File string `arg:"" help:"The guild file; - reads standard input."`
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
	progress, done := bar(io.err, size)
	sum, err := guildfile.Import(ctx, d, in, progress)
	done()
	if err != nil {
		var line *guildfile.LineError
		if errors.As(err, &line) {
			return fmt.Errorf("%s: %w (nothing was kept)", name, err)
		}
		return fmt.Errorf("import %s: %w (nothing was kept)", name, err)
	}
	return say(io.out, "Imported %d records.", sum.Records)
}

// bar draws progress on a terminal; anywhere else it is silent.
func bar(w io.Writer, size int64) (progress func(bytes, records int64), done func()) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil, func() {}
	}
	b := progressbar.NewOptions64(size,
		progressbar.OptionSetWriter(w), progressbar.OptionShowBytes(true),
		progressbar.OptionSetDescription("Importing"), progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	progress = func(bytes, records int64) {
		b.Describe(fmt.Sprintf("Importing, %d records", records))
		_ = b.Set64(bytes) // a bar that cannot be drawn is no reason to stop
	}
	return progress, func() { _ = b.Finish() }
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
	if c.File == "-" {
		if f, ok := io.out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			return guildfile.Export(ctx, d, c.Guild, &terminalWriter{terminal: f})
		}
		return guildfile.Export(ctx, d, c.Guild, io.out)
	}
	draft, err := os.CreateTemp(filepath.Dir(c.File), ".guildhall-export-*")
	if err != nil {
		return err
	}
	defer os.Remove(draft.Name()) // once renamed, it is not there
	err = errors.Join(guildfile.Export(ctx, d, c.Guild, draft), draft.Close())
	if err != nil {
		return err
	}
	return os.Rename(draft.Name(), c.File)
}

// terminalWriter is a terminal, which would obey what does not print.
type terminalWriter struct {
	terminal io.Writer
	begun    []byte // of the line that has not ended
}

// Write shows the lines that are whole. A guild file ends with one.
func (s *terminalWriter) Write(text []byte) (int, error) {
	s.begun = append(s.begun, text...)
	end := bytes.LastIndexByte(s.begun, '\n') + 1
	if err := printTo(s.terminal, s.begun[:end]); err != nil {
		return 0, err
	}
	s.begun = append(s.begun[:0], s.begun[end:]...)
	return len(text), nil
}
