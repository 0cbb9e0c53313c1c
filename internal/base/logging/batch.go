package logging

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	// batchInterval is how long a record waits at most.
	batchInterval = 10 * time.Millisecond
	// batchSize is how many wait at most.
	batchSize = 4096
)

// Batch writes the records of a log a few at a time. A hundred access lines
// made in one go cost little more than half of what they cost one by one in the
// midst of their requests, each time with cold caches.
type Batch struct {
	w io.Writer // of whoever holds writing

	mu      sync.Mutex // guards what follows, up to writing
	waiting []waiting
	armed   bool

	writing sync.Mutex // taken before mu; guards what follows
	spare   []waiting
	lines   bytes.Buffer
}

type waiting struct {
	handler slog.Handler
	record  slog.Record
}

// NewBatched makes a log from a setting such as "info,json". Its flush writes the lines
// that wait in the batch at the end.
func NewBatched(w io.Writer, setting string) (*slog.Logger, *Batch, error) {
	b := &Batch{w: w}
	log, err := New(&b.lines, setting)
	if err != nil {
		return nil, nil, err
	}
	return slog.New(batched{log.Handler(), b}), b, nil
}

// Flush writes what is waiting, in the order in which it came.
func (b *Batch) Flush() {
	b.writing.Lock()
	defer b.writing.Unlock()
	b.mu.Lock()
	all := b.waiting
	b.waiting, b.armed = b.spare, false
	b.mu.Unlock()
	for _, r := range all {
		_ = r.handler.Handle(context.Background(), r.record) // into memory
	}
	clear(all)
	b.spare = all[:0]
	if b.lines.Len() > 0 {
		_, _ = b.w.Write(b.lines.Bytes()) // a log that cannot be written has nowhere to say so
	}
	b.lines.Reset()
}

// flushApart is Flush on a goroutine of its own. Making lines takes a deep stack, which a
// goroutine keeps: of thousands of connections whose requests are refused each would
// come to hold one.
func (b *Batch) flushApart() {
	written := make(chan struct{})
	go func() {
		defer close(written)
		b.Flush()
	}()
	<-written
}

// batched is the handler of a log whose records may wait: those that tell of
// nothing bad and hold nothing that could change in the meantime.
type batched struct {
	slog.Handler // writes a record's line to batch.lines
	batch        *Batch
}

// Handle keeps r for later, or writes it before it returns.
func (h batched) Handle(_ context.Context, r slog.Record) error {
	b := h.batch
	b.mu.Lock()
	b.waiting = append(b.waiting, waiting{h.Handler, r})
	full, first := len(b.waiting) >= batchSize, !b.armed
	b.armed = true
	b.mu.Unlock()
	switch {
	case full, // the log's reader is too slow, and whoever logs waits for it
		r.Level >= slog.LevelWarn, !plain(r):
		b.flushApart()
	case first:
		time.AfterFunc(batchInterval, b.Flush)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (h batched) WithAttrs(attrs []slog.Attr) slog.Handler {
	return batched{h.Handler.WithAttrs(attrs), h.batch}
}

// WithGroup implements slog.Handler.
func (h batched) WithGroup(name string) slog.Handler {
	return batched{h.Handler.WithGroup(name), h.batch}
}

// plain reports whether the record holds values and no references.
func plain(r slog.Record) bool {
	yes := true
	r.Attrs(func(a slog.Attr) bool {
		k := a.Value.Kind()
		yes = k != slog.KindAny && k != slog.KindGroup && k != slog.KindLogValuer
		return yes
	})
	return yes
}
