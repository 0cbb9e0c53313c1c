package delivery

import (
	"log/slog"
	"testing"
)

// Who begins to wait brings no look about, but for what this node has recorded since the
// fetch that found nothing: thousands who wait, each for seconds, cost one look each
// pollInterval. And that look is for nobody else.
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
			looksFor := func(who string, endpoints, streams int) {
				t.Helper()
				if !c.rung {
					endpoints, streams = 0, 0
				}
				rung := len(w.bell.rung) == 1
				if rung {
					<-w.bell.rung
				}
				guilds, all := w.bell.take()
				_, named := w.named(guilds, all)
				if parts := w.awaited(guilds, all); rung != c.rung || len(named) != endpoints || len(parts) != streams {
					t.Errorf("for who waits for %s a look is made: %v, at %v and the streams %v", who, rung, named, parts)
				}
			}
			one, all := w.Done("1"), w.Done("")
			if c.wake != "" {
				w.Wake(c.wake)
			}
			w.Begin("1", "endpoint", one)
			looksFor("an endpoint", 1, 0)
			w.BeginPart("stream", Part{Shards: 1}, all)
			looksFor("a stream", 0, 1)
			w.BeginPart("another", Part{Shards: 1}, all)
			looksFor("another", 0, 1)
		})
	}
}
