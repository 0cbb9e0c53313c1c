package output

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Terminal writes lines to a terminal, which would obey what does not print.
type Terminal struct {
	terminal io.Writer
	begun    []byte // of the line that has not ended
}

// NewTerminal returns a writer to the terminal w.
func NewTerminal(w io.Writer) *Terminal { return &Terminal{terminal: w} }

// Write shows the lines that are whole. A guild file ends with one.
func (s *Terminal) Write(text []byte) (int, error) {
	s.begun = append(s.begun, text...)
	end := bytes.LastIndexByte(s.begun, '\n') + 1
	if err := Escaped(s.terminal, s.begun[:end]); err != nil {
		return 0, err
	}
	s.begun = append(s.begun[:0], s.begun[end:]...)
	return len(text), nil
}

// Progress draws progress on a terminal; anywhere else it is silent.
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
		b.Describe(fmt.Sprintf("Importing, %d records", records))
		_ = b.Set64(bytes) // a bar that cannot be drawn is no reason to stop
	}
	return progress, func() { _ = b.Finish() }
}
