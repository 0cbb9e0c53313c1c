package ratelimit

import (
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"pgregory.net/rapid"
)

// TestWindows: a count contains every event of the last window, and none older than a window and a
// twentieth.
func TestWindows(t *testing.T) {
	t.Parallel()
	const window = 10 * time.Minute
	rapid.Check(t, func(t *rapid.T) {
		w, err := NewWindows(Config{}, window)
		if err != nil {
			t.Fatal(err)
		}
		var now time.Duration
		w.now = func() time.Duration { return now }
		w.large = 2
		added := map[string][]time.Duration{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 200).Draw(t, "seconds")) * time.Second
			key := fmt.Sprint(rapid.IntRange(1, 4).Draw(t, "key"))
			n := rapid.IntRange(0, 2).Draw(t, "n")
			for range n {
				added[key] = append(added[key], now)
			}
			least, most := 0, 0
			for _, at := range added[key] {
				if now-at <= window {
					least++
				}
				if now-at <= window+window/slots {
					most++
				}
			}
			if got := w.Count(t.Context(), n, key)[0]; got < least || got > most {
				t.Fatalf("key %s counts %d, want %d to %d", key, got, least, most)
			}
		}
	})
}

// TestWindowsAreShared: nodes count together, and each alone while Redis is down; an emptied Redis
// does not lower a node's own count.
func TestWindowsAreShared(t *testing.T) {
	t.Parallel()
	store := miniredis.RunT(t)
	var nodes [2]*Windows
	for i := range nodes {
		w, err := NewWindows(Config{RedisURL: "redis://" + store.Addr(), Budget: 10 * time.Second}, 10*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		nodes[i] = w
	}
	wantCounts := func(node, n int, keys []string, want ...int) {
		t.Helper()
		for i, got := range nodes[node].Count(t.Context(), n, keys...) {
			if got != want[i] {
				t.Fatalf("node %d counts %d of %s, want %d", node, got, keys[i], want[i])
			}
		}
	}
	both := []string{"{b}:all", "{b}:1"}
	wantCounts(0, 1, both, 1, 1)
	wantCounts(1, 1, both, 2, 2)
	wantCounts(1, 1, both[:1], 3)
	wantCounts(0, 0, both, 3, 2)
	store.FastForward(5 * time.Minute)
	store.SetTime(time.Now().Add(5 * time.Minute))
	wantCounts(0, 0, both, 3, 2)
	store.SetTime(time.Now().Add(12 * time.Minute))
	nodes[1].now = func() time.Duration { return 12 * time.Minute }
	wantCounts(1, 0, both, 0, 0)
	wantCounts(1, 1, both, 1, 1)
	store.FlushAll()
	wantCounts(1, 0, both, 1, 1)
	store.Close()
	wantCounts(1, 1, both, 2, 2)
}
