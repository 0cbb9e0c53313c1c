// Package ratelimit says whether a caller may go on. Buckets are counted in
// Redis or Valkey when there is one, so that several nodes share them, and in
// this process otherwise. It knows nothing of tokens, addresses or HTTP, and it
// never fails: without its shared store it counts for itself.
package ratelimit

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Quota is the size of a bucket and the time in which an empty one fills up
// again. The zero Quota is off: everything is allowed.
type Quota struct {
	Limit  int
	Window time.Duration
}

// Off reports whether the quota limits nothing.
func (q Quota) Off() bool { return q.Limit <= 0 }

// String is the quota as ParseQuota reads it.
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

// ParseQuota reads a number of calls and the time they are for, as in 600/1m,
// or the word off.
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

// interval is the time in which one call comes back.
func (q Quota) interval() time.Duration { return q.Window / time.Duration(q.Limit) }

// Result is the answer to one call, and what is left of its bucket. Where the
// quota is off, Allowed is true and all else is zero.
type Result struct {
	Allowed    bool
	Limit      int           // the quota's; zero where it is off
	Remaining  int           // calls that would be allowed at once
	Reset      time.Duration // until the bucket is full
	RetryAfter time.Duration // until the next call is allowed; zero when this one was
}

// ResetAt is the first whole second, as Unix time, at which the bucket is full
// if nobody spends from it after now.
func (r Result) ResetAt(now time.Time) int64 {
	return int64(math.Ceil(float64(now.Add(r.Reset).UnixMilli()) / 1000))
}
