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

// spendScript makes the whole decision in one round trip by Redis' own clock, so the number of
// nodes and their clocks do not matter.
//
// KEYS[1] holds the instant (µs) at which the bucket is full. ARGV: 1 the time in which the bucket
// regains one call (µs), 2 the size of the bucket, 3 the calls to spend (0 or 1), 4 the time until
// the bucket is full as the calling node last saw it (µs), 5 the possible error of that time (µs).
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
	// failureThreshold is the number of failures in a row after which Redis counts as down.
	failureThreshold = 3
	// retryInterval is how long no call is made while Redis counts as down; then one call tests it.
	retryInterval = 500 * time.Millisecond
)

// client is the part of redis.Client that the limits use. It is an interface because redis.Client
// has generic fields, whose methods the compiler compiles again for each package that uses the
// limits.
type client interface {
	redis.Scripter
	AddHook(hook redis.Hook)
	Close() error
}

// shared holds buckets in Redis or Valkey, with a circuit breaker.
type shared struct {
	client  client
	budget  time.Duration
	slack   string
	started time.Time
	log     *slog.Logger

	// The fields below are shared by all requests.
	failures atomic.Int32 // in a row
	retryAt  atomic.Int64 // when the next call may test Redis, in nanoseconds since started; 0 while Redis works
}

// CheckURL returns an error if the text is not a usable Redis URL. It does not connect.
func CheckURL(url string) error {
	_, err := parseURL(url)
	return err
}

func parseURL(url string) (*redis.Options, error) {
	opt, err := redis.ParseURL(url)
	if err != nil {
		// The parse error would repeat the URL, which may contain a password.
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
	// Connections are opened in the background: a call waits for at most its budget, and a later
	// call finds the connection open.
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
		// The travel times of two calls differ by less than a budget; otherwise one of the calls
		// would have timed out.
		slack:   strconv.FormatInt((2 * budget).Microseconds(), 10),
		started: time.Now(),
		log:     log,
	}, nil
}

// quiet stops the client from logging to standard error; its errors are returned anyway.
var quiet = sync.OnceFunc(func() { redis.SetLogger(mute{}) })

type mute struct{}

func (mute) Printf(context.Context, string, ...any) {}

// broken reports whether Redis counts as down.
func (s *shared) broken() bool { return s.retryAt.Load() != 0 }

// usable reports whether this call should use Redis. While Redis counts as down, that is one call
// in each retryInterval.
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

// run runs a script that returns a given number of integers, and updates the circuit breaker.
func (s *shared) run(ctx context.Context, script *redis.Script, values int, keys []string, args ...any) ([]int64, error) {
	// A caller that hangs up is no failure of Redis.
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
