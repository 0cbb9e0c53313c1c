package ratelimit

import (
	"context"
	"sync"
	"time"

	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
)

// local holds buckets in this process: for each key the instant at which its bucket is full. The
// least recently used keys are dropped when there are too many.
type local struct {
	store    *memstore.MemStore
	ctxStore throttled.GCRAStoreCtx
	limiters sync.Map // Quota → *throttled.GCRARateLimiterCtx
	started  time.Time
}

func newLocal(maxKeys int) (*local, error) {
	store, err := memstore.New(maxKeys)
	if err != nil {
		return nil, err
	}
	l := &local{store: store, ctxStore: throttled.WrapStoreWithContext(store), started: time.Now()}
	store.SetTimeNow(l.now)
	return l, nil
}

// now returns a time that follows the monotonic clock, so setting the wall clock neither fills nor
// empties a bucket.
func (l *local) now() time.Time { return l.started.Add(time.Since(l.started)) }

// spend decides by the quota share, and reports the limit of q.
func (l *local) spend(ctx context.Context, key string, q, share Quota, cost int) Result {
	if cost == 0 {
		return l.peek(key, q, share)
	}
	// The store is in memory: it cannot fail or block, so it needs no context.
	limited, r, err := l.limiter(share).RateLimitCtx(ctx, key, cost)
	if err != nil {
		panic("ratelimit: " + err.Error())
	}
	return Result{
		Allowed:    !limited,
		Limit:      q.Limit,
		Remaining:  max(0, r.Remaining),
		Reset:      r.ResetAfter,
		RetryAfter: max(0, r.RetryAfter),
	}
}

// limiter returns the limiter for a quota. There are few: one for each configured quota and each
// share of it.
func (l *local) limiter(q Quota) *throttled.GCRARateLimiterCtx {
	if g, ok := l.limiters.Load(q); ok {
		return g.(*throttled.GCRARateLimiterCtx)
	}
	g, err := throttled.NewGCRARateLimiterCtx(l.ctxStore, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(q.Limit, q.Window),
		MaxBurst: q.Limit - 1,
	})
	if err != nil {
		// cannot happen: ParseQuota accepts no such quota
		panic("ratelimit: " + err.Error())
	}
	// In each round of compare-and-swap one caller succeeds, so the loop ends.
	g.SetMaxCASAttemptsLimit(1 << 30)
	kept, _ := l.limiters.LoadOrStore(q, g)
	return kept.(*throttled.GCRARateLimiterCtx)
}

// peek reads a bucket without creating it.
func (l *local) peek(key string, q, share Quota) Result {
	full := l.untilFull(key, l.now())
	free := share.interval()*time.Duration(share.Limit) - full
	return Result{
		Allowed:    free >= share.interval(),
		Limit:      q.Limit,
		Remaining:  max(0, int(free/share.interval())),
		Reset:      full,
		RetryAfter: max(0, share.interval()-free),
	}
}

// untilFull returns how long after now the bucket of key is full.
func (l *local) untilFull(key string, now time.Time) time.Duration {
	at, _, err := l.store.GetWithTime(key)
	if err != nil || at == -1 {
		return 0
	}
	return max(0, time.Unix(0, at).Sub(now))
}

// learn records the instant at which the shared bucket of key is full. It never moves the instant
// back, since a slow response of Redis may arrive after a newer one.
func (l *local) learn(key string, full time.Time) {
	for {
		at, _, _ := l.store.GetWithTime(key)
		if at >= full.UnixNano() {
			return
		}
		var done bool
		if at == -1 {
			done, _ = l.store.SetIfNotExistsWithTTL(key, full.UnixNano(), 0)
		} else {
			done, _ = l.store.CompareAndSwapWithTTL(key, at, full.UnixNano(), 0)
		}
		if done {
			return
		}
	}
}
