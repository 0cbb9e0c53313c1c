package ratelimit_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/testutil"
)

func limiter(t testing.TB, cfg ratelimit.Config) *ratelimit.Limiter {
	t.Helper()
	l, err := ratelimit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func quota(t testing.TB, s string) ratelimit.Quota {
	t.Helper()
	q, err := ratelimit.ParseQuota(s)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestBucket(t *testing.T) {
	t.Parallel()
	ctx := t.Context()

	t.Run("allows the full quota at once, and then nothing", func(t *testing.T) {
		t.Parallel()
		l, q := limiter(t, ratelimit.Config{}), quota(t, "50/10h")
		for i := range 50 {
			r := l.Spend(ctx, "k", q)
			if !r.Allowed || r.Limit != 50 || r.Remaining != 49-i || r.RetryAfter != 0 || r.Reset <= 0 {
				t.Fatalf("call %d: %+v", i, r)
			}
		}
		r := l.Spend(ctx, "k", q)
		if r.Allowed || r.Limit != 50 || r.Remaining != 0 || r.RetryAfter <= 0 || r.RetryAfter > 12*time.Minute || r.Reset > 10*time.Hour {
			t.Fatalf("after the quota: %+v", r)
		}
	})

	t.Run("keeps keys apart", func(t *testing.T) {
		t.Parallel()
		l, q := limiter(t, ratelimit.Config{}), quota(t, "1/10h")
		for _, key := range []string{"a:read", "a:write", "b:read"} {
			if !l.Spend(ctx, key, q).Allowed {
				t.Errorf("%s was refused its first call", key)
			}
			if l.Spend(ctx, key, q).Allowed {
				t.Errorf("%s was allowed a second call", key)
			}
		}
	})

	t.Run("does not charge for refusals, and waiting as told always succeeds", func(t *testing.T) {
		t.Parallel()
		l, q := limiter(t, ratelimit.Config{}), quota(t, "4/400ms")
		for range 4 {
			l.Spend(ctx, "k", q)
		}
		for range 5 {
			for range 100 {
				l.Spend(ctx, "k", q)
			}
			r := l.Spend(ctx, "k", q)
			for r.Allowed { // on a slow machine a call has come back meanwhile
				r = l.Spend(ctx, "k", q)
			}
			if r.RetryAfter <= 0 || r.RetryAfter > 100*time.Millisecond {
				t.Fatalf("a hundred refusals moved Retry-After to %v", r.RetryAfter)
			}
			time.Sleep(r.RetryAfter)
			if again := l.Spend(ctx, "k", q); !again.Allowed {
				t.Fatalf("waited %v and was refused: %+v", r.RetryAfter, again)
			}
		}
	})

	t.Run("is never empty where the quota is off", func(t *testing.T) {
		t.Parallel()
		l, q := limiter(t, ratelimit.Config{}), quota(t, "off")
		for range 1000 {
			if r := l.Spend(ctx, "k", q); r != (ratelimit.Result{Allowed: true}) {
				t.Fatalf("off said %+v", r)
			}
		}
		if l.Exhausted(ctx, "k", q) {
			t.Fatal("off is exhausted")
		}
	})

	t.Run("can be looked at without spending", func(t *testing.T) {
		t.Parallel()
		l, q := limiter(t, ratelimit.Config{}), quota(t, "3/10h")
		for i := range 3 {
			for range 10 {
				if l.Exhausted(ctx, "k", q) {
					t.Fatalf("exhausted after %d of 3", i)
				}
			}
			if !l.Spend(ctx, "k", q).Allowed {
				t.Fatalf("looking spent: call %d refused", i)
			}
		}
		if !l.Exhausted(ctx, "k", q) {
			t.Fatal("not exhausted after 3 of 3")
		}
	})

	t.Run("admits exactly its quota to a crowd", func(t *testing.T) {
		t.Parallel()
		l, q := limiter(t, ratelimit.Config{}), quota(t, "500/10h")
		if got := crowd(ctx, []*ratelimit.Limiter{l}, q, 32, 50); got != 500 {
			t.Fatalf("admitted %d of 1600, want 500", got)
		}
	})

	t.Run("forgets the keys unused for longest when memory is full", func(t *testing.T) {
		t.Parallel()
		l, q := limiter(t, ratelimit.Config{MaxKeys: 100}), quota(t, "1/10h")
		l.Spend(ctx, "busy", q)
		for i := range 5000 {
			l.Spend(ctx, fmt.Sprint(i), q)
			if l.Spend(ctx, "busy", q).Allowed {
				t.Fatalf("a busy key was forgotten after %d others", i)
			}
		}
		if !l.Spend(ctx, "0", q).Allowed {
			t.Fatal("5000 keys were kept where 100 have room")
		}
	})
}

// crowd makes `each` calls for one key from each of `callers` goroutines, spread over the nodes,
// and returns how many were allowed.
func crowd(ctx context.Context, nodes []*ratelimit.Limiter, q ratelimit.Quota, callers, each int) int64 {
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for range each {
				if nodes[i%len(nodes)].Spend(ctx, "crowd", q).Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return allowed.Load()
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, cfg := range []ratelimit.Config{
		{RedisURL: "http://example.com"},
		{RedisURL: "redis://:secret@[bad"},
		{MaxKeys: -1},
		{Budget: -1},
	} {
		if l, err := ratelimit.New(cfg); err == nil {
			l.Close()
			t.Errorf("New(%+v) succeeded", cfg)
		}
	}
	reg := prometheus.NewRegistry()
	l := limiter(t, ratelimit.Config{Metrics: reg})
	q := quota(t, "1/1h")
	l.Spend(t.Context(), "k", q)
	l.Spend(t.Context(), "k", q)
	decided := testutil.Metric(t, reg, "guildhall_rate_decisions_total")
	degraded := testutil.Metric(t, reg, "guildhall_rate_degraded_total")
	if decided != 2 || degraded != 0 {
		t.Errorf("%v decisions are counted, %v of them degraded", decided, degraded)
	}
	if l2, err := ratelimit.New(ratelimit.Config{Metrics: reg}); err == nil {
		l2.Close()
		t.Error("two limiters share one registry")
	}
}

func BenchmarkSpend(b *testing.B) {
	l, q := limiter(b, ratelimit.Config{}), quota(b, "1000000000/1s")
	b.ReportAllocs()
	for b.Loop() {
		l.Spend(b.Context(), "0192f0c1-7d7b-7000-8000-000000000000:read", q)
	}
}

func BenchmarkSpendParallel(b *testing.B) {
	l, q := limiter(b, ratelimit.Config{}), quota(b, "1000000000/1s")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.Spend(b.Context(), "0192f0c1-7d7b-7000-8000-000000000000:read", q)
		}
	})
}
