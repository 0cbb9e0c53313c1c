package chat

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/disgoorg/disgo/rest"
)

const (
	perSecond     = 45 // the platform allows a bot 50
	invalidWindow = 10 * time.Minute
	// The platform bans an address at 10,000 refused calls in that time. Those
	// that nobody waits for stop first.
	invalidBackground = 5000
	invalidAll        = 8000
)

var (
	errSpent       = errors.New("too many refused calls in the last ten minutes")
	errInterrupted = errors.New("interrupted while waiting for the rate limit")
)

// limits keeps the library's rate limiting by route and channel and mends what
// it lacks: it paces all calls together, pauses everything after a global 429,
// counts refusals, and reads headers that the library would stumble over.
type limits struct {
	rest.RateLimiter

	mu      sync.Mutex
	next    time.Time // when the next call may leave
	paused  time.Time // global limit
	window  time.Time // start of the window that refusals are counted in
	invalid int
}

func newLimits(inner rest.RateLimiter) *limits { return &limits{RateLimiter: inner} }

// MaxRetries leaves repeating a limited call to Discord.do, which knows the
// budget.
func (l *limits) MaxRetries() int { return 1 }

// Reset is called once, before the first use.
func (l *limits) Reset() { l.RateLimiter.Reset() }

// WaitBucket waits for the route's turn and then for the bot's.
func (l *limits) WaitBucket(ctx context.Context, at *rest.CompiledEndpoint) error {
	err := l.RateLimiter.WaitBucket(ctx, at)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			// The library says so only when the limit outlasts the deadline,
			// and then keeps the route locked. (An interrupted wait ends with
			// the error of patient.)
			_ = l.RateLimiter.UnlockBucket(at, nil)
		}
		return err
	}
	if err := l.turn(ctx); err != nil {
		_ = l.RateLimiter.UnlockBucket(at, nil)
		return err
	}
	return nil
}

// turn waits until the bot as a whole may make a call.
func (l *limits) turn(ctx context.Context) error {
	for {
		l.mu.Lock()
		now := time.Now()
		at := now
		if l.next.After(at) {
			at = l.next
		}
		if l.paused.After(at) {
			at = l.paused
		}
		if until, ok := ctx.Deadline(); ok && at.After(until) {
			l.mu.Unlock()
			return errInterrupted
		}
		l.next = at.Add(time.Second / perSecond)
		l.mu.Unlock()
		if !at.After(now) {
			return nil
		}
		select {
		case <-time.After(at.Sub(now)):
		case <-ctx.Done():
			return errInterrupted
		}
		l.mu.Lock()
		again := l.paused.After(time.Now())
		l.mu.Unlock()
		if !again {
			return nil
		}
	}
}

// UnlockBucket lets the next call of the route go and tells the library what
// the answer said about limits.
func (l *limits) UnlockBucket(at *rest.CompiledEndpoint, rs *http.Response) error {
	if rs == nil {
		return l.RateLimiter.UnlockBucket(at, nil)
	}
	l.count(rs)
	header := rs.Header.Clone()
	if rs.StatusCode == http.StatusTooManyRequests {
		wait := retryAfter(rs.Header)
		if header.Get("X-RateLimit-Global") != "" || !strings.HasPrefix(header.Get("Content-Type"), "application/json") {
			// The limit is the bot's, or the answer comes from the platform's
			// edge: everything waits. The library's own field for this is not
			// safe across goroutines.
			l.pause(wait)
			return l.RateLimiter.UnlockBucket(at, nil)
		}
		// The route's limit. The library overlooks it without a bucket and
		// takes it for a global one without Via.
		if header.Get("X-RateLimit-Bucket") == "" {
			header.Set("X-RateLimit-Bucket", "unnamed")
		}
		header.Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		header.Set("Via", "1.1")
	}
	if err := l.RateLimiter.UnlockBucket(at, &http.Response{StatusCode: rs.StatusCode, Header: header}); err != nil {
		// Headers that cannot be read do not undo the answer.
		return nil //nolint:nilerr // see above
	}
	return nil
}

// pause keeps all calls back for d.
func (l *limits) pause(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if until := time.Now().Add(d); until.After(l.paused) {
		l.paused = until
	}
}

// count keeps the number of answers that bring a ban nearer.
func (l *limits) count(rs *http.Response) {
	switch {
	case rs.StatusCode == http.StatusUnauthorized, rs.StatusCode == http.StatusForbidden:
	case rs.StatusCode == http.StatusTooManyRequests && rs.Header.Get("X-RateLimit-Scope") != "shared":
	default:
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.window) > invalidWindow {
		l.window, l.invalid = now, 0
	}
	l.invalid++
}

// spent reports whether another refusal would be one too many.
func (l *limits) spent(background bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	budget := invalidAll
	if background {
		budget = invalidBackground
	}
	return l.invalid >= budget && time.Since(l.window) <= invalidWindow
}

// patient is a context to wait under. Its error is told apart from the
// library's own context.DeadlineExceeded.
type patient struct {
	context.Context
	until time.Time
}

func (p patient) Deadline() (time.Time, bool) { return p.until, true }

func (p patient) Err() error {
	if p.Context.Err() != nil {
		return errInterrupted
	}
	return nil
}
