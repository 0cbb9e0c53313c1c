package batcher

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// timed returns a batcher whose batches take two milliseconds. It records the size of each batch
// and how long the oldest item of each batch waited.
func timed(window time.Duration) (c *Batcher[*change], sizes *[]int, waits *[]time.Duration) {
	sizes, waits = new([]int), new([]time.Duration)
	cfg := with(Config[*change]{Window: window, Run: func(context.Context, []*change) error {
		time.Sleep(2 * time.Millisecond)
		return nil
	}})
	cfg.Started = func(size int, waited time.Duration) { *sizes, *waits = append(*sizes, size), append(*waits, waited) }
	return New(cfg), sizes, waits
}

// comeAgain runs n callers that each send twenty items, the next one shortly after each result.
func comeAgain(t *testing.T, c *Batcher[*change], n int) {
	t.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for range 20 {
				if err := c.Do(t.Context(), Caller{"1", "a"}, &change{}, fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Duration(100+10*i) * time.Microsecond)
			}
		})
	}
	all.Wait()
}

// Callers that send the next item right after a result share one batch; they do not form two halves
// that wait for each other. A lone caller never waits.
func TestCallersThatComeAgainAreInOneBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, sizes, _ := timed(time.Millisecond)
		comeAgain(t, c, 8)
		if n := len(*sizes); n > 22 || slices.ContainsFunc((*sizes)[1:n-2], func(size int) bool { return size != 8 }) {
			t.Errorf("batches of %v", *sizes)
		}
		c, sizes, _ = timed(0)
		comeAgain(t, c, 8)
		if slices.Contains((*sizes)[1:], 8) {
			t.Errorf("without a window: batches of %v", *sizes)
		}
		c, _, waits := timed(time.Millisecond)
		comeAgain(t, c, 1)
		if slices.Max(*waits) > 0 {
			t.Errorf("a lone caller waits %v", *waits)
		}
	})
}

// While callers do not return, the first batch waits for them, then every second, fourth and at
// most 64th batch, until callers return again.
func TestNobodyIsWaitedForInVainForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _, waits := timed(time.Millisecond)
		ask := func(name string) {
			if err := c.Do(t.Context(), Caller{"1", name}, &change{}, name); err != nil {
				t.Error(err)
			}
		}
		// a's batch starts at once. b waits behind it: for a millisecond, or longer when b's batch
		// waits for a to return.
		round := func(again bool) time.Duration {
			var all sync.WaitGroup
			all.Go(func() {
				ask("a")
				if again {
					time.Sleep(time.Millisecond / 4)
					ask("a")
				}
			})
			time.Sleep(time.Millisecond)
			all.Go(func() { ask("b") })
			all.Wait()
			time.Sleep(10 * time.Millisecond)
			longest := slices.Max(*waits)
			*waits = nil
			return longest - time.Millisecond
		}
		var waited []int
		for i := range 200 {
			switch w := round(false); w {
			case time.Millisecond:
				waited = append(waited, i)
			case 0:
			default:
				t.Fatalf("round %d: waited %s", i, w)
			}
		}
		if !slices.Equal(waited, []int{0, 2, 6, 14, 30, 62, 126, 190}) {
			t.Errorf("it was waited in vain in rounds %v", waited)
		}
		for range 54 { // a batch waits again after 54 rounds
			if w := round(false); w != 0 {
				t.Fatalf("waited %s", w)
			}
		}
		if w := round(true); w != time.Millisecond/4 {
			t.Errorf("for a caller who came again it was waited %s", w)
		}
		for i, want := range []time.Duration{time.Millisecond, 0, time.Millisecond} {
			if w := round(false); w != want {
				t.Errorf("round %d after that: waited %s, want %s", i, w, want)
			}
		}
	})
}

// A batch waits only if fewer items are ready than the last batch had callers, and never while
// another batch runs.
func TestWhenABatchWaits(t *testing.T) {
	t.Parallel()
	for _, d := range []struct {
		name                       string
		ago                        time.Duration
		running, ready, want, skip int
		waits                      bool
		skips                      int // later batches that must not wait
	}{
		{"fewer", 0, 1, 2, 3, 0, true, 0},
		{"as many", 0, 1, 3, 3, 0, false, 0},
		{"as many, which skips none", 0, 1, 3, 3, 1, false, 1},
		{"beside another", 0, 2, 2, 3, 0, false, 0},
		{"too late", time.Minute, 1, 2, 3, 0, false, 0},
		{"skipped", 0, 1, 2, 3, 1, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, _, _ := timed(time.Minute)
			c.running, c.ready, c.skip = d.running, d.ready, d.skip
			c.ended, c.want = time.Now().Add(-d.ago), d.want
			begun, want := time.Now(), time.Duration(0)
			if d.waits {
				want = time.Minute
			}
			if c.take(c.turns); time.Since(begun) != want {
				t.Errorf("%s: waits for %s, want %s", d.name, time.Since(begun), want)
			}
			if d.waits {
				return // the batches after this one do not wait
			}
			if c.skip != d.skips {
				t.Errorf("%s: %d more do not wait, want %d", d.name, c.skip, d.skips)
			}
		})
	}
	c, _, _ := timed(time.Minute)
	c.finish(c.turns, nil, nil)
	if c.want != 0 || c.ended.IsZero() {
		t.Errorf("after an empty batch %d are awaited", c.want)
	}
	c.ready = 40
	c.finish(c.turns, nil, nil)
	if c.want != 16 {
		t.Errorf("where 40 are ready %d are awaited", c.want)
	}
}
