package delivery

import (
	"log/slog"
	"testing"
)

// Who begins to wait brings no look about, but for what this node has recorded since the
// fetch that found nothing: thousands who wait, each for seconds, cost one look each
// pollInterval.
// RELIABILITY.md, Events.
func TestWhoBeginsToWaitIsLookedForOnlyAfterACommit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wake string
		rung bool
	}{
		"nothing has happened": {"", false},
		"in the same guild":    {"1", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := NewWaiters(nil, slog.New(slog.DiscardHandler), nil)
			one, all := w.Done("1"), w.Done("")
			if c.wake != "" {
				w.Wake(c.wake)
			}
			w.Begin("1", "endpoint", one)
			if got := len(w.bell.rung) == 1; got != c.rung {
				t.Errorf("who waits for an endpoint has a look made: %v", got)
			}
			w.bell.take()
			select {
			case <-w.bell.rung:
			default:
			}
			w.BeginPart("stream", Part{Shards: 1}, all)
			if got := len(w.bell.rung) == 1; got != c.rung {
				t.Errorf("who waits for a stream has a look made: %v", got)
			}
		})
	}
}
