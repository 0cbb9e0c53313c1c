//go:build slow

package api

import (
	"testing"
	"time"
)

// RELIABILITY.md, Input.
func TestTheWorstRequestIsValidatedWithinFiftyMilliseconds(t *testing.T) { //nolint:paralleltest // it measures CPU time
	for name, request := range worstRequests(t) {
		least := time.Minute
		for range 5 { // other programs empty the CPU's caches
			rs := request()
			least = min(least, cpuTime(func() { _ = validated(rs) }))
		}
		if least > 50*time.Millisecond {
			t.Errorf("%s: validating took %v of CPU", name, least)
		}
	}
}
