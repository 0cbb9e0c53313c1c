package delivery

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"guildhall/internal/base/testutil"
)

// signaled reports whether the claim loop was woken, and removes the signal.
func (b *wakeups) signaled() bool {
	select {
	case <-b.signal:
		return true
	default:
		return false
	}
}

// A caller that starts to wait causes no poll, unless this node has recorded an event since the
// fetch that found nothing: with thousands of callers, each waiting for seconds, there is still one
// poll in each pollInterval. And that poll is for this caller alone. RELIABILITY.md, Events.
func TestWhoBeginsToWaitIsLookedForOnlyAfterACommit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wake  string
		woken bool
	}{
		"nothing has happened": {"", false},
		"in the same guild":    {"1", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := NewWaiters(nil, slog.New(slog.DiscardHandler), nil)
			polledFor := func(who string, endpoints, streams int) {
				t.Helper()
				if !c.woken {
					endpoints, streams = 0, 0
				}
				woken := w.wakeups.signaled()
				guilds, all := w.wakeups.take()
				_, named := w.named(guilds, all)
				if parts := w.awaited(guilds, all); woken != c.woken || len(named) != endpoints || len(parts) != streams {
					t.Errorf("for who waits for %s a poll is due: %v, at %v and the streams %v", who, woken, named, parts)
				}
			}
			one, all := w.Done("1"), w.Done("")
			if c.wake != "" {
				w.Wake(c.wake)
			}
			w.Begin("1", "endpoint", one)
			polledFor("an endpoint", 1, 0)
			w.BeginPart("stream", Part{Shards: 1}, all)
			polledFor("a stream", 0, 1)
			w.BeginPart("another", Part{Shards: 1}, all)
			polledFor("another", 0, 1)
		})
	}
}

// A committed unit of work of this node causes a poll only if a caller waits for an endpoint of its
// guild, or for a stream.
func TestACommitBringsALookOnlyWhereSomebodyWaits(t *testing.T) {
	t.Parallel()
	w := NewWaiters(nil, slog.New(slog.DiscardHandler), nil)
	want := func(when, guild string, want bool) {
		t.Helper()
		w.Wake(guild)
		woken := w.wakeups.signaled()
		if w.wakeups.take(); woken != want {
			t.Errorf("%s, a commit in guild %s causes a poll: %t", when, guild, woken)
		}
	}
	want("nobody waits", "1", false)
	one, two := w.Begin("1", "one", w.Done("1")), w.Begin("1", "two", w.Done("1"))
	want("two wait", "1", true)
	want("two wait", "2", false)
	one.End()
	want("one waits", "1", true)
	two.End()
	want("none waits any more", "1", false)
	part := w.BeginPart("stream", Part{Shards: 1}, w.Done(""))
	want("one waits for a stream", "2", true)
	part.End()
	want("none waits for the stream any more", "2", false)
}

// A poll that fails repeatedly is logged only from time to time, and a poll that succeeds is not
// logged.
func TestALookThatFailsIsLoggedOnce(t *testing.T) {
	t.Parallel()
	d := newDeliveryDB(t)
	if err := d.DB.Close(); err != nil {
		t.Fatal(err)
	}
	log := d.log()
	w := NewWaiters(d.DB, d.cfg.Log, nil)
	look := func() { // returns when the previous poll has ended
		t.Helper()
		w.wakeups.add("1")
		testutil.Eventually(t, "a look", func() bool {
			w.wakeups.mu.Lock()
			defer w.wakeups.mu.Unlock()
			return !w.wakeups.guilds["1"]
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var runs sync.WaitGroup
	runs.Go(func() { _ = w.Run(ctx) })
	for range 3 {
		look()
	}
	if log.String() != "" {
		t.Errorf("nobody waits, and it logs %s", log.String())
	}
	w.Begin("1", "endpoint", w.Done("1"))
	for range 5 {
		look()
	}
	cancel()
	runs.Wait()
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "database is closed") {
		t.Errorf("logged, want one line:\n%s", log.String())
	}
}
