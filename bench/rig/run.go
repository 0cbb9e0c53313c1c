// Package rig is the common base of benchmarks and drills: a private Postgres, the servers that use
// it, callers, and webhook receivers.
package rig

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Run is one run of a benchmark or a drill. It is the context of all its work and fails as a test
// does: Must ends it, Hold records a broken promise.
type Run struct {
	context.Context
	*report
	cleanups []func() error
}

// report collects the output of all parts of a run, from several goroutines.
type report struct {
	out io.Writer

	mu     sync.Mutex
	broken []string
	errs   []error
}

// Main is the main function of the program called name.
func Main(name string, run func(ctx context.Context, args []string, out io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Do calls work and then its cleanups. It returns the error that ended the work, or an error if a
// promise was broken.
func Do(ctx context.Context, out io.Writer, work func(*Run)) error {
	r := &Run{Context: ctx, report: &report{out: out}}
	ended := make(chan struct{})
	go func() { // Must may end this goroutine
		defer close(ended)
		defer r.tidy()
		work(r)
	}()
	<-ended
	if err := errors.Join(append(r.errs, ctx.Err())...); err != nil {
		return err
	}
	if len(r.broken) > 0 {
		return fmt.Errorf("%d promises did not hold:\n  %s", len(r.broken), strings.Join(r.broken, "\n  "))
	}
	return nil
}

// Part runs a part of the work and then its cleanups.
func (r *Run) Part(work func(*Run)) {
	part := &Run{Context: r.Context, report: r.report}
	defer part.tidy()
	work(part)
}

// Cleanup registers a function to call at the end of the run or of its part, the last one first.
func (r *Run) Cleanup(do func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, do)
}

func (r *Run) tidy() {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.note(r.cleanups[i]())
	}
}

func (r *report) note(err error) {
	if err != nil {
		r.mu.Lock()
		r.errs = append(r.errs, err)
		r.mu.Unlock()
	}
}

// Start runs work in n goroutines until their context ends. The returned function ends it and waits
// for them, as the end of the run does.
func (r *Run) Start(n int, work func(ctx context.Context, i int)) (stop func()) {
	ctx, cancel := context.WithCancel(r)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { work(ctx, i) })
	}
	stop = func() {
		cancel()
		all.Wait()
	}
	r.Cleanup(func() error { stop(); return nil })
	return stop
}

// Must ends the run if err is not nil.
func (r *Run) Must(err error) {
	if err != nil {
		r.note(err)
		runtime.Goexit()
	}
}

// Need ends the run if so is false.
func (r *Run) Need(so bool, format string, args ...any) {
	if !so {
		r.Must(fmt.Errorf(format, args...))
	}
}

// Say prints a figure that is not judged.
func (r *report) Say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, format+"\n", args...)
}

// Hold prints whether a promise held, with the figures that show it, and records a broken promise.
func (r *report) Hold(held bool, format string, args ...any) {
	word, line := "held  ", fmt.Sprintf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !held {
		word = "BROKEN"
		r.broken = append(r.broken, line)
	}
	fmt.Fprintf(r.out, "  %s  %s\n", word, line)
}

// Await polls so, less and less often, until it returns true or limit is over, and returns its last
// result.
func (r *Run) Await(limit time.Duration, so func() bool) bool {
	for begun := time.Now(); !so(); {
		if waited := time.Since(begun); waited > limit || !Pause(r, min(10*time.Millisecond+waited/20, 200*time.Millisecond)) {
			return so()
		}
	}
	return true
}

// Pause waits for d and reports whether ctx has not ended.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
