package jobs

import (
	"context"
	"time"

	"guildhall/internal/base/fault"
	"guildhall/internal/base/logging"
)

// Sweep is work that is looked for instead of asked for. Every node sweeps on
// its own clock: River's periodic jobs and its promotion of delayed ones hang
// on an elected leader, and after a crash the next one takes its time.
type Sweep struct {
	Name     string
	Interval time.Duration
	Run      func(ctx context.Context) error
}

// loop sweeps until ctx ends. A failure is logged, now and then, and tried again next time.
func (r *Runner) loop(ctx context.Context, s Sweep) {
	tick := time.NewTicker(s.Interval)
	defer tick.Stop()
	var quietly logging.Sometimes
	for {
		switch err := s.once(ctx); {
		case err == nil:
			r.metrics.sweeps.WithLabelValues(s.Name, "done").Inc()
		case ctx.Err() == nil:
			r.metrics.sweeps.WithLabelValues(s.Name, "failed").Inc()
			if quietly.Due(s.Name, time.Now(), logging.Interval) {
				r.cfg.Log.WarnContext(ctx, "a sweep failed", "sweep", s.Name, "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// once sweeps; a panic costs this one sweep only.
func (s Sweep) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	return fault.Caught(func() error { return s.Run(ctx) })
}
