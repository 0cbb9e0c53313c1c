package lanes

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/errgroup"

	"guildhall/internal/base/fault"
	"guildhall/internal/base/logging"
)

// sweepTimeout is how long one run of a sweep may take.
const sweepTimeout = 30 * time.Second

// Sweep is work that runs at intervals. Every node runs it on its own clock, so a sweep must be
// safe to run twice and on several nodes at once.
type Sweep struct {
	Name     string
	Interval time.Duration
	Run      func(ctx context.Context) error
}

// Sweeper runs the sweeps of one node.
type Sweeper struct {
	log    *slog.Logger
	sweeps []Sweep
	runs   *prometheus.CounterVec
}

// NewSweeper returns a sweeper. A sweep without work or interval is an error.
func NewSweeper(log *slog.Logger, reg prometheus.Registerer, sweeps ...Sweep) (*Sweeper, error) {
	runs := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "guildhall_sweeps_total", Help: "Runs of the sweeps, by name and outcome: done or failed.",
	}, []string{"sweep", "outcome"})
	for _, s := range sweeps {
		if s.Run == nil || s.Interval <= 0 {
			return nil, fmt.Errorf("lanes: the work of the sweep %q and its interval must be given", s.Name)
		}
		for _, outcome := range []string{done, failed} {
			runs.WithLabelValues(s.Name, outcome)
		}
	}
	return &Sweeper{log: log, sweeps: sweeps, runs: runs}, nil
}

// Run runs all sweeps until ctx ends, and returns when the last running sweep has ended.
func (w *Sweeper) Run(ctx context.Context) error {
	var all errgroup.Group
	for _, s := range w.sweeps {
		all.Go(func() error {
			w.loop(ctx, s)
			return nil
		})
	}
	return all.Wait()
}

// loop runs one sweep at its interval until ctx ends. A failure is logged at most once per
// logging.Interval, and the next run retries.
func (w *Sweeper) loop(ctx context.Context, s Sweep) {
	tick := time.NewTicker(s.Interval)
	defer tick.Stop()
	var quietly logging.Sometimes
	for {
		switch err := s.once(ctx); {
		case err == nil:
			w.runs.WithLabelValues(s.Name, done).Inc()
		case ctx.Err() == nil:
			w.runs.WithLabelValues(s.Name, failed).Inc()
			if quietly.Due(s.Name, time.Now(), logging.Interval) { //nolint:forbidigo // how often the log hears, no instant
				w.log.WarnContext(ctx, "a sweep failed", "sweep", s.Name, "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// once runs a sweep. It returns a panic as an error, so the sweep runs again at the next interval.
func (s Sweep) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	return fault.Caught(func() error { return s.Run(ctx) })
}
