package output

import (
	"bytes"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Terminal writes lines to a terminal with unprintable characters escaped, since a terminal would
// obey them.
type Terminal struct {
	terminal io.Writer
	begun    []byte // the start of a line whose end has not been written yet
}

// NewTerminal returns a Terminal that writes to w.
func NewTerminal(w io.Writer) *Terminal { return &Terminal{terminal: w} }

// Write shows all complete lines and keeps the rest for the next Write. A guild file ends with a
// line break.
func (s *Terminal) Write(text []byte) (int, error) {
	s.begun = append(s.begun, text...)
	end := bytes.LastIndexByte(s.begun, '\n') + 1
	if err := Escaped(s.terminal, s.begun[:end]); err != nil {
		return 0, err
	}
	s.begun = append(s.begun[:0], s.begun[end:]...)
	return len(text), nil
}

// Progress returns functions that draw a progress bar if w is a terminal, and do nothing otherwise.
func Progress(w io.Writer, size int64) (progress func(bytes, records int64), done func()) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil, func() {}
	}
	b := progressbar.NewOptions64(size,
		progressbar.OptionSetWriter(w), progressbar.OptionShowBytes(true),
		progressbar.OptionSetDescription("Importing"), progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	progress = func(bytes, records int64) {
		b.Describe("Importing, " + Count(records, "record"))
		_ = b.Set64(bytes) // an error of the progress bar does not stop the command
	}
	return progress, func() { _ = b.Finish() }
}
