// Package ratelimit decides whether a caller may make another call. Buckets are stored in Redis or
// Valkey if configured, so that several nodes share them, and otherwise in this process. The
// package knows nothing of tokens, addresses or HTTP. It never fails: without Redis each process
// counts for itself.
package ratelimit

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Quota is the size of a bucket and the time in which an empty bucket fills. The zero Quota allows
// everything.
type Quota struct {
	Limit  int
	Window time.Duration
}

// Off reports whether the quota limits nothing.
func (q Quota) Off() bool { return q.Limit <= 0 }

// String returns the quota in the form that ParseQuota reads.
func (q Quota) String() string {
	if q.Off() {
		return "off"
	}
	window := q.Window.String()
	if strings.HasSuffix(window, "m0s") {
		window = window[:len(window)-2]
	}
	if strings.HasSuffix(window, "h0m") {
		window = window[:len(window)-2]
	}
	return strconv.Itoa(q.Limit) + "/" + window
}

// ParseQuota parses a number of calls and their time, as in 600/1m, or the word off.
func ParseQuota(s string) (Quota, error) {
	s = strings.TrimSpace(s)
	if s == "off" {
		return Quota{}, nil
	}
	bad := func(why string) (Quota, error) {
		return Quota{}, fmt.Errorf("%q is not a rate limit: %s; write a number of calls and a time, as in 600/1m, or off", s, why)
	}
	number, window, found := strings.Cut(s, "/")
	if !found {
		return bad("there is no /")
	}
	limit, err := strconv.ParseUint(number, 10, 31)
	if err != nil || limit == 0 {
		return bad("the number of calls must be from 1 to 2147483647")
	}
	d, err := time.ParseDuration(window)
	if err != nil {
		return bad("the time needs a unit: ms, s, m or h")
	}
	if d < time.Millisecond || d > 366*24*time.Hour {
		return bad("the time must be from 1ms to 8784h")
	}
	if time.Duration(limit) > d {
		return bad("that is more than one call a nanosecond")
	}
	return Quota{Limit: int(limit), Window: d}, nil
}

// interval is the time in which a bucket regains one call.
func (q Quota) interval() time.Duration { return q.Window / time.Duration(q.Limit) }

// Result is the decision about one call, with the state of its bucket. With a quota that is off,
// Allowed is true and the other fields are zero.
type Result struct {
	Allowed    bool
	Limit      int           // the quota's limit; zero if the quota is off
	Remaining  int           // further calls that would be allowed now
	Reset      time.Duration // time until the bucket is full
	RetryAfter time.Duration // time until the next call is allowed; zero if this call was allowed
}

// ResetAt returns, as Unix time, the first whole second at which the bucket is full if nothing more
// is spent.
func (r Result) ResetAt(now time.Time) int64 {
	return int64(math.Ceil(float64(now.Add(r.Reset).UnixMilli()) / 1000))
}
