package batcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/base/testutil"
)

// change is the item of these tests: an amount of coins for a member, which another member may
// pay, with an optional key.
type change struct {
	number int // in the order of arrival
	by     Caller
	member string
	other  string // the member that pays; empty: none
	delta  int
	key    string

	cancel  context.CancelFunc
	applied bool
	gone    bool // its caller has withdrawn it
	ended   bool
	err     error
	refused bool
	replay  bool
}

// members returns the subjects of a change.
func (c *change) members() []string {
	if c.other == "" {
		return []string{c.member}
	}
	return []string{c.member, c.other}
}

// common returns a member that both changes concern, or "".
func (c *change) common(other *change) string {
	for _, m := range c.members() {
		if slices.Contains(other.members(), m) {
			return m
		}
	}
	return ""
}

// makeIn makes the change, unless a balance forbids it.
func (c *change) makeIn(balances map[string]int) (refused bool) {
	if balances[c.member]+c.delta < 0 || c.other != "" && balances[c.other]-c.delta < 0 {
		return true
	}
	balances[c.member] += c.delta
	if c.other != "" {
		balances[c.other] -= c.delta
	}
	return false
}

// bank is the database of the model: balances, keys, and the applied changes in their order. It
// applies one change at a time.
type bank struct {
	mu       sync.Mutex
	balances map[string]int
	keys     map[string]*change
	held     map[string]bool // rows that another transaction has locked
	done     []*change

	batches   []*running
	fallbacks []*running
}

// running is a running batch, or a change that fell back and that its caller runs. The test chooses
// its outcome.
type running struct {
	changes []*change
	fate    chan fate
}

type fate int

const (
	committed    fate = iota
	undone            // rolled back, and the error says so
	lost              // rolled back, but the connection broke, so the outcome is unknown
	responseLost      // committed, but the connection broke, so the outcome is unknown
)

var errUnknown = errors.New("the connection broke")

// do makes one change as a statement would, refused or applied, once for its key. It
// reports whether the change was decided.
func (b *bank) do(c *change, fallback bool) bool {
	if !fallback && (b.held[c.member] || b.held[c.other]) {
		return false
	}
	if first := b.keys[c.key]; c.key != "" && first != nil {
		if !fallback {
			return false
		}
		c.replay, c.refused = true, first.refused
		return true
	}
	if c.key != "" {
		b.keys[c.key] = c
	}
	b.done = append(b.done, c)
	c.refused = c.makeIn(b.balances)
	return true
}

func (b *bank) run(_ context.Context, batch []*change) error {
	w := &running{changes: batch, fate: make(chan fate)}
	b.mu.Lock()
	b.batches = append(b.batches, w)
	b.mu.Unlock()
	return b.finish(w, <-w.fate, false)
}

func (b *bank) fallback(c *change) error {
	w := &running{changes: []*change{c}, fate: make(chan fate)}
	b.mu.Lock()
	b.fallbacks = append(b.fallbacks, w)
	b.mu.Unlock()
	return b.finish(w, <-w.fate, true)
}

func (b *bank) finish(w *running, f fate, fallback bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch f {
	case undone:
		return ErrFallback
	case lost:
		return errUnknown
	case committed, responseLost:
	}
	for _, c := range w.changes {
		c.applied = b.do(c, fallback) && f == committed // a lost response does not say whether the change was applied
	}
	if f == responseLost {
		return errUnknown
	}
	return nil
}

// model is a batcher over a bank, with all changes that have arrived.
type model struct {
	t     *rapid.T
	c     *Batcher[*change]
	b     *bank
	cfg   Config[*change]
	asked []*change
	mu    sync.Mutex // guards the results that Do has returned
}

// doing returns err, or the result of own if err is a *Fallback.
func doing(err error, own func() error) error {
	fallback, ok := errors.AsType[*Fallback](err)
	if !ok {
		return err
	}
	defer fallback.Release()
	return own()
}

func (w *model) arrive(c *change) {
	c.number = len(w.asked)
	w.asked = append(w.asked, c)
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	go func() {
		err := doing(w.c.Do(ctx, c.by, c, c.members()...), func() error { return w.b.fallback(c) })
		w.mu.Lock()
		defer w.mu.Unlock()
		c.ended, c.err = true, err
	}()
	// Waiting here queues the changes in the order of the loop.
	testutil.Eventually(w.t, "the change is in line", func() bool {
		w.c.mu.Lock()
		defer w.c.mu.Unlock()
		line := w.c.lines[c.member]
		return len(line) > 0 && line[len(line)-1].value == c
	})
}

// rest waits until every batch that is due is running, and checks the running batches against the
// promises of the package.
func (w *model) rest() {
	w.t.Helper()
	testutil.Eventually(w.t, "every wanted batch is running", func() bool {
		w.b.mu.Lock()
		defer w.b.mu.Unlock()
		w.c.mu.Lock()
		defer w.c.mu.Unlock()
		return w.c.running == len(w.b.batches) && !w.c.wanted()
	})
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	busy := map[string]bool{}
	for _, on := range slices.Concat(w.b.batches, w.b.fallbacks) {
		for _, c := range on.changes {
			for _, m := range c.members() {
				if busy[m] {
					w.t.Fatalf("two changes of %s are running", m)
				}
				busy[m] = true
			}
			if c.gone {
				w.t.Fatalf("change %d is running without its caller", c.number)
			}
			for _, earlier := range w.asked[:c.number] {
				if m := c.common(earlier); m != "" && !earlier.gone && !w.over(earlier) {
					w.t.Fatalf("change %d of %s has overtaken change %d", c.number, m, earlier.number)
				}
			}
		}
		if len(on.changes) > w.cfg.Most {
			w.t.Fatalf("a batch of %d", len(on.changes))
		}
		if w.cfg.PerGroup {
			for _, c := range on.changes {
				if c.by.Group != on.changes[0].by.Group {
					w.t.Fatal("a batch of two groups")
				}
			}
		}
	}
	if len(w.b.batches) > w.cfg.Lanes {
		w.t.Fatalf("%d batches are running", len(w.b.batches))
	}
}

func (w *model) over(c *change) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return c.ended
}

// TestBatchedChangesEqualOneByOne: whatever changes arrive, fail, are withdrawn, meet a lock or
// come twice, the result equals applying the changes one by one: each member's changes in the order
// of their arrival, none applied twice and none lost. RELIABILITY.md, Writes.
func TestBatchedChangesEqualOneByOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &model{t: t, b: &bank{balances: map[string]int{}, keys: map[string]*change{}, held: map[string]bool{}}}
		w.cfg = Config[*change]{
			Run: w.b.run, Most: rapid.IntRange(1, 8).Draw(t, "most"), Lanes: rapid.IntRange(1, 3).Draw(t, "lanes"),
			PerGroup: rapid.Bool().Draw(t, "apart"), Timeout: anHour,
			Applied: func(c *change) bool { return c.applied },
		}
		w.c = New(with(w.cfg))
		end := func(list *[]*running, f fate) {
			w.b.mu.Lock()
			if len(*list) == 0 {
				w.b.mu.Unlock()
				return
			}
			i := rapid.IntRange(0, len(*list)-1).Draw(t, "which")
			on := (*list)[i]
			*list = slices.Delete(*list, i, i+1)
			w.b.mu.Unlock()
			if list == &w.b.fallbacks && f == undone {
				f = lost
			}
			on.fate <- f
			// Applied items return; the others fall back.
			testutil.Eventually(t, "each item of the batch has returned or falls back", func() bool {
				back := 0
				w.b.mu.Lock()
				defer w.b.mu.Unlock()
				for _, c := range on.changes {
					if w.over(c) || slices.ContainsFunc(w.b.fallbacks, func(a *running) bool { return a.changes[0] == c }) {
						back++
					}
				}
				return back == len(on.changes)
			})
		}
		number := 0
		t.Repeat(map[string]func(*rapid.T){
			"arrive": func(t *rapid.T) {
				g := strconv.Itoa(rapid.IntRange(1, 2).Draw(t, "guild"))
				c := &change{
					by:     Caller{g, g + "/" + strconv.Itoa(rapid.IntRange(1, 3).Draw(t, "token"))},
					member: g + "/" + strconv.Itoa(rapid.IntRange(1, 4).Draw(t, "member")),
					delta:  rapid.IntRange(-2, 2).Draw(t, "delta"),
				}
				if other := g + "/" + strconv.Itoa(rapid.IntRange(1, 8).Draw(t, "other")); other != c.member && other < g+"/5" {
					c.other = other
				}
				switch rapid.IntRange(0, 3).Draw(t, "kind") {
				case 0:
					number++
					c.key = c.by.Name + "/k" + strconv.Itoa(number)
				case 1: // repeats the key of an earlier change
					if len(w.asked) > 0 {
						first := w.asked[rapid.IntRange(0, len(w.asked)-1).Draw(t, "of")]
						if first.key != "" {
							c.by, c.member, c.other, c.delta, c.key = first.by, first.member, first.other, first.delta, first.key
						}
					}
				}
				w.arrive(c)
			},
			"commit":            func(*rapid.T) { end(&w.b.batches, committed) },
			"fail":              func(*rapid.T) { end(&w.b.batches, undone) },
			"lose":              func(*rapid.T) { end(&w.b.batches, lost) },
			"lose the answer":   func(*rapid.T) { end(&w.b.batches, responseLost) },
			"commit one":        func(*rapid.T) { end(&w.b.fallbacks, committed) },
			"lose one's answer": func(*rapid.T) { end(&w.b.fallbacks, responseLost) },
			"hold": func(t *rapid.T) {
				m := strconv.Itoa(rapid.IntRange(1, 2).Draw(t, "guild")) + "/" + strconv.Itoa(rapid.IntRange(1, 4).Draw(t, "member"))
				w.b.mu.Lock()
				w.b.held[m] = !w.b.held[m]
				w.b.mu.Unlock()
			},
			"leave": func(t *rapid.T) {
				if len(w.asked) == 0 {
					return
				}
				c := w.asked[rapid.IntRange(0, len(w.asked)-1).Draw(t, "who")]
				c.cancel()
				w.gaveUp(c)
			},
			"": func(*rapid.T) { w.rest() },
		})
		for {
			w.rest()
			if len(w.b.batches) == 0 && len(w.b.fallbacks) == 0 {
				break
			}
			end(&w.b.batches, committed)
			end(&w.b.fallbacks, committed)
		}
		w.check()
	})
}

// gaveUp marks a change whose caller has gone before the change ran.
func (w *model) gaveUp(c *change) {
	isRunning := func() bool {
		w.b.mu.Lock()
		defer w.b.mu.Unlock()
		return slices.ContainsFunc(slices.Concat(w.b.batches, w.b.fallbacks), func(on *running) bool { return slices.Contains(on.changes, c) })
	}
	if isRunning() || w.over(c) {
		return
	}
	testutil.Eventually(w.t, "its caller has gone", func() bool { return w.over(c) })
	if !errors.Is(c.err, context.Canceled) {
		w.t.Fatalf("the caller of change %d has gone and got %v", c.number, c.err)
	}
	c.gone = true
}

func (w *model) check() {
	balances, times := map[string]int{}, map[*change]int{}
	latest := map[string]int{}
	for _, c := range w.b.done {
		times[c]++
		for _, m := range c.members() {
			if n, ok := latest[m]; ok && n > c.number {
				w.t.Fatalf("change %d of %s was done after change %d", c.number, m, n)
			}
			latest[m] = c.number
		}
		if refused := c.makeIn(balances); refused != c.refused {
			w.t.Fatalf("change %d by %d: refused is %v", c.number, c.delta, c.refused)
		}
	}
	for _, c := range w.asked {
		switch n := times[c]; {
		case !w.over(c):
			w.t.Fatalf("change %d is lost", c.number)
		case c.gone && n != 0:
			w.t.Fatalf("change %d was done for a caller that had gone", c.number)
		case n > 1:
			w.t.Fatalf("change %d was done %d times", c.number, n)
		case c.err == nil && !c.replay && n != 1:
			w.t.Fatalf("change %d was not done, and its caller heard of success", c.number)
		case c.replay && (n != 0 || w.b.keys[c.key] == nil):
			w.t.Fatalf("change %d was done %d times and is a replay", c.number, n)
		}
		c.cancel()
	}
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	if n := w.c.kept(); n != 0 {
		w.t.Fatalf("the batcher keeps %d things of finished items", n)
	}
}

// kept counts the items that a batcher holds in memory.
func (b *Batcher[T]) kept() int {
	return len(b.lines) + len(b.turns.next) + len(b.turns.below) + len(b.waiting) + b.ready + b.running + b.few
}

// with fills in the functions of a configuration that a test does not set.
func with[T any](cfg Config[T]) Config[T] {
	if cfg.Acquire == nil {
		cfg.Acquire = func(ctx context.Context) (context.Context, func(), error) { return ctx, func() {}, nil }
	}
	if cfg.Timeout == nil {
		cfg.Timeout = func(context.Context) time.Duration { return 2 * time.Second }
	}
	cfg.Started = func(int, time.Duration) {}
	return cfg
}

// anHour is the timeout of items in models.
func anHour(context.Context) time.Duration { return time.Hour }

// crowd sends n changes of one caller, each for another member.
func crowd(c *Batcher[*change], by Caller, n int) *sync.WaitGroup {
	var all sync.WaitGroup
	for i := range n {
		it := &change{by: by, member: fmt.Sprint(by, i)}
		all.Go(func() { it.err = c.Do(context.Background(), by, it, it.member) })
	}
	return &all
}

// An item of two subjects that gives up frees both: another item that waited for it alone runs at
// once, though no batch is running.
func TestWhoGivesUpOfTwoSubjectsFreesBoth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(with(Config[*change]{
			Run: func(context.Context, []*change) error { return nil }, Applied: func(c *change) bool { return c.applied }, Timeout: anHour,
		}))
		fallback, ok := errors.AsType[*Fallback](c.Do(t.Context(), Caller{}, &change{}, "a"))
		if !ok {
			t.Fatal("the change is applied")
		}
		leaving, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if err := c.Do(leaving, Caller{}, &change{}, "a", "b"); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait()
		all.Go(func() {
			if err := c.Do(t.Context(), Caller{}, &change{applied: true}, "b", "c"); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		leave()
		all.Wait() // the item of b and c would wait for an hour
		fallback.Release()
		if n := c.kept(); n != 0 {
			t.Errorf("the batcher keeps %d things of finished items", n)
		}
	})
}

// An item of two subjects that ends frees an item of each, and as many batches start as are wanted.
func TestAnItemOfTwoSubjectsFreesTwo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var both sync.WaitGroup
		both.Add(2)
		c := New(with(Config[*change]{
			Most: 1, Lanes: 2, Timeout: anHour, Applied: func(c *change) bool { return c.applied },
			Run: func(_ context.Context, batch []*change) error {
				if batch[0].applied {
					both.Done()
					both.Wait()
				}
				return nil
			},
		}))
		fallback, ok := errors.AsType[*Fallback](c.Do(t.Context(), Caller{}, &change{}, "a", "b"))
		if !ok {
			t.Fatal("the change is applied")
		}
		var all sync.WaitGroup
		for _, subject := range []string{"a", "b"} {
			all.Go(func() {
				if err := c.Do(t.Context(), Caller{}, &change{applied: true}, subject); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		fallback.Release()
		all.Wait()
	})
}

// However many changes of one token wait, the next batch takes changes of other tokens too.
// RELIABILITY.md, Neighbours.
func TestAFloodFillsNoBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var batches [][]*change
		c := New(with(Config[*change]{Most: 8, Lanes: 1, Run: func(_ context.Context, batch []*change) error {
			batches = append(batches, batch)
			time.Sleep(time.Millisecond)
			return nil
		}}))
		flood := crowd(c, Caller{"1", "flood"}, 100)
		synctest.Wait()
		neighbour, stranger := crowd(c, Caller{"1", "neighbour"}, 2), crowd(c, Caller{"2", "stranger"}, 6)
		flood.Wait()
		neighbour.Wait()
		stranger.Wait()
		count := map[string]int{}
		for _, it := range batches[1] {
			count[it.by.Name]++
		}
		// Guilds take turns, and within a guild its tokens take turns.
		if count["flood"] != 2 || count["neighbour"] != 2 || count["stranger"] != 4 {
			t.Errorf("the next batch holds %v", count)
		}
	})
}

// An item that arrives while no batch is running runs at once. All items that arrive while a
// batch is running go into the next batch.
func TestABatchIsWhatCameMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sizes []int
		var begun []time.Time
		c := New(with(Config[*change]{Run: func(_ context.Context, batch []*change) error {
			mu.Lock()
			sizes, begun = append(sizes, len(batch)), append(begun, time.Now())
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			return nil
		}}))
		start := time.Now()
		first := crowd(c, Caller{"1", "a"}, 1)
		synctest.Wait()
		rest := crowd(c, Caller{"1", "b"}, 63)
		first.Wait()
		rest.Wait()
		if !slices.Equal(sizes, []int{1, 63}) || !begun[0].Equal(start) || begun[1].Sub(start) != 10*time.Millisecond {
			t.Errorf("batches of %v at %v", sizes, begun)
		}
		lone := crowd(c, Caller{"1", "c"}, 1)
		synctest.Wait() // its batch is running
		full := crowd(c, Caller{"1", "d"}, 64)
		lone.Wait()
		full.Wait()
		if !slices.Equal(sizes[2:], []int{1, 64}) || !begun[3].Equal(begun[2]) {
			t.Errorf("a full batch waited: %v at %v", sizes[2:], begun[2:])
		}
	})
}

// A second batch starts beside a running batch when it would be full.
func TestASecondBatchBeginsWhenItIsFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			first, next int
			beside      bool
		}{
			{1, 4, false}, {6, 6, false}, {6, 7, false}, {6, 8, true},
		} {
			var mu sync.Mutex
			var begun []time.Time
			open := make(chan struct{})
			batcher := New(with(Config[*change]{
				Most: 8,
				Acquire: func(ctx context.Context) (context.Context, func(), error) {
					<-open
					return ctx, func() {}, nil
				},
				Run: func(_ context.Context, _ []*change) error {
					mu.Lock()
					begun = append(begun, time.Now())
					mu.Unlock()
					time.Sleep(10 * time.Millisecond)
					return nil
				},
			}))
			var all sync.WaitGroup
			arrive := func(n int, name string) {
				for i := range n {
					it := &change{}
					all.Go(func() { it.err = batcher.Do(context.Background(), Caller{"1", name}, it, fmt.Sprint(name, i)) })
				}
				synctest.Wait()
			}
			arrive(c.first, "first")
			close(open)
			synctest.Wait()
			arrive(c.next, "next")
			all.Wait()
			if len(begun) != 2 || begun[1].Equal(begun[0]) != c.beside {
				t.Errorf("%+v: batches began at %v", c, begun)
			}
		}
	})
}

// A batch starts beside running batches only when it would be full. With PerGroup, one batch of
// each group runs at a time.
func TestBatchesBesideEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			apart bool
			waves []string // the groups of the items, in the order in which the items arrive
			each  int
			want  int32 // number of batches expected
		}{
			{false, []string{"1", "1"}, 4, 1},
			{false, []string{"1", "1"}, 8, 2},
			{true, []string{"1", "2", "3"}, 1, 3},
			{true, []string{"1", "1"}, 1, 1},
			{false, []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"}, 8, 4},
			{true, []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"}, 1, 8},
		} {
			var on atomic.Int32
			open := make(chan struct{})
			batcher := New(with(Config[*change]{
				Most: 8, PerGroup: c.apart,
				Run: func(context.Context, []*change) error {
					on.Add(1)
					<-open
					return nil
				},
			}))
			var all sync.WaitGroup
			for wave, group := range c.waves {
				for i := range c.each {
					it := &change{}
					all.Go(func() { it.err = batcher.Do(context.Background(), Caller{group, "a"}, it, fmt.Sprint(wave, i)) })
					synctest.Wait() // items that a starting batch has not taken yet would count as waiting
				}
			}
			if n := on.Load(); n != c.want {
				t.Errorf("%+v: %d are on their way", c, n)
			}
			close(open)
			all.Wait()
		}
	})
}

// The next batch starts before the items that arrived behind the last batch may be taken. Once they
// may be taken and are Enough, they start another batch beside it.
func TestThoseBehindABatchBeginAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int32
		open, done := make(chan struct{}), make(chan struct{})
		c := New(with(Config[*change]{
			Enough: 3, Lanes: 2,
			Acquire: func(ctx context.Context) (context.Context, func(), error) {
				if begun.Add(1) > 2 {
					<-open
				}
				return ctx, func() {}, nil
			},
			Run: func(context.Context, []*change) error {
				<-done
				return nil
			},
		}))
		var all sync.WaitGroup
		come := func(members ...string) {
			for _, m := range members {
				all.Go(func() {
					if err := c.Do(t.Context(), Caller{"1", "x"}, &change{member: m}, m); err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
		}
		end := func() {
			done <- struct{}{}
			synctest.Wait()
		}
		come("z")
		come("a", "b") // fewer than three items: they wait
		end()
		come("a", "b", "c") // two items whose subjects have earlier items, and one that the next batch may take
		if end(); begun.Load() != 4 {
			t.Errorf("%d batches have begun; want four: the first, the second, the next, and one of those behind", begun.Load())
		}
		close(open)
		close(done)
		all.Wait()
		if synctest.Wait(); c.kept() != 0 {
			t.Errorf("%d things are kept", c.kept())
		}
	})
}

// An item that waits too long for a batch fails, and its error says whether its own caller's items
// filled the batches. RELIABILITY.md, Overload.
func TestWhoWaitsTooLongIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		own, busy := errors.New("own share"), errors.New("busy")
		open := make(chan struct{})
		c := New(with(Config[*change]{
			Lanes: 1, Run: func(context.Context, []*change) error { return nil },
			Acquire: func(ctx context.Context) (context.Context, func(), error) {
				<-open
				return ctx, func() {}, nil
			},
			OwnShare: own, Busy: busy,
		}))
		start := time.Now()
		one := &change{}
		var done sync.WaitGroup
		done.Go(func() { one.err = c.Do(context.Background(), Caller{"1", "one"}, one, "m") })
		synctest.Wait()
		flood := make([]*change, 100)
		for i := range flood {
			flood[i] = &change{}
			done.Go(func() { flood[i].err = c.Do(context.Background(), Caller{"1", "flood"}, flood[i], fmt.Sprint(i)) })
		}
		done.Wait()
		refused := map[error]int{}
		for _, f := range flood {
			refused[f.err]++
		}
		// The items that leave last leave few items of their own caller behind.
		if !errors.Is(one.err, busy) || refused[own] != 68 || refused[busy] != 32 || time.Since(start) != 2*time.Second {
			t.Errorf("after %s: %v, %v", time.Since(start), one.err, refused)
		}
		late := &change{}
		done.Go(func() { late.err = c.Do(context.Background(), Caller{"1", "one"}, late, "m") })
		synctest.Wait()
		close(open)
		if done.Wait(); late.err != nil {
			t.Errorf("when there is room again: %v", late.err)
		}
	})
}

// A caller that withdraws its item before the batch starts delays no other item: neither the next
// item of the subject nor, with PerGroup, the items of the group. This also holds when the item
// falls back: once its caller has run it, nothing changes for other items.
func TestWhoGivesUpHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		c := New(with(Config[*change]{
			PerGroup: true, OwnShare: ErrFallback, Busy: ErrFallback, Run: func(context.Context, []*change) error { return nil },
			Acquire: func(ctx context.Context) (context.Context, func(), error) {
				<-open
				return ctx, func() {}, nil
			},
		}))
		ask := func() error { return c.Do(context.Background(), Caller{"1", "a"}, &change{}, "m") }
		fallback, ok := errors.AsType[*Fallback](ask())
		if !ok {
			t.Fatal("an item that waits too long does not fall back")
		}
		close(open)
		synctest.Wait()
		if err := ask(); err != nil || c.kept() != 0 {
			t.Errorf("the next one: %v, and %d things are kept", err, c.kept())
		}
		fallback.Release()
		if err := ask(); err != nil || c.kept() != 0 {
			t.Errorf("the one after it: %v, and %d things are kept", err, c.kept())
		}
	})
}

// Ten items of one member are withdrawn, the first one first. The caller's next item then waits for
// one turn, not for ten.
func TestThoseWhoGaveUpTakeNoTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most, callers = 2, 5
		open, mine := make(chan struct{}), &change{}
		batches, in := 0, 0
		c := New(with(Config[*change]{
			Most: most, Lanes: 1, Timeout: anHour,
			Run: func(_ context.Context, list []*change) error {
				if batches == 0 {
					<-open
				} else if slices.Contains(list, mine) {
					in = batches
				}
				batches++
				return nil
			},
		}))
		var all sync.WaitGroup
		ask := func(caller int, member string, value *change) context.CancelFunc {
			ctx, cancel := context.WithCancel(t.Context())
			all.Go(func() {
				if err := c.Do(ctx, Caller{strconv.Itoa(caller), "a"}, value, member); ctx.Err() == nil && err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			return cancel
		}
		var giveUp []context.CancelFunc
		defer ask(0, "", &change{})()
		for range 10 {
			giveUp = append(giveUp, ask(1, "hot", &change{}))
		}
		for _, cancel := range giveUp {
			cancel()
			synctest.Wait()
		}
		for i := range 3 * (callers - 1) {
			defer ask(2+i%(callers-1), "", &change{})()
		}
		defer ask(1, "mine", mine)()
		close(open)
		all.Wait()
		if turn := 1 + (callers-1)/most; in == 0 || in > turn {
			t.Errorf("the item is in batch %d of %d, want at most %d", in, batches-1, turn)
		}
	})
}

// A caller whose context has ended gets the context's error and not Busy. No batch starts for it,
// nor for an item that may not wait at all and falls back.
func TestWhoHasGoneAsksForNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		begun := false
		c := New(with(Config[*change]{
			Busy: ErrFallback, Timeout: func(context.Context) time.Duration { return 0 },
			Acquire: func(ctx context.Context) (context.Context, func(), error) {
				begun = true
				return ctx, func() {}, nil
			},
			Run: func(context.Context, []*change) error { return nil },
		}))
		err := c.Do(gone, Caller{}, &change{}, "m")
		if synctest.Wait(); !errors.Is(err, context.Canceled) || begun {
			t.Errorf("it comes to %v, and a batch has begun: %t", err, begun)
		}
		fallback, ok := errors.AsType[*Fallback](c.Do(t.Context(), Caller{}, &change{}, "m"))
		if synctest.Wait(); !ok || begun {
			t.Fatalf("an item that may not wait falls back: %t, and a batch has started: %t", ok, begun)
		}
		if fallback.Release(); c.kept() != 0 {
			t.Errorf("%d things are kept", c.kept())
		}
	})
}

// A batch that panics or cannot acquire its connection fails for all its items; a batch that
// reports nothing makes its items fall back. The next batch is not affected.
func TestABatchThatBreaksFailsForItsItems(t *testing.T) {
	t.Parallel()
	broken := errors.New("no connection")
	mode := "panic"
	c := New(with(Config[*change]{
		Acquire: func(ctx context.Context) (context.Context, func(), error) {
			if mode == "enter" {
				return nil, nil, broken
			}
			return ctx, func() {}, nil
		},
		Run: func(context.Context, []*change) error {
			if mode == "panic" {
				panic("inside")
			}
			return nil
		},
		Applied: func(*change) bool { return mode != "silent" },
	}))
	ask := func() error { return c.Do(t.Context(), Caller{}, &change{}, "m") }
	if err := ask(); err == nil {
		t.Error("a batch that panics is a success")
	}
	mode = "silent"
	if err := doing(ask(), func() error { return broken }); !errors.Is(err, broken) {
		t.Error("a batch that says nothing is a success")
	}
	mode = "enter"
	if err := ask(); !errors.Is(err, broken) {
		t.Errorf("a batch that cannot begin: %v", err)
	}
	mode = ""
	if err := ask(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
