package chat

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/disgoorg/disgo/rest"
)

// perSecond is the rate of all calls together; the platform allows a bot 50 a second.
const perSecond = 45

var errWaitTooLong = errors.New("the rate limit outlasts the time there is for the call")

// limits keeps to the platform's rate limits. The calls of one bucket go one after the other and
// wait while the bucket is empty; all calls together keep a rate and pause after a global 429. A
// bucket is a route and channel, until the platform names it in a response.
type limits struct {
	mu      sync.Mutex        // guards the fields below
	names   map[string]string // method and route → the platform's name of the route's bucket
	buckets map[string]*bucket
	large   int       // the number of buckets from which on idle ones are dropped
	next    time.Time // when the next call may be sent
	paused  time.Time // until when a global 429 stops all calls
}

// bucket is one bucket. limits.mu guards all its fields except turn.
type bucket struct {
	turn chan struct{} // contains one value while a call is being made

	// The fields below are guarded by limits.mu.
	users int       // calls that wait or are being made
	empty time.Time // until when the bucket has no call left
}

func newLimits() *limits {
	return &limits{names: map[string]string{}, buckets: map[string]*bucket{}, large: 1024}
}

// turn is the permission to make a call. The caller must end it.
type turn struct {
	limits       *limits
	route, major string
	bucket       *bucket
}

// wait waits until a call may be made: first in its bucket, then in the rate of all calls. It
// leaves a fifth of the remaining time for the call itself.
func (l *limits) wait(ctx context.Context, at *rest.CompiledEndpoint) (*turn, error) {
	if until, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until.Add(-time.Until(until)/5))
		defer cancel()
	}
	t := &turn{limits: l, route: at.Endpoint.Method + " " + at.Endpoint.Route, major: at.MajorParams}
	t.bucket = l.acquire(t.route, t.major)
	select {
	case t.bucket.turn <- struct{}{}:
	case <-ctx.Done():
		l.release(t.bucket)
		return nil, errWaitTooLong
	}
	for {
		wait, err := l.reserve(ctx, t.bucket)
		if err == nil && wait <= 0 {
			return t, nil
		}
		if err == nil {
			err = sleep(ctx, wait)
		}
		if err != nil {
			t.end()
			return nil, err
		}
	}
}

// acquire returns the bucket of a route and channel, and counts one more user of it.
func (l *limits) acquire(route, major string) *bucket {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := route
	if known := l.names[route]; known != "" {
		name = known
	}
	key := name + "+" + major
	b := l.buckets[key]
	if b == nil {
		l.tidy()
		b = &bucket{turn: make(chan struct{}, 1)}
		l.buckets[key] = b
	}
	b.users++
	return b
}

// tidy drops buckets without users and without a limit, once there are many.
func (l *limits) tidy() {
	if len(l.buckets) < l.large {
		return
	}
	now := time.Now()
	for key, b := range l.buckets {
		if b.users == 0 && b.empty.Before(now) {
			delete(l.buckets, key)
		}
	}
	l.large = max(1024, 2*len(l.buckets))
}

func (l *limits) release(b *bucket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.users--
}

// reserve takes the next slot in the rate of all calls, or returns how long to wait before asking
// again.
func (l *limits) reserve(ctx context.Context, b *bucket) (time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	at := now
	for _, hold := range []time.Time{b.empty, l.paused, l.next} {
		if hold.After(at) {
			at = hold
		}
	}
	if until, ok := ctx.Deadline(); ctx.Err() != nil || ok && at.After(until) {
		return 0, errWaitTooLong
	}
	if !at.After(now) {
		l.next = now.Add(time.Second / perSecond)
	}
	return at.Sub(now), nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errWaitTooLong
	}
}

// end lets the next call of the bucket proceed.
func (t *turn) end() {
	<-t.bucket.turn
	t.limits.release(t.bucket)
}

// learn updates the limits from a response. Headers that cannot be parsed are ignored.
func (t *turn) learn(sent *roundTrip, f *Failure) {
	if sent.status == 0 {
		return
	}
	l := t.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	now, h, b := time.Now(), sent.header, t.bucket
	if name := h.Get("X-RateLimit-Bucket"); name != "" && len(name) < 100 {
		// Later calls look up the bucket by this name, also if this call was made before the name
		// was known.
		l.names[t.route] = name
		if named := l.buckets[name+"+"+t.major]; named != nil {
			b = named
		} else {
			l.buckets[name+"+"+t.major] = b
		}
	}
	if sent.status != http.StatusTooManyRequests {
		after, err := strconv.ParseFloat(h.Get("X-RateLimit-Reset-After"), 64)
		if h.Get("X-RateLimit-Remaining") == "0" && err == nil && after > 0 && after < 1e6 {
			b.empty = now.Add(time.Duration(after * float64(time.Second)))
		}
		return
	}
	until := &b.empty
	if sent.global || h.Get("X-RateLimit-Global") != "" || !strings.HasPrefix(h.Get("Content-Type"), "application/json") {
		// The limit is the bot's as a whole, or the response comes from the platform's proxy: all
		// calls pause.
		until = &l.paused
	}
	if f != nil && now.Add(f.RetryAfter).After(*until) {
		*until = now.Add(f.RetryAfter)
	}
}

// retryAfter parses the Retry-After header of a 429, in seconds with or without a fraction.
func retryAfter(h http.Header) time.Duration {
	s, err := strconv.ParseFloat(h.Get("Retry-After"), 64)
	if err != nil || s < 0 || s > 1e6 {
		return 0
	}
	return max(time.Duration(s*float64(time.Second)), time.Millisecond)
}
