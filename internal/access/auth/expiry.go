package auth

import (
	"strconv"
	"time"

	"guildhall/internal/base/fault"
)

// longest is the longest expiry a token can have; for longer, a token without expiry serves.
const longest = 100 * 365 * 24 * time.Hour

// ParseExpiresIn parses a whole number and a unit: s, m, h or d, as in 90d.
func ParseExpiresIn(s string) (time.Duration, error) {
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
	if s != "" {
		unit, known := units[s[len(s)-1]]
		n, err := strconv.ParseUint(s[:len(s)-1], 10, 63)
		if known && err == nil && n > 0 && n <= uint64(longest/unit) {
			return time.Duration(n) * unit, nil
		}
	}
	return 0, fault.New(fault.Invalid, "invalid_request", "%q is not a time to expiry: write a whole number and a unit, s, m, h or d, as in 90d, and at most 36500d.", s)
}
