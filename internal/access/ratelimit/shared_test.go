package ratelimit_test

import (
	"bytes"
	"log/slog"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/testutil"
)

// longBudget is a budget that even a busy machine keeps: these tests check counts, not times.
const longBudget = 5 * time.Second

func nodes(t *testing.T, n int, cfg ratelimit.Config) []*ratelimit.Limiter {
	t.Helper()
	cfg.Nodes = func() int { return n }
	var all []*ratelimit.Limiter
	for range n {
		all = append(all, limiter(t, cfg))
	}
	return all
}

// RELIABILITY.md, Neighbours.
func TestSharedBucket(t *testing.T) {
	t.Parallel()
	ctx := t.Context()

	t.Run("is one bucket for three nodes, in a burst", func(t *testing.T) {
		t.Parallel()
		all := nodes(t, 3, ratelimit.Config{RedisURL: "redis://" + miniredis.RunT(t).Addr(), Budget: longBudget})
		if got := crowd(ctx, all, quota(t, "600/10h"), 48, 40); got != 600 {
			t.Fatalf("three nodes admitted %d of 1920, want 600", got)
		}
	})

	t.Run("fills up at its rate, whoever asks", func(t *testing.T) {
		t.Parallel()
		all := nodes(t, 3, ratelimit.Config{RedisURL: "redis://" + miniredis.RunT(t).Addr(), Budget: longBudget})
		q := quota(t, "200/20s") // the bucket refills more slowly than a busy machine calls
		start, allowed := time.Now(), 0
		for time.Since(start) < 3*time.Second {
			for _, l := range all {
				if l.Spend(ctx, "k", q).Allowed {
					allowed++
				}
			}
		}
		// Spend the calls that the bucket has regained by now, so that the count shows the size of
		// the bucket and not the speed of this machine.
		for all[0].Spend(ctx, "k", q).Allowed {
			allowed++
		}
		want := 200 + time.Since(start).Seconds()*10
		if math.Abs(float64(allowed)-want) > want*0.02 {
			t.Fatalf("admitted %d, want %.0f within 2 %%", allowed, want)
		}
	})

	t.Run("tells a Retry-After that holds on every node", func(t *testing.T) {
		t.Parallel()
		all := nodes(t, 3, ratelimit.Config{RedisURL: "redis://" + miniredis.RunT(t).Addr(), Budget: longBudget})
		q := quota(t, "3/300ms")
		for i := range 9 {
			var r ratelimit.Result
			for r = all[0].Spend(ctx, "k", q); r.Allowed; {
				r = all[0].Spend(ctx, "k", q)
			}
			time.Sleep(r.RetryAfter)
			if again := all[i%3].Spend(ctx, "k", q); !again.Allowed {
				t.Fatalf("waited %v and was refused: %+v", r.RetryAfter, again)
			}
		}
	})

	t.Run("can be looked at without spending", func(t *testing.T) {
		t.Parallel()
		all := nodes(t, 2, ratelimit.Config{RedisURL: "redis://" + miniredis.RunT(t).Addr(), Budget: longBudget})
		q := quota(t, "3/10h")
		for i := range 3 {
			if all[0].Exhausted(ctx, "k", q) || all[1].Exhausted(ctx, "k", q) {
				t.Fatalf("exhausted after %d of 3", i)
			}
			if r := all[i%2].Spend(ctx, "k", q); !r.Allowed || r.Remaining != 2-i {
				t.Fatalf("call %d: %+v", i, r)
			}
		}
		if !all[0].Exhausted(ctx, "k", q) || !all[1].Exhausted(ctx, "k", q) {
			t.Fatal("not exhausted after 3 of 3")
		}
	})

	t.Run("survives a store that is emptied", func(t *testing.T) {
		t.Parallel()
		redis := miniredis.RunT(t)
		all := nodes(t, 3, ratelimit.Config{RedisURL: "redis://" + redis.Addr(), Budget: longBudget})
		q := quota(t, "300/10h")
		allowed := crowd(ctx, all, q, 6, 40) // 240 calls, and each node has seen nearly all of them
		redis.FlushAll()
		allowed += crowd(ctx, all, q, 6, 100)
		if allowed < 300 || allowed > 306 {
			t.Fatalf("admitted %d around a flush, want 300 and at most 2 %% more", allowed)
		}
	})

	t.Run("does not lock anybody out when the store's clock jumps back", func(t *testing.T) {
		t.Parallel()
		redis := miniredis.RunT(t)
		l := limiter(t, ratelimit.Config{RedisURL: "redis://" + redis.Addr(), Budget: longBudget})
		q := quota(t, "10/1m")
		for range 10 {
			l.Spend(ctx, "k", q)
		}
		redis.SetTime(time.Now().Add(-time.Hour))
		if r := l.Spend(ctx, "k", q); r.Allowed || r.RetryAfter > 6*time.Second || r.Reset > time.Minute {
			t.Fatalf("after the jump: %+v", r)
		}
	})
}

// RELIABILITY.md, Neighbours.
func TestWithoutRedis(t *testing.T) {
	t.Parallel()
	ctx := t.Context()

	t.Run("goes on from what it knew, and comes back by itself", func(t *testing.T) {
		t.Parallel()
		redis, reg := miniredis.RunT(t), prometheus.NewRegistry()
		cfg := ratelimit.Config{RedisURL: "redis://" + redis.Addr(), Budget: time.Second}
		all := nodes(t, 2, cfg)
		cfg.Metrics, cfg.Nodes = reg, func() int { return 3 }
		var log bytes.Buffer // read after all goroutines have ended
		cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
		all = append(all, limiter(t, cfg))
		q := quota(t, "300/10h")

		allowed := crowd(ctx, all, q, 6, 20) // 120 calls of a quota of 300
		redis.Close()
		allowed += crowd(ctx, all, q, 6, 200)
		if allowed < 200 || allowed > 450 {
			t.Fatalf("admitted %d through the outage, want at most 1.5 times 300", allowed)
		}
		if !all[2].Degraded() {
			t.Fatal("the node does not know that Redis is away")
		}
		counted, now := testutil.Metric(t, reg, "guildhall_rate_degraded_total"), testutil.Metric(t, reg, "guildhall_rate_degraded")
		if counted < 300 || now != 1 {
			t.Fatalf("the outage is not counted: %v, %v", counted, now)
		}

		if err := redis.Restart(); err != nil {
			t.Fatal(err)
		}
		testutil.Eventually(t, "every node is back at Redis", func() bool {
			for _, l := range all {
				l.Spend(ctx, "probe", q)
			}
			return !all[0].Degraded() && !all[1].Degraded() && !all[2].Degraded()
		})
		// The calls that nodes admitted alone are not admitted again.
		allowed += crowd(ctx, all, q, 6, 200)
		if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "counted by this node alone") ||
			!strings.Contains(log.String(), "shared with the other nodes again") {
			t.Errorf("logged: %s", log.String())
		}
		if allowed > 450 {
			t.Fatalf("admitted %d over outage and return, want at most 1.5 times 300", allowed)
		}
	})

	t.Run("starts with Redis away, and asks it rarely", func(t *testing.T) {
		t.Parallel()
		asksRarely(t, testutil.Refusing(t))
	})

	t.Run("does not wait for a Redis that never answers", func(t *testing.T) {
		t.Parallel()
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { silent.Close() })
		asksRarely(t, silent.Addr().String())
	})
}

// asksRarely makes ten thousand calls while Redis is down. Only a few of them reach Redis, so the
// others are cheap.
func asksRarely(t *testing.T, addr string) {
	t.Helper()
	reg := prometheus.NewRegistry()
	l := limiter(t, ratelimit.Config{RedisURL: "redis://" + addr, Metrics: reg})
	q := quota(t, "100/10h")
	start, allowed := time.Now(), 0
	for range 10_000 {
		if l.Spend(t.Context(), "k", q).Allowed {
			allowed++
		}
	}
	if allowed != 100 {
		t.Fatalf("admitted %d, want 100", allowed)
	}
	most := 3 + 1 + 2*time.Since(start).Seconds()
	if asked := testutil.Metric(t, reg, "guildhall_rate_redis_failures_total"); asked < 3 || asked > most {
		t.Fatalf("Redis was asked %v times, want 3 to %.0f", asked, most)
	}
}

// Try, which doctor uses, writes as a request does: with a server that refuses writes it fails.
func TestATryWrites(t *testing.T) {
	t.Parallel()
	redis := miniredis.RunT(t)
	for range 2 {
		if _, err := ratelimit.Try(t.Context(), "redis://"+redis.Addr(), longBudget); err != nil {
			t.Fatal(err)
		}
	}
	keys := redis.Keys()
	if len(keys) != 2 {
		t.Fatalf("two tries leave %q, want a bucket each", keys)
	}
	for _, key := range keys {
		if ttl := redis.TTL(key); ttl <= 0 || ttl > time.Minute {
			t.Errorf("the bucket %s is kept for %v", key, ttl)
		}
	}
}
