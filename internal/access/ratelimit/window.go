package ratelimit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// slots is how many parts a window is counted in. One more is kept, so that
// nothing leaves the count before its time.
const slots = 20

// countScript adds to the counts of its keys and returns them, on the store's
// own clock. ARGV: 1 how much to add, 2 the length of a slot (ms), 3 the slots
// that count.
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

// Windows counts what has happened within the last window, by key, over all
// nodes where Redis is configured. It is safe for concurrent use.
type Windows struct {
	window time.Duration
	shared *shared // nil without Redis
	now    func() time.Duration

	mu     sync.Mutex // guards what follows
	counts map[string]*counts
	large  int // how many keys there may be before the empty ones are looked for
}

// counts are the numbers of one key by slot.
type counts [slots + 1]struct {
	slot int64
	n    int
}

// NewWindows returns counters over the given window. Of cfg it takes RedisURL,
// Budget, Log and Traced.
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

// Close gives up the connections to Redis.
func (w *Windows) Close() error {
	if w.shared == nil {
		return nil
	}
	return w.shared.client.Close()
}

// Count adds n to the count of each key and returns how high each is. While
// Redis is away, and without it, only this process counts. The keys of one call
// hold the same part in braces, which keeps them together in a cluster.
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
			// A store that was emptied knows less than this process.
			sums[i] = max(sums[i], int(all[i]))
		}
	}
	return sums
}

// local is Count in this process alone.
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

// tidy drops the keys that count nothing any more, once there are many.
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
