// Package rig is what benches and drills stand on: a Postgres of their own, the servers
// that run on it, those who call them and those whom they call.
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

// Run is one run of a bench or a drill. It is the context of all that it does, and
// fails as a test does: Must ends it, Hold notes a promise that was broken.
type Run struct {
	context.Context
	*report
	cleanups []func() error
}

// report is what all parts of a run write to, from several goroutines.
type report struct {
	out io.Writer

	mu     sync.Mutex
	broken []string
	errs   []error
}

// Main is the main function of a program of that name.
func Main(name string, run func(ctx context.Context, args []string, out io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Do does some work and tidies up after it. It fails with what has ended the work, or
// else with what did not hold.
func Do(ctx context.Context, out io.Writer, work func(*Run)) error {
	r := &Run{Context: ctx, report: &report{out: out}}
	ended := make(chan struct{})
	go func() { // which Must may end
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

// Part does a part of the work and tidies up after it.
func (r *Run) Part(work func(*Run)) {
	part := &Run{Context: r.Context, report: r.report}
	defer part.tidy()
	work(part)
}

// Cleanup has something done at the end of the run, or of its part; the last first.
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

// Start has n goroutines work until their context ends. The function that it returns ends
// it and waits for them, as the end of the run does.
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

// Must ends the run at an error.
func (r *Run) Must(err error) {
	if err != nil {
		r.note(err)
		runtime.Goexit()
	}
}

// Need ends the run unless something is so.
func (r *Run) Need(so bool, format string, args ...any) {
	if !so {
		r.Must(fmt.Errorf(format, args...))
	}
}

// Say prints a figure that nothing is required of.
func (r *report) Say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, format+"\n", args...)
}

// Hold prints whether a promise held, with the figures that show it.
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

// Await waits until something is so, more and more seldom, and reports whether it came to be.
func (r *Run) Await(limit time.Duration, so func() bool) bool {
	for begun := time.Now(); !so(); {
		if waited := time.Since(begun); waited > limit || !Pause(r, min(10*time.Millisecond+waited/20, 200*time.Millisecond)) {
			return so()
		}
	}
	return true
}

// Pause waits, and reports whether ctx still goes on after it.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
