package logging

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// interval is how long a record waits at most, so that more records are formatted and more lines
	// written together.
	interval = 10 * time.Millisecond
	// maxRecords is the most records that wait to be formatted.
	maxRecords = 512
	// maxQueued is the most bytes of lines that wait to be written.
	maxQueued = 4 << 20
	// keptBuffer is the capacity up to which a buffer is reused.
	keptBuffer = 256 << 10
)

// Writer formats the records of a log and writes their lines to an underlying writer from a
// goroutine of its own, so logging never waits for the reader of the log. Lines that arrive while
// the queue is full are dropped, as are lines that the underlying writer fails to write. Dropped
// lines are counted, and once writing works again a log line says how many were lost.
type Writer struct {
	to  io.Writer
	log *slog.Logger // logs the number of dropped lines, through this Writer

	formatting sync.Mutex // taken before mu, so that lines stay in the order of their records
	formatted  []record   // guarded by formatting; empty, kept for its capacity

	mu      sync.Mutex
	records []record
	queue   []byte // lines of records from before those in records
	spare   []byte
	idle    chan struct{} // closed when everything has been written; nil while nothing waits
	dropped int           // lines dropped since the log last mentioned dropped lines
	total   int           // lines dropped since the start
}

// record is a record of the log and the handler that formats it.
type record struct {
	handler slog.Handler
	slog.Record
}

// Open returns a log as a setting such as "info,json" says, and the Writer through which the log
// writes to w.
func Open(w io.Writer, setting string) (*slog.Logger, *Writer, error) {
	lines := &Writer{to: w}
	log, err := New(queue{lines}, setting)
	if err != nil {
		return nil, nil, err
	}
	lines.log = slog.New(deferred{log.Handler(), lines})
	return lines.log, lines, nil
}

// deferred is a handler whose records are formatted later, many at a time. A hundred lines
// formatted together cost little more than half of what they cost in the midst of their requests,
// each time with cold caches: 4 % of the CPU of a read.
type deferred struct {
	slog.Handler // formats a record and adds the line to the queue
	lines        *Writer
}

// Handle keeps a record for later. A record with a value that may change meanwhile is formatted at
// once, after the records before it.
func (h deferred) Handle(_ context.Context, r slog.Record) error {
	if full := h.lines.add(record{h.Handler, r}); full || !constant(r) {
		h.lines.format()
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (h deferred) WithAttrs(attrs []slog.Attr) slog.Handler {
	return deferred{h.Handler.WithAttrs(attrs), h.lines}
}

// WithGroup implements slog.Handler.
func (h deferred) WithGroup(name string) slog.Handler {
	return deferred{h.Handler.WithGroup(name), h.lines}
}

// constant reports whether no value of the record can change.
func constant(r slog.Record) bool {
	is := true
	r.Attrs(func(a slog.Attr) bool {
		kind := a.Value.Kind()
		is = kind != slog.KindAny && kind != slog.KindGroup && kind != slog.KindLogValuer
		return is
	})
	return is
}

// add keeps a record until it is formatted, and reports whether as many wait as may.
func (w *Writer) add(r record) (full bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records = append(w.records, r)
	if w.idle == nil {
		w.idle = make(chan struct{})
		time.AfterFunc(interval, w.write)
	}
	return len(w.records) >= maxRecords
}

// format formats the records that wait and queues their lines.
func (w *Writer) format() {
	w.formatting.Lock()
	defer w.formatting.Unlock()
	w.mu.Lock()
	records := w.records
	w.records = w.formatted
	w.mu.Unlock()
	for _, r := range records {
		_ = r.handler.Handle(context.Background(), r.Record) // the queue never fails
	}
	clear(records)
	w.formatted = records[:0]
}

// queue is the io.Writer of the handlers that format records.
type queue struct{ *Writer }

// Write queues a line, or drops it when the queue is full. It never fails.
func (q queue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue)+len(line) > maxQueued {
		q.drop(1)
	} else {
		q.queue = append(q.queue, line...)
	}
	return len(line), nil
}

// drop counts n dropped lines. The caller holds mu.
func (w *Writer) drop(n int) {
	w.dropped += n
	w.total += n
}

// write writes what is queued. Records are formatted once no older lines wait: a full queue would
// drop them.
func (w *Writer) write() {
	lines := w.take()
	if len(lines) == 0 {
		w.format()
		lines = w.take()
	}
	n, err := w.to.Write(lines)
	w.written(lines, n, err)
	w.rest()
}

// take empties the queue and returns its lines.
func (w *Writer) take() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return nil
	}
	lines := w.queue
	w.queue, w.spare = w.spare[:0], nil
	return lines
}

// written counts the lines after the first n bytes as dropped if err is not nil. After a success it
// logs how many lines were dropped before.
func (w *Writer) written(lines []byte, n int, err error) {
	w.mu.Lock()
	if cap(lines) <= keptBuffer {
		w.spare = lines[:0]
	}
	if err != nil {
		w.drop(bytes.Count(lines[n:], []byte("\n")))
		w.mu.Unlock()
		return
	}
	dropped := w.dropped
	w.dropped = 0
	w.mu.Unlock()
	if dropped > 0 {
		w.log.Warn("lines of the log were dropped, since nobody read them in time", "dropped", dropped)
	}
}

// rest writes again after an interval if something waits, and otherwise ends all calls of Flush. It
// waits for records that are just being formatted.
func (w *Writer) rest() {
	w.formatting.Lock()
	defer w.formatting.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.records) > 0 || len(w.queue) > 0 {
		time.AfterFunc(interval, w.write)
		return
	}
	close(w.idle)
	w.idle = nil
}

// Flush waits until everything logged so far is written, at most for limit.
func (w *Writer) Flush(limit time.Duration) {
	w.mu.Lock()
	idle := w.idle
	w.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-time.After(limit):
	}
}

// Metric returns the counter of dropped lines.
func (w *Writer) Metric() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "guildhall_log_lines_dropped_total",
		Help: "Lines of the log that were dropped because nobody read them in time.",
	}, func() float64 {
		w.mu.Lock()
		defer w.mu.Unlock()
		return float64(w.total)
	})
}
