package auth

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// However many requests need rows, only a few statements run at a time, and no request gets a row
// that was read before it arrived. RELIABILITY.md, Tokens.
func TestLookupsAreFewAndFresh(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(*testing.T) { lookMany(rt) })
	})
}

func lookMany(t *rapid.T) {
	slots := rapid.IntRange(1, 3).Draw(t, "slots")
	var running, most, statements atomic.Int64
	started := time.Now()
	l := newLookups(slots, func(_ context.Context, hashes []digest) (map[digest]*entry, error) {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		statements.Add(1)
		begun := time.Now()
		time.Sleep(100 * time.Millisecond)
		found := map[digest]*entry{}
		for _, h := range hashes {
			if found[h] != nil {
				t.Errorf("%v is looked for twice in one statement", h)
			}
			found[h] = &entry{readAt: begun}
		}
		return found, nil
	})
	asks := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) [2]int {
		return [2]int{rapid.IntRange(0, 500).Draw(t, "ms"), rapid.IntRange(0, 5).Draw(t, "token")}
	}), 1, 60).Draw(t, "asks")
	var all sync.WaitGroup
	for _, ask := range asks {
		all.Go(func() {
			time.Sleep(time.Duration(ask[0]) * time.Millisecond)
			asked := time.Now()
			e, err := l.find(context.Background(), digest{byte(ask[1])})
			if err != nil || e.readAt.Before(asked) {
				t.Errorf("asked at %v, got %+v, %v", asked.Sub(started), e, err)
			}
			if took := time.Since(asked); took > 200*time.Millisecond {
				t.Errorf("an answer took %v, more than the statement under way and its own", took)
			}
		})
	}
	all.Wait()
	synctest.Wait()
	if int(most.Load()) > slots {
		t.Errorf("%d statements at a time, want at most %d", most.Load(), slots)
	}
	// Each slot can run statements of 100 ms one after the other.
	if n := int(statements.Load()); n > 7*slots {
		t.Errorf("%d statements", n)
	}
	if l.running != 0 || len(l.next) != 0 || len(l.order) != 0 {
		t.Errorf("left behind: %d running, %d waiting", l.running, len(l.next))
	}
}

func TestALookupEndsWithItsRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLookups(1, func(ctx context.Context, _ []digest) (map[digest]*entry, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		ctx, release := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, release)
		if _, err := l.find(ctx, digest{1}); !errors.Is(err, context.Canceled) {
			t.Errorf("left: %v", err)
		}
		if _, err := l.find(t.Context(), digest{1}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waited: %v", err)
		}
		time.Sleep(2 * readTimeout) // the statements end by their own timeout
	})
}

// When the database responds slowly, opening a connection takes longer than requests wait. The
// lookup is finished all the same; otherwise no connection would ever be opened. RELIABILITY.md,
// Overload.
func TestALookupOutlivesTheRequestsThatWaitForIt(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]error{1800 * time.Millisecond: nil, time.Hour: context.DeadlineExceeded} {
		synctest.Test(t, func(t *testing.T) {
			begun, outcome := time.Now(), errors.New("the read has not ended")
			l := newLookups(1, func(ctx context.Context, _ []digest) (map[digest]*entry, error) {
				outcome = nil
				select {
				case <-time.After(took):
				case <-ctx.Done():
					outcome = ctx.Err()
				}
				return nil, outcome
			})
			if _, err := l.find(t.Context(), digest{1}); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != lookupTimeout {
				t.Errorf("a request gets %v after %v", err, time.Since(begun))
			}
			time.Sleep(2 * lookupTimeout)
			synctest.Wait()
			if !errors.Is(outcome, want) {
				t.Errorf("a read of %v ends with %v, want %v", took, outcome, want)
			}
		})
	}
}
