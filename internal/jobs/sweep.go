package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// sweep is work that is looked for instead of asked for. Every node sweeps on
// its own clock: River's periodic jobs and its promotion of delayed ones hang
// on an elected leader, and after a crash the next one takes its time.
type sweep struct {
	name  string
	every time.Duration
	run   func(ctx context.Context) error
}

// loop sweeps until ctx ends. A failure is logged and tried again next time.
func (s sweep) loop(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		if err := s.once(ctx); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "a sweep failed", "sweep", s.name, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// once sweeps; a panic costs this one sweep only.
func (s sweep) once(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return s.run(ctx)
}
