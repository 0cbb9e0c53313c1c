package jobs

import (
	"log/slog"
	"strings"
	"testing"

	"guildhall/internal/base/testutil"
)

// While the database is away River has the same to say six times a second. The log hears of
// it once in ten seconds, and of each other thing too.
func TestRiverSaysTheSameNowAndThen(t *testing.T) {
	t.Parallel()
	var log testutil.Log
	river := slog.New(newWarnings(slog.NewTextHandler(&log, nil)))
	for range 5 {
		river.Info("producer: Producer stats")
		river.Error("producer: Error fetching jobs")
		river.With("queue", "chat").Error("producer: Error fetching jobs")
		river.WithGroup("g").Warn("Elector: Error attempting reelection", "x", 1)
	}
	for text, want := range map[string]int{"level=INFO": 0, "Error fetching jobs": 1, "Error attempting reelection": 1} {
		if n := strings.Count(log.String(), text); n != want {
			t.Errorf("%s is logged %d times, want %d:\n%s", text, n, want, log.String())
		}
	}
}
