package db

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/base/fault"
)

func caller(guild, token int) Caller {
	return Caller{Token: fmt.Sprintf("g%d-t%d", guild, token), Guild: fmt.Sprintf("g%d", guild)}
}

// taken acquires a slot that must be free.
func taken(t *testing.T, p *Slots, c Caller) (release func()) {
	t.Helper()
	before := p.Stats().Waits
	release, err := p.Acquire(t.Context(), c)
	if err != nil || p.Stats().Waits != before {
		t.Fatalf("%v: no slot at once: %v", c, err)
	}
	return release
}

// RELIABILITY.md, Neighbours.
func TestPlaces(t *testing.T) {
	t.Parallel()
	t.Run("a token alone holds half, its guild three quarters, and the last quarter is for others", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := connectionSlots(8)
			for range 4 {
				taken(t, p, caller(1, 1))
			}
			if _, err := p.Acquire(t.Context(), caller(1, 1)); !is(err, "rate_limited") {
				t.Errorf("the fifth of one token: %v, want rate_limited", err)
			}
			taken(t, p, caller(1, 2))
			taken(t, p, caller(1, 2))
			if _, err := p.Acquire(t.Context(), caller(1, 2)); !is(err, "service_unavailable") {
				t.Errorf("the seventh of one guild: %v, want service_unavailable", err)
			}
			taken(t, p, caller(2, 1))
			taken(t, p, caller(3, 1))
			if _, err := p.Acquire(t.Context(), caller(4, 1)); !is(err, "service_unavailable") {
				t.Errorf("the ninth of all: %v, want service_unavailable", err)
			}
			if s := p.Stats(); s.OwnShare != 1 || s.Busy != 2 || s.Held != 8 || s.Waiting != 0 || s.Waited != 3*waitTimeout {
				t.Errorf("counted %+v", s)
			}
		})
	})
	t.Run("who waits in vain is refused after two seconds and told to come back in one", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := connectionSlots(1)
			taken(t, p, caller(1, 1))
			begun := time.Now()
			_, err := p.Acquire(t.Context(), caller(2, 1))
			if f, ok := fault.As(err); !ok || f.RetryAfter != time.Second || time.Since(begun) != waitTimeout {
				t.Errorf("%v after %v", err, time.Since(begun))
			}
		})
	})
	t.Run("a request waits two seconds in all, however many statements it has", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := connectionSlots(1)
			release := taken(t, p, caller(1, 1))
			c := caller(2, 1)
			request := As(t.Context(), c)
			time.AfterFunc(1500*time.Millisecond, release)
			release, err := p.Acquire(request, c)
			if err != nil {
				t.Fatal(err)
			}
			release()
			taken(t, p, caller(1, 1))
			begun := time.Now()
			if _, err := p.Acquire(request, c); !is(err, "service_unavailable") || time.Since(begun) != waitTimeout-1500*time.Millisecond {
				t.Errorf("its second statement: %v after %v", err, time.Since(begun))
			}
			begun = time.Now()
			if _, err := p.Acquire(As(t.Context(), c), c); !is(err, "service_unavailable") || time.Since(begun) != waitTimeout {
				t.Errorf("another request: %v after %v", err, time.Since(begun))
			}
		})
	})
	t.Run("what was charged to a request counts as waiting", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := connectionSlots(1)
			taken(t, p, caller(1, 1))
			c := caller(2, 1)
			for charged, want := range map[time.Duration]time.Duration{
				0: waitTimeout, 700 * time.Millisecond: waitTimeout - 700*time.Millisecond, time.Hour: 0,
			} {
				request := As(t.Context(), c)
				Charge(request, charged)
				begun := time.Now()
				if _, err := p.Acquire(request, c); !is(err, "service_unavailable") || time.Since(begun) != want || waited(request) != charged+want {
					t.Errorf("charged with %v: %v after %v, %v in all", charged, err, time.Since(begun), waited(request))
				}
			}
			Charge(t.Context(), time.Hour)
			if waited(t.Context()) != 0 {
				t.Error("something was charged outside of a request")
			}
		})
	})
	t.Run("a caller that leaves, or has left, holds nothing", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := connectionSlots(1)
			release := taken(t, p, caller(1, 1))
			ctx, leave := context.WithTimeout(t.Context(), time.Second)
			defer leave()
			if _, err := p.Acquire(ctx, caller(2, 1)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("left while waiting: %v", err)
			}
			release()
			if _, err := p.Acquire(ctx, caller(2, 1)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("left before: %v", err)
			}
			taken(t, p, caller(3, 1))()
			if len(p.tokens) != 0 || len(p.guilds) != 0 {
				t.Errorf("%d tokens and %d guilds are remembered", len(p.tokens), len(p.guilds))
			}
		})
	})
	t.Run("free slots go in turn by guild, whoever has more tokens or waits with more requests", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := connectionSlots(1)
			release := taken(t, p, caller(9, 9))
			order := make(chan Caller, 100)
			wait := func(c Caller) {
				go func() {
					if r, err := p.Acquire(t.Context(), c); err == nil {
						order <- c
						r()
					}
				}()
				synctest.Wait()
			}
			for range 3 {
				wait(caller(1, 1))
			}
			wait(caller(1, 2))
			wait(caller(2, 1))
			wait(caller(3, 1))
			release()
			synctest.Wait()
			close(order)
			var got []string
			for c := range order {
				got = append(got, c.Token)
			}
			if want := []string{"g1-t1", "g2-t1", "g3-t1", "g1-t2", "g1-t1", "g1-t1"}; !slices.Equal(got, want) {
				t.Errorf("served %v, want %v", got, want)
			}
		})
	})
	t.Run("the program itself waits as long as it likes", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := connectionSlots(2)
			release := taken(t, p, Caller{})
			taken(t, p, Caller{})
			time.AfterFunc(time.Minute, release)
			if _, err := p.Acquire(t.Context(), Caller{}); err != nil {
				t.Error(err)
			}
		})
	})
}

func is(err error, code string) bool {
	f, ok := fault.As(err)
	return ok && f.Code == code
}

// Whatever is asked for, given back and given up, the slots are those of the
// bounds, none stays free that somebody may have, and one that becomes free goes
// to a guild that holds the fewest.
// RELIABILITY.md, Neighbours.
func TestPlacesAreSharedFairly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(*testing.T) { shareFairly(rt) })
	})
}

func shareFairly(t *rapid.T) {
	total := rapid.IntRange(1, 9).Draw(t, "slots")
	share := connectionShare(total)
	share.Token = rapid.IntRange(1, total).Draw(t, "of a token")
	share.Guild = rapid.IntRange(1, total).Draw(t, "of a guild")
	p := NewSlots(total, share)
	m := &sharing{t: t, p: p, held: map[Caller]int{}, waiting: map[Caller]int{}, guilds: map[string]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type use struct {
		caller Caller
		give   chan struct{} // closed: release the slot, or leave the queue
		leave  context.CancelFunc
	}
	given := make(chan *use, 1000)
	var holding, queued []*use
	ask := func() {
		u := &use{caller: caller(rapid.IntRange(1, 4).Draw(t, "guild"), rapid.IntRange(1, 2).Draw(t, "token")), give: make(chan struct{})}
		var own context.Context
		own, u.leave = context.WithCancel(ctx)
		m.waiting[u.caller]++
		go func() {
			release, err := p.Acquire(own, u.caller)
			if err != nil {
				return
			}
			given <- u
			<-u.give
			release()
		}()
		queued = append(queued, u)
	}
	settle := func(before map[string]int) {
		synctest.Wait()
		for len(given) > 0 {
			u := <-given
			i := slices.Index(queued, u)
			queued = slices.Delete(queued, i, i+1)
			holding = append(holding, u)
			m.gave(u.caller, before)
		}
		m.check()
	}
	pick := func(from []*use) (*use, []*use) {
		i := rapid.IntRange(0, len(from)-1).Draw(t, "which")
		u := from[i]
		return u, slices.Delete(from, i, i+1)
	}
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		switch rapid.IntRange(0, 3).Draw(t, "step") {
		case 0, 1:
			ask()
			settle(nil)
		case 2:
			if len(holding) > 0 {
				var u *use
				u, holding = pick(holding)
				m.held[u.caller]--
				m.guilds[u.caller.Guild]--
				close(u.give)
				settle(m.fewest())
			}
		case 3:
			if len(queued) > 0 {
				var u *use
				u, queued = pick(queued)
				m.waiting[u.caller]--
				u.leave()
				settle(nil)
			}
		}
	}
	for _, u := range holding {
		close(u.give)
	}
	cancel()
	synctest.Wait()
	if s := p.Stats(); s.Waiting != 0 || len(given) == 0 && s.Held != 0 {
		t.Fatalf("at the end %+v", s)
	}
	for len(given) > 0 {
		close((<-given).give)
	}
	synctest.Wait()
	if len(p.tokens) != 0 || len(p.guilds) != 0 || p.free != total {
		t.Fatalf("at the end %d free, %d tokens, %d guilds", p.free, len(p.tokens), len(p.guilds))
	}
}

// sharing is a model of Slots: the rules for granting, without queues.
type sharing struct {
	t             *rapid.T
	p             *Slots
	held, waiting map[Caller]int
	guilds        map[string]int // slots held
}

func (m *sharing) may(c Caller) bool {
	return m.held[c] < m.p.share.Token && m.guilds[c.Guild] < m.p.share.Guild
}

// fewest returns, of the guilds that may get a slot, those that hold the fewest.
func (m *sharing) fewest() map[string]int {
	best := map[string]int{}
	lowest := m.p.total + 1
	for c, n := range m.waiting {
		if n > 0 && m.may(c) && m.guilds[c.Guild] <= lowest {
			if m.guilds[c.Guild] < lowest {
				lowest = m.guilds[c.Guild]
				clear(best)
			}
			best[c.Guild] = lowest
		}
	}
	return best
}

func (m *sharing) gave(c Caller, fewest map[string]int) {
	if !m.may(c) {
		m.t.Fatalf("%v was granted a slot beyond its bounds", c)
	}
	if _, ok := fewest[c.Guild]; fewest != nil && !ok {
		m.t.Fatalf("%v was granted a slot although others hold fewer: %v", c, fewest)
	}
	m.waiting[c]--
	m.held[c]++
	m.guilds[c.Guild]++
}

func (m *sharing) check() {
	free := m.p.total
	for _, n := range m.held {
		free -= n
	}
	s := m.p.Stats()
	if s.Held != m.p.total-free {
		m.t.Fatalf("%d slots are held, want %d", s.Held, m.p.total-free)
	}
	for c, n := range m.waiting {
		if n > 0 && free > 0 && m.may(c) {
			m.t.Fatalf("%v waits although %d slots are free", c, free)
		}
	}
}

func BenchmarkPlaces(b *testing.B) {
	p := connectionSlots(8)
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	b.Run("nobody waits", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			release, err := p.Acquire(ctx, Caller{"token", "guild"})
			if err != nil {
				b.Fatal(err)
			}
			release()
		}
	})
	for _, n := range []int{10, 100_000} {
		b.Run(fmt.Sprintf("%d tokens wait", n), func(b *testing.B) {
			p := connectionSlots(1)
			wait := func(t *tokenSlots) {
				w := &waiter{granted: make(chan struct{})}
				w.element = t.waiters.PushBack(w)
				p.queue(t)
			}
			holder := p.token(Caller{})
			p.take(holder)
			for i := range n {
				wait(p.token(Caller{fmt.Sprint(i), fmt.Sprint(i / 2)}))
			}
			b.ReportAllocs()
			for b.Loop() {
				next := p.next()
				wait(p.token(holder.caller))
				p.giveBack(holder)
				holder = next
			}
		})
	}
}

// A batch starts no statement in its last second, however long its callers would wait.
func TestABatchEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		within, leave, err := enterTogether(t.Context(), connectionSlots(1))
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		time.Sleep(batchTimeout - lastBegin)
		if err := late(within); err != nil {
			t.Errorf("a second before its end: %v", err)
		}
		time.Sleep(time.Nanosecond)
		if err := late(within); err == nil {
			t.Error("in its last second a batch may go on")
		}
	})
}
