package batcher

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"guildhall/internal/base/testutil"
)

// look is one read of the model's only row. It must see a value that was committed no earlier than
// the last commit before the read arrived.
type look struct {
	by      Caller
	arrived int // the last committed value when the read arrived
	cancel  context.CancelFunc

	// saw and the fields below are guarded by the model's mutex.
	saw    int
	ended  bool
	err    error
	gone   bool // its caller has withdrawn it
	failed bool // its batch failed, so it falls back
}

// looking is a running statement that answers looks. It has read its value; the test chooses its
// outcome.
type looking struct {
	looks []*look
	saw   int
	batch bool
	fate  chan error
}

// readers is a batcher of reads, with all reads that have arrived.
type readers struct {
	t   *rapid.T
	c   *Batcher[*look]
	cfg Config[*look]

	mu        sync.Mutex // guards the fields below
	committed int
	asked     []*look
	under     []*looking // running statements
}

func (w *readers) statement(looks []*look, batch bool) error {
	w.mu.Lock()
	s := &looking{looks: looks, saw: w.committed, batch: batch, fate: make(chan error)}
	w.under = append(w.under, s)
	w.mu.Unlock()
	err := <-s.fate
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range looks {
		l.saw, l.failed = s.saw, l.failed || batch && err != nil
	}
	return err
}

func (w *readers) run(_ context.Context, batch []*look) error {
	if w.statement(batch, true) != nil {
		return ErrFallback
	}
	return nil
}

func (w *readers) arrive(by Caller) {
	ctx, cancel := context.WithCancel(context.Background())
	w.mu.Lock()
	l := &look{by: by, arrived: w.committed, cancel: cancel}
	w.asked = append(w.asked, l)
	w.mu.Unlock()
	w.c.mu.Lock()
	waited, batches, there := w.c.ready, w.c.running, w.c.few
	w.c.mu.Unlock()
	go func() {
		err := doing(w.c.Do(ctx, by, l), func() error { return w.statement([]*look{l}, false) })
		w.mu.Lock()
		defer w.mu.Unlock()
		l.ended, l.err = true, err
	}()
	w.rest()
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	if w.c.ready > waited && batches == 0 && there < w.cfg.Few {
		w.t.Fatalf("a read waits that arrived when %d had fallen back", there)
	}
}

// rest waits until every read that has arrived waits or runs, and checks that against the
// promises of the package.
func (w *readers) rest() {
	w.t.Helper()
	testutil.Eventually(w.t, "every read waits or runs", func() bool {
		w.c.mu.Lock()
		defer w.c.mu.Unlock()
		w.mu.Lock()
		defer w.mu.Unlock()
		here, lanes := w.c.ready, 0
		for _, s := range w.under {
			here += len(s.looks)
			if s.batch {
				lanes++
			}
		}
		for _, l := range w.asked {
			if !l.ended {
				here--
			}
		}
		return here == 0 && lanes == w.c.running && !w.c.wanted()
	})
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	if w.c.running > w.cfg.Lanes {
		w.t.Fatalf("%d statements are running", w.c.running)
	}
	if free := w.c.running == 0 || w.c.ready >= w.cfg.Enough && w.c.running < w.cfg.Lanes; free && w.c.ready > 0 && !w.cfg.PerGroup {
		w.t.Fatalf("%d wait beside %d statements", w.c.ready, w.c.running)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.under {
		if len(s.looks) > w.cfg.Most {
			w.t.Fatalf("a statement of %d", len(s.looks))
		}
		for _, l := range s.looks {
			if s.saw < l.arrived {
				w.t.Fatalf("a statement that saw %d answers who came after %d", s.saw, l.arrived)
			}
			if w.cfg.PerGroup && l.by.Group != s.looks[0].by.Group {
				w.t.Fatal("a statement of two groups")
			}
		}
	}
}

// end ends one running statement with err.
func (w *readers) end(which int, err error) {
	w.mu.Lock()
	s := w.under[which]
	w.under = slices.Delete(w.under, which, which+1)
	w.mu.Unlock()
	s.fate <- err
	w.rest()
}

// TestAReadSeesWhatWasThereBeforeIt: whatever is written, fails or is withdrawn, each read is
// answered by a statement that began after the read arrived, or fails alone. No read waits while no
// statement runs, or while few statements run beside many reads, and no read waits that arrives
// when only few have fallen back. RELIABILITY.md, Writes.
func TestAReadSeesWhatWasThereBeforeIt(t *testing.T) {
	t.Parallel()
	broken := errors.New("the statement broke")
	rapid.Check(t, func(t *rapid.T) {
		w := &readers{t: t}
		w.cfg = Config[*look]{
			Run: w.run, Most: rapid.IntRange(1, 8).Draw(t, "most"), Enough: rapid.IntRange(1, 4).Draw(t, "enough"),
			Few: rapid.IntRange(1, 4).Draw(t, "few"), Lanes: rapid.IntRange(1, 3).Draw(t, "lanes"),
			PerGroup: rapid.Bool().Draw(t, "apart"), Timeout: anHour,
		}
		w.c = New(with(w.cfg))
		end := func(t *rapid.T, err error) {
			if len(w.under) > 0 {
				w.end(rapid.IntRange(0, len(w.under)-1).Draw(t, "which"), err)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"arrive": func(t *rapid.T) {
				g := strconv.Itoa(rapid.IntRange(1, 2).Draw(t, "guild"))
				w.arrive(Caller{g, g + "/" + strconv.Itoa(rapid.IntRange(1, 2).Draw(t, "token"))})
			},
			"commit": func(*rapid.T) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.committed++
			},
			"answer": func(t *rapid.T) { end(t, nil) },
			"break":  func(t *rapid.T) { end(t, broken) },
			"leave": func(t *rapid.T) {
				if len(w.asked) > 0 {
					w.leave(w.asked[rapid.IntRange(0, len(w.asked)-1).Draw(t, "who")])
				}
			},
			"": func(*rapid.T) { w.rest() },
		})
		for len(w.under) > 0 {
			w.end(0, nil)
		}
		w.check(broken)
	})
}

// leave withdraws a read. A read that waits ends at once and disturbs no other; a read whose
// statement runs is answered.
func (w *readers) leave(l *look) {
	w.mu.Lock()
	waits := !l.ended && !slices.ContainsFunc(w.under, func(s *looking) bool { return slices.Contains(s.looks, l) })
	w.mu.Unlock()
	l.cancel()
	if waits {
		testutil.Eventually(w.t, "its caller has gone", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			l.gone = l.ended
			return l.gone
		})
		w.rest()
	}
}

func (w *readers) check(broken error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.asked {
		switch {
		case !l.ended:
			w.t.Fatal("a read is not answered")
		case l.gone != errors.Is(l.err, context.Canceled):
			w.t.Fatalf("its caller has gone: %t, and the read ended with %v", l.gone, l.err)
		case l.err == nil && l.saw < l.arrived:
			w.t.Fatalf("who came after %d was told of %d", l.arrived, l.saw)
		case l.err != nil && !l.gone && !errors.Is(l.err, broken):
			w.t.Fatalf("a read ended with %v", l.err)
		}
		l.cancel()
	}
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	if n := w.c.kept(); n != 0 {
		w.t.Fatalf("the batcher keeps %d things of finished reads", n)
	}
}

// An item that falls back at once counts as one of the Few until its Release, and never waits.
func TestFewFallBackAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs, open := 0, make(chan struct{})
		c := New(with(Config[*look]{Few: 2, Run: func(context.Context, []*look) error {
			runs++
			<-open
			return nil
		}}))
		ask := func() *Fallback {
			fallback, _ := errors.AsType[*Fallback](c.Do(t.Context(), Caller{}, &look{}))
			return fallback
		}
		first, second := ask(), ask()
		if first == nil || second == nil || runs != 0 {
			t.Fatalf("two fall back at once: %v, %v, beside %d batches", first, second, runs)
		}
		go ask()
		synctest.Wait()
		first.Release()
		second.Release()
		go ask()
		synctest.Wait()
		if runs != 1 || c.few != 0 || c.ready != 1 {
			t.Errorf("a third is in %d batches, %d finished items are counted, and beside a batch %d wait", runs, c.few, c.ready)
		}
		close(open)
	})
}
