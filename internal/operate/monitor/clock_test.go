package monitor

import (
	"bytes"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
)

// A node whose clock is off reports it. RELIABILITY.md, Operation.
func TestClock(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	for shift, alarm := range map[time.Duration]bool{
		0: false, 20 * time.Second: false, -20 * time.Second: false,
		5 * time.Minute: true, -5 * time.Minute: true,
	} {
		var out bytes.Buffer
		metrics := prometheus.NewRegistry()
		c := NewClock(d, slog.New(slog.NewTextHandler(&out, nil)), metrics)
		c.now = func() time.Time { return time.Now().Add(shift) }
		if err := c.compare(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "level=ERROR"); got != alarm {
			t.Errorf("off by %v: %q", shift, out.String())
		}
		if got := testutil.Metric(t, metrics, "guildhall_clock_offset_seconds"); math.Abs(got-shift.Seconds()) > 9 {
			t.Errorf("off by %v: the metric says %v s", shift, got)
		}
	}
}
