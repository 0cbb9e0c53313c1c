package logging

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// interval is how long a line waits at most, so that more lines are written together.
	interval = 10 * time.Millisecond
	// maxQueued is the most bytes of lines that wait to be written.
	maxQueued = 4 << 20
	// keptBuffer is the capacity up to which a buffer is reused.
	keptBuffer = 256 << 10
)

// Writer queues log lines and writes them to an underlying writer from a goroutine of its own, so
// logging never waits for the reader of the log. Lines that arrive while the queue is full are
// dropped, as are lines that the underlying writer fails to write. Dropped lines are counted, and
// once writing works again a log line says how many were lost.
type Writer struct {
	to  io.Writer
	log *slog.Logger // logs the number of dropped lines, through this Writer

	mu      sync.Mutex
	queue   []byte
	spare   []byte
	idle    chan struct{} // closed when the queue has been written; nil while the queue is empty
	dropped int           // lines dropped since the log last mentioned dropped lines
	total   int           // lines dropped since the start
}

// Open returns a log as a setting such as "info,json" says, and the Writer through which the log
// writes to w.
func Open(w io.Writer, setting string) (*slog.Logger, *Writer, error) {
	lines := &Writer{to: w}
	log, err := New(lines, setting)
	lines.log = log
	return log, lines, err
}

// Write queues a line, or drops it when the queue is full. It never fails.
func (w *Writer) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue)+len(line) > maxQueued {
		w.drop(1)
		return len(line), nil
	}
	w.queue = append(w.queue, line...)
	if w.idle == nil {
		w.idle = make(chan struct{})
		time.AfterFunc(interval, w.writeQueue)
	}
	return len(line), nil
}

// drop counts n dropped lines. The caller holds mu.
func (w *Writer) drop(n int) {
	w.dropped += n
	w.total += n
}

// writeQueue writes queued lines until the queue is empty.
func (w *Writer) writeQueue() {
	for lines := w.take(); lines != nil; lines = w.take() {
		n, err := w.to.Write(lines)
		w.written(lines, n, err)
	}
}

// take empties the queue and returns its lines, or nil if it was empty.
func (w *Writer) take() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		close(w.idle)
		w.idle = nil
		return nil
	}
	lines := w.queue
	w.queue = w.spare
	return lines
}

// written counts the lines after the first n bytes as dropped if err is not nil. After a success it
// logs how many lines were dropped before.
func (w *Writer) written(lines []byte, n int, err error) {
	w.mu.Lock()
	if w.spare = nil; cap(lines) <= keptBuffer {
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

// Flush waits until all queued lines are written, at most for limit.
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
