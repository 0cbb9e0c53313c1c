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

// Config says where buckets live and how long a decision may take.
type Config struct {
	// RedisURL is where nodes share their buckets; empty: this process counts
	// for itself.
	RedisURL string
	// Budget is how long a call waits for Redis before this node decides
	// alone; 0 means DefaultBudget.
	Budget time.Duration
	// Nodes is the number of live nodes, this one included. While Redis is
	// away each of them admits its share of the quota. nil means one.
	Nodes func() int
	// MaxKeys bounds the buckets held in memory; 0 means 100,000. The ones
	// unused for longest are forgotten first.
	MaxKeys int
	// Log is told when Redis goes and when it is back; nil: nothing is logged.
	Log *slog.Logger
	// Metrics receives the limiter's counters; nil leaves them out.
	Metrics prometheus.Registerer
	// Traced makes each call of Redis a span, within what asked for it.
	Traced bool
}

// DefaultBudget is several times what a healthy store needs, so that a pause of
// the scheduler is no outage.
const DefaultBudget = 15 * time.Millisecond

// Limiter decides. It is safe for concurrent use.
type Limiter struct {
	local  *local
	shared *shared // nil without Redis
	nodes  func() int
	met    *metrics
}

// New returns a Limiter. It fails on a malformed Config only: a Redis that
// cannot be reached is found again later.
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

// Close gives up the connections to Redis.
func (l *Limiter) Close() error {
	if l.shared == nil {
		return nil
	}
	return l.shared.client.Close()
}

// Degraded reports whether Redis is configured and this node is deciding
// without it.
func (l *Limiter) Degraded() bool { return l.shared != nil && l.shared.broken() }

// Spend takes one call from the bucket of key, unless it is empty. Use one
// quota per key. While Redis is away it goes on from what this node last knew
// of the bucket, at this node's share of the quota, and what was spent in the
// meantime is made known when Redis is back: nobody gets a second bucket out of
// an outage or of a store that was emptied.
func (l *Limiter) Spend(ctx context.Context, key string, q Quota) Result {
	if q.Off() {
		return Result{Allowed: true}
	}
	r := l.decide(ctx, key, q, 1)
	l.met.count(r.Allowed)
	return r
}

// Exhausted reports whether the bucket of key is empty, and spends nothing.
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
	// The time until the bucket is full means the same for the whole quota and
	// for a share of it, so what was learned before holds on.
	share := Quota{Limit: max(1, q.Limit/max(1, l.nodes())), Window: q.Window}
	return l.local.spend(ctx, key, q, share, cost)
}

// Try has Redis or Valkey spend one of a bucket of its own, and returns how long a decision
// took once a connection was open. A decision at no cost would not do: a read-only replica, or a
// full server, makes that too.
func Try(ctx context.Context, url string, timeout time.Duration) (time.Duration, error) {
	s, err := newShared(url, timeout, slog.New(slog.DiscardHandler))
	if err != nil {
		return 0, err
	}
	defer s.client.Close()
	q, bucket := Quota{Limit: 10, Window: 10 * time.Second}, "doctor "+rand.Text() // expires with its window
	var took time.Duration
	for range 2 { // the first opens the connection and loads the script
		begun := time.Now()
		if _, err := s.spend(ctx, bucket, q, 1, 0); err != nil {
			return 0, err
		}
		took = time.Since(begun)
	}
	return took, nil
}
