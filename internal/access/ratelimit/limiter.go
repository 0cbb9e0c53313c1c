package ratelimit

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/base/fault"
)

// Config is the configuration of a Limiter.
type Config struct {
	// RedisURL is the Redis in which nodes share their buckets; empty: each process counts for
	// itself.
	RedisURL string
	// Budget is how long a call waits for Redis before this node decides alone; 0 means
	// DefaultBudget.
	Budget time.Duration
	// Nodes returns the number of live nodes, this one included. While Redis is down, each node
	// admits its share of the quota. nil means one.
	Nodes func() int
	// MaxKeys bounds the buckets in memory; 0 means 100,000. The least recently used are dropped
	// first.
	MaxKeys int
	// Log receives a line when Redis fails and when it recovers; nil: no log.
	Log *slog.Logger
	// Metrics receives the limiter's counters; nil leaves them out.
	Metrics prometheus.Registerer
	// Traced makes a span for each call of Redis, as a child of the caller's span.
	Traced bool
}

// DefaultBudget is several times as long as a healthy Redis needs, so that a scheduling delay does
// not count as a failure.
const DefaultBudget = 15 * time.Millisecond

// Limiter decides whether calls are within their quota. It is safe for concurrent use.
type Limiter struct {
	local  *local
	shared *shared // nil without Redis
	nodes  func() int
	met    *metrics
}

// New returns a Limiter. It returns an error only for a malformed Config: an unreachable Redis is
// retried later.
func New(cfg Config) (*Limiter, error) {
	cfg.Budget = cmp.Or(cfg.Budget, DefaultBudget)
	cfg.MaxKeys = cmp.Or(cfg.MaxKeys, 100_000)
	if cfg.Budget < 0 || cfg.MaxKeys < 0 {
		return nil, fmt.Errorf("ratelimit: Budget and MaxKeys must not be negative")
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Nodes == nil {
		cfg.Nodes = func() int { return 1 }
	}
	l := &Limiter{nodes: cfg.Nodes}
	var err error
	if l.local, err = newLocal(cfg.MaxKeys); err != nil {
		return nil, fault.Wrap(err, "ratelimit")
	}
	if cfg.RedisURL != "" {
		if l.shared, err = newShared(cfg.RedisURL, cfg.Budget, cfg.Log); err != nil {
			return nil, err
		}
		if cfg.Traced {
			l.shared.client.AddHook(spans{})
		}
	}
	if l.met, err = newMetrics(cfg.Metrics, l); err != nil {
		return nil, fault.Wrap(err, "ratelimit")
	}
	return l, nil
}

// Close closes the connections to Redis.
func (l *Limiter) Close() error {
	if l.shared == nil {
		return nil
	}
	return l.shared.client.Close()
}

// Degraded reports whether Redis is configured and this node currently decides without it.
func (l *Limiter) Degraded() bool { return l.shared != nil && l.shared.broken() }

// Spend takes one call from the bucket of key, unless the bucket is empty. Always use the same
// quota for a key. While Redis is down, Spend continues from the last state of the bucket that this
// node saw, with this node's share of the quota; when Redis is back, it is updated with what was
// spent meanwhile. So neither an outage nor an emptied Redis gives anybody a second bucket.
func (l *Limiter) Spend(ctx context.Context, key string, q Quota) Result {
	if q.Off() {
		return Result{Allowed: true}
	}
	r := l.decide(ctx, key, q, 1)
	l.met.count(r.Allowed)
	return r
}

// Exhausted reports whether the bucket of key is empty, without spending.
func (l *Limiter) Exhausted(ctx context.Context, key string, q Quota) bool {
	return !q.Off() && !l.decide(ctx, key, q, 0).Allowed
}

func (l *Limiter) decide(ctx context.Context, key string, q Quota, cost int) Result {
	if l.shared == nil {
		return l.local.spend(ctx, key, q, q, cost)
	}
	if l.shared.usable() {
		sent := l.local.now()
		r, err := l.shared.spend(ctx, key, q, cost, l.local.untilFull(key, sent))
		if err == nil {
			l.local.learn(key, sent.Add(r.Reset))
			return r
		}
		l.met.failures.Inc()
	}
	l.met.degraded.Inc()
	// A bucket is stored as the time until it is full, which means the same for a share of the
	// quota, so the state known before stays valid.
	share := Quota{Limit: max(1, q.Limit/max(1, l.nodes())), Window: q.Window}
	return l.local.spend(ctx, key, q, share, cost)
}

// Try spends one call of a private bucket in Redis or Valkey and returns how long the decision
// took, without opening the connection. It has to write, because a read-only replica or a full
// server would still serve reads.
func Try(ctx context.Context, url string, timeout time.Duration) (time.Duration, error) {
	s, err := newShared(url, timeout, slog.New(slog.DiscardHandler))
	if err != nil {
		return 0, err
	}
	defer s.client.Close()
	q, bucket := Quota{Limit: 10, Window: 10 * time.Second}, "doctor "+rand.Text() // the bucket expires with its window
	var took time.Duration
	for range 2 { // the first round opens the connection and loads the script
		begun := time.Now()
		if _, err := s.spend(ctx, bucket, q, 1, 0); err != nil {
			return 0, err
		}
		took = time.Since(begun)
	}
	return took, nil
}
