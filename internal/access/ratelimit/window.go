package ratelimit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// slots is the number of parts of a window. One more is kept, so that nothing is forgotten early.
const slots = 20

// countScript adds to the counts of its keys and returns them, by Redis' own clock. ARGV: 1 how
// much to add, 2 the length of a slot (ms), 3 the slots that count.
var countScript = redis.NewScript(`
local t = redis.call('TIME')
local slot = math.floor((t[1] * 1000 + math.floor(t[2] / 1000)) / ARGV[2])
local add, sums = tonumber(ARGV[1]), {}
for i, key in ipairs(KEYS) do
  if add > 0 then
    redis.call('HINCRBY', key, slot, add)
    redis.call('PEXPIRE', key, ARGV[2] * (ARGV[3] + 1))
  end
  local counts = redis.call('HGETALL', key)
  sums[i] = 0
  for j = 1, #counts, 2 do
    if tonumber(counts[j]) > slot - ARGV[3] then
      sums[i] = sums[i] + counts[j + 1]
    elseif add > 0 then
      redis.call('HDEL', key, counts[j])
    end
  end
end
return sums
`)

// Windows counts events of the last window by key, over all nodes if Redis is configured. It is
// safe for concurrent use.
type Windows struct {
	window time.Duration
	shared *shared // nil without Redis
	now    func() time.Duration

	mu     sync.Mutex // guards the fields below
	counts map[string]*counts
	large  int // the number of keys from which on empty keys are dropped
}

// counts are the counts of one key by slot.
type counts [slots + 1]struct {
	slot int64
	n    int
}

// NewWindows returns counters over the given window. It uses RedisURL, Budget, Log and Traced of
// cfg.
func NewWindows(cfg Config, window time.Duration) (*Windows, error) {
	if window < slots*time.Millisecond {
		return nil, errors.New("ratelimit: the window is too short")
	}
	started := time.Now()
	w := &Windows{
		window: window, counts: map[string]*counts{}, large: 1024,
		now: func() time.Duration { return time.Since(started) },
	}
	if cfg.RedisURL == "" {
		return w, nil
	}
	limiter, err := New(Config{RedisURL: cfg.RedisURL, Budget: cfg.Budget, Log: cfg.Log, Traced: cfg.Traced})
	if err != nil {
		return nil, err
	}
	w.shared = limiter.shared
	return w, nil
}

// Close closes the connections to Redis.
func (w *Windows) Close() error {
	if w.shared == nil {
		return nil
	}
	return w.shared.client.Close()
}

// Count adds n to the count of each key and returns the counts. Without Redis, or while it is down,
// only this process's events count. The keys of one call must contain the same part in braces, so
// that a Redis cluster stores them together.
func (w *Windows) Count(ctx context.Context, n int, keys ...string) []int {
	sums := w.local(n, keys)
	if w.shared == nil || !w.shared.usable() {
		return sums
	}
	named := make([]string, len(keys))
	for i, key := range keys {
		named[i] = "guildhall:window:" + key
	}
	if all, err := w.shared.run(ctx, countScript, len(keys), named, n, (w.window / slots).Milliseconds(), slots+1); err == nil {
		for i := range sums {
			// After Redis was emptied, this process may know more than Redis.
			sums[i] = max(sums[i], int(all[i]))
		}
	}
	return sums
}

// local is Count for this process alone.
func (w *Windows) local(n int, keys []string) []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	slot := int64(w.now() / (w.window / slots))
	sums := make([]int, len(keys))
	for i, key := range keys {
		c := w.counts[key]
		if c == nil && n > 0 {
			w.tidy(slot)
			c = &counts{}
			w.counts[key] = c
		}
		if c == nil {
			continue
		}
		if at := &c[slot%(slots+1)]; n > 0 {
			if at.slot != slot {
				at.slot, at.n = slot, 0
			}
			at.n += n
		}
		sums[i] = c.sum(slot)
	}
	return sums
}

func (c *counts) sum(slot int64) int {
	sum := 0
	for _, at := range c {
		if at.slot > slot-slots-1 {
			sum += at.n
		}
	}
	return sum
}

// tidy drops keys whose counts are all zero, once there are many keys.
func (w *Windows) tidy(slot int64) {
	if len(w.counts) < w.large {
		return
	}
	for key, c := range w.counts {
		if c.sum(slot) == 0 {
			delete(w.counts, key)
		}
	}
	w.large = max(1024, 2*len(w.counts))
}
