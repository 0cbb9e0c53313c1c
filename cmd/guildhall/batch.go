package main

import (
	"bytes"
	"io"
	"sync"
	"time"
)

const (
	batchTime = 50 * time.Millisecond
	batchSize = 32 << 10
)

// batcher writes the lines of a log a few at a time: with one write each, a
// busy server spends as much on its access log as on a token check. A line
// waits for batchTime at most, and an error's line not at all.
type batcher struct {
	w     io.Writer
	mu    sync.Mutex
	lines []byte
	armed bool
}

// Write takes a whole line.
func (b *batcher) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line...)
	switch {
	case len(b.lines) >= batchSize, bytes.Contains(line, []byte("ERROR")):
		b.write()
	case !b.armed:
		b.armed = true
		time.AfterFunc(batchTime, b.flush)
	}
	return len(line), nil
}

// flush writes what is waiting.
func (b *batcher) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed = false
	b.write()
}

func (b *batcher) write() {
	if len(b.lines) > 0 {
		_, _ = b.w.Write(b.lines) // a log that cannot be written has nowhere to say so
		b.lines = b.lines[:0]
	}
}
