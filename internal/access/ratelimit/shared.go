package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"guildhall/internal/base/fault"
)

// spendScript is the whole decision in one round trip, on the store's own
// clock, so neither the number of nodes nor their clocks change it.
//
// KEYS[1] holds the instant (µs) at which the bucket is full. ARGV: 1 the time
// in which one call comes back (µs), 2 the size of the bucket, 3 the calls to
// spend (0 or 1), 4 the time until the bucket is full as the asking node last
// knew it (µs), 5 the error of that (µs).
var spendScript = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local interval, cost = tonumber(ARGV[1]), tonumber(ARGV[3])
local window = interval * ARGV[2]
local stored = tonumber(redis.call('GET', KEYS[1]) or now)
local full = math.max(stored, now)
local known = now + ARGV[4]
if known > full + ARGV[5] then full = known end
if full > now + window then full = now + window end
local wait = full + interval - window - now
local allowed = 0
if wait <= 0 then
  allowed = 1
  wait = 0
  full = full + interval * cost
end
if full > now and full ~= stored then
  redis.call('SET', KEYS[1], string.format('%.0f', full), 'PX', math.ceil((full - now) / 1000))
end
return {allowed, math.floor((now + window - full) / interval + 0.000001), math.ceil(full - now), math.ceil(wait)}
`)

const (
	keyPrefix = "guildhall:rate:"
	// failureThreshold is how many calls in a row fail before Redis is left alone.
	failureThreshold = 3
	// retryInterval is how long it is left alone; then one call tries it.
	retryInterval = 500 * time.Millisecond
)

// shared holds buckets in Redis or Valkey, and knows whether that is worth
// asking.
type shared struct {
	client  *redis.Client
	budget  time.Duration
	slack   string
	started time.Time
	log     *slog.Logger

	// Of all requests.
	failures atomic.Int32 // in a row
	retryAt  atomic.Int64 // nanoseconds since started; 0 while Redis answers
}

// CheckURL returns why no Redis could be found by a URL, and connects to none.
func CheckURL(url string) error {
	_, err := parseURL(url)
	return err
}

func parseURL(url string) (*redis.Options, error) {
	opt, err := redis.ParseURL(url)
	if err != nil {
		// The parse error would repeat the URL, which may hold a password.
		return nil, errors.New("the Redis URL must have the form redis://host:port[/number], rediss://… or unix://…, with user:password@ before the host")
	}
	return opt, nil
}

func newShared(url string, budget time.Duration, log *slog.Logger) (*shared, error) {
	quiet()
	opt, err := parseURL(url)
	if err != nil {
		return nil, fault.Wrap(err, "ratelimit")
	}
	opt.ContextTimeoutEnabled = true
	opt.MaxRetries = -1
	// A connection is made in the background: the call that wanted it waits no
	// longer than its budget, a later one finds it ready.
	opt.DialTimeout = max(time.Second, budget)
	opt.DialerRetries = 1
	opt.PoolTimeout = budget
	opt.ReadTimeout = budget
	opt.WriteTimeout = budget
	opt.DisableIdentity = true
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &shared{
		client: redis.NewClient(opt),
		budget: budget,
		// Two calls' travelling times differ by less than a budget, else one
		// of them had failed.
		slack:   strconv.FormatInt((2 * budget).Microseconds(), 10),
		started: time.Now(),
		log:     log,
	}, nil
}

// quiet keeps the client from writing to standard error by itself: what it has
// to say comes back as errors.
var quiet = sync.OnceFunc(func() { redis.SetLogger(mute{}) })

type mute struct{}

func (mute) Printf(context.Context, string, ...any) {}

// broken reports whether Redis failed often enough to be left alone.
func (s *shared) broken() bool { return s.retryAt.Load() != 0 }

// usable reports whether this call should ask Redis. After a failure that is
// one call in each pause.
func (s *shared) usable() bool {
	at := s.retryAt.Load()
	if at == 0 {
		return true
	}
	now := int64(time.Since(s.started))
	return now >= at && s.retryAt.CompareAndSwap(at, now+int64(retryInterval))
}

func (s *shared) spend(ctx context.Context, key string, q Quota, cost int, untilFull time.Duration) (Result, error) {
	interval := float64(q.Window) / float64(q.Limit) / float64(time.Microsecond)
	v, err := s.run(ctx, spendScript, 4, []string{keyPrefix + key},
		strconv.FormatFloat(interval, 'f', -1, 64), q.Limit, cost, untilFull.Microseconds(), s.slack)
	if err != nil {
		return Result{}, err
	}
	return Result{
		Allowed:    v[0] == 1,
		Limit:      q.Limit,
		Remaining:  int(min(max(v[1], 0), math.MaxInt32)),
		Reset:      time.Duration(v[2]) * time.Microsecond,
		RetryAfter: time.Duration(v[3]) * time.Microsecond,
	}, nil
}

// run has the store run a script that returns a given number of integers, and
// notices when the store goes and comes back.
func (s *shared) run(ctx context.Context, script *redis.Script, values int, keys []string, args ...any) ([]int64, error) {
	// A client that hangs up is no failure of Redis.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.budget)
	defer cancel()
	v, err := script.Run(ctx, s.client, keys, args...).Int64Slice()
	if err == nil && len(v) != values {
		err = fmt.Errorf("ratelimit: the script returned %d values", len(v))
	}
	if err != nil {
		if s.failures.Add(1) >= failureThreshold && s.retryAt.Swap(int64(time.Since(s.started)+retryInterval)) == 0 {
			s.log.WarnContext(ctx, "rate limits are counted by this node alone: Redis does not answer", "error", err)
		}
		return nil, err
	}
	if s.failures.Load() != 0 {
		s.failures.Store(0)
		if s.retryAt.Swap(0) != 0 {
			s.log.InfoContext(ctx, "rate limits are shared with the other nodes again")
		}
	}
	return v, nil
}
