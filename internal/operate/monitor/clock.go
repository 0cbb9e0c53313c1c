// Package monitor exports how the database looks from a node: its clock, its standbys and its
// connections.
package monitor

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"guildhall/internal/base/db"
)

const (
	// clockInterval is how often a node compares its clock with the database's.
	clockInterval = time.Minute
	// clockOff is the difference that raises an alert. Receivers of webhooks commonly refuse
	// signatures that are more than five minutes off.
	clockOff = 30 * time.Second
)

// Clock reports when this machine's clock and the database's differ. Expiry is decided by the
// database's clock, but signatures carry this machine's time, which receivers compare with their
// own.
type Clock struct {
	db     *db.DB
	log    *slog.Logger
	now    func() time.Time
	offset prometheus.Gauge
}

// NewClock returns a Clock. Only Watch compares.
func NewClock(d *db.DB, log *slog.Logger, metrics prometheus.Registerer) *Clock {
	return &Clock{db: d, log: log, now: time.Now, offset: promauto.With(metrics).NewGauge(prometheus.GaugeOpts{
		Name: "guildhall_clock_offset_seconds",
		Help: "How far this machine's clock was ahead of the database's when last compared, once a minute.",
	})}
}

// Watch compares the clocks until ctx ends.
func (c *Clock) Watch(ctx context.Context) error {
	watch(ctx, clockInterval, c.compare, func(err error) {
		c.log.WarnContext(ctx, "the clocks could not be compared", "error", err)
	})
	return nil
}

// watch calls look at once and then at each interval, until ctx ends.
func watch(ctx context.Context, interval time.Duration, look func(context.Context) error, failed func(error)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := look(ctx); err != nil && ctx.Err() == nil {
			failed(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (c *Clock) compare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	off, err := db.ClockOffset(ctx, c.db.Reader(), c.now)
	if err != nil {
		return err
	}
	c.offset.Set(off.Seconds())
	if off.Abs() > clockOff {
		c.log.ErrorContext(ctx, "this machine's clock and the database's disagree: receivers may refuse what is signed here",
			"ahead_seconds", off.Round(time.Second).Seconds())
	}
	return nil
}
