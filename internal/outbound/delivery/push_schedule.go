package delivery

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Schedule is the list of pauses between the attempts of one delivery. The number of attempts is
// the number of pauses plus one.
type Schedule []time.Duration

// DefaultSchedule returns 13 attempts over 71.7 hours: close together at the start, for receivers
// that restart, and long enough for a receiver that is down over a weekend.
func DefaultSchedule() Schedule {
	return Schedule{
		5 * time.Second, 30 * time.Second,
		2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 12 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

// ParseSchedule parses a setting such as "1s,5s,1m". An empty setting means DefaultSchedule.
func ParseSchedule(s string) (Schedule, error) {
	if strings.TrimSpace(s) == "" {
		return DefaultSchedule(), nil
	}
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' })
	out := make(Schedule, 0, len(parts))
	for _, part := range parts {
		d, err := time.ParseDuration(part)
		if err != nil || d <= 0 || d > maxPause {
			return nil, fmt.Errorf("webhook retries: %q is not a pause between 1ms and %s", part, maxPause)
		}
		out = append(out, d)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("webhook retries: %q names no pause: leave it out for the contract's", s)
	}
	if len(out) > 100 {
		return nil, fmt.Errorf("webhook retries: %d pauses, at most 100 make sense", len(out))
	}
	return out, nil
}

const (
	// maxPause bounds the pause that a receiver's Retry-After or a setting can ask for.
	maxPause = 24 * time.Hour

	// jitterSpread is the largest change of a pause by jitter, up or down.
	jitterSpread = 0.2
)

// next returns the pause after the given failed attempt, the first being 1, changed by jitter in
// [0, 1). After the last attempt there is no pause.
func (s Schedule) next(attempt int, jitter float64) (time.Duration, bool) {
	if attempt < 1 || attempt > len(s) {
		return 0, false
	}
	return time.Duration(float64(s[attempt-1]) * (1 - jitterSpread + 2*jitterSpread*jitter)), true
}

// retryAfter parses a Retry-After header, seconds or a date, and returns the pause from now, at
// most maxPause. For a past instant, zero, or any other text, there is no pause.
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	value = strings.TrimSpace(value)
	if value == "" {
		return 0, false
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(maxPause/time.Second) {
			return maxPause, true // a number too large for an int64 is still a number
		}
		return time.Duration(seconds) * time.Second, seconds > 0
	}
	at, err := http.ParseTime(value)
	if err != nil || !at.After(now) {
		return 0, false
	}
	return min(at.Sub(now), maxPause), true
}
