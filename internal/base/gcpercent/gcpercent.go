// Package gcpercent sets Go's GOGC after each collection, so that garbage is bounded in bytes.
//
// A constant percentage suits only one size of the heap. An idle node's live memory is 10 MB: at
// 100 % it collects twenty times a second under load. With 2,000 connections live memory is 45 MB,
// and 200 % of that is more than the rest of the program.
package gcpercent

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	maxPercent   = 400
	minPercent   = 15
	ordinaryHeap = 40 << 20 // bytes of live memory and garbage to which a small heap may grow
	minGarbage   = 16 << 20 // bytes of garbage that a larger heap may have
)

// Tune sets the percentage for the live memory of the last collection, now and after each
// collection to come.
func Tune() { tune(100) }

// tune replaces the current percentage, if the one for the live memory differs by a tenth: each
// change stops the world. It runs again after the next collection.
func tune(current int) {
	if wanted := percentage(liveBytes()); 10*wanted < 9*current || 9*wanted > 10*current {
		debug.SetGCPercent(wanted)
		current = wanted
	}
	runtime.AddCleanup(new(unreachable), tune, current)
}

// unreachable is an object that the next collection frees. It is too large to share its block of
// memory with other objects, which could keep it.
type unreachable [64]byte

// percentage returns the GOGC for a number of bytes of live memory.
func percentage(live int) int {
	garbage := max(minGarbage, ordinaryHeap-live)
	return min(maxPercent, max(minPercent, 100*garbage/max(live, 1)))
}

// liveBytes returns the number of bytes that GOGC is a percentage of: the live heap of the last
// collection, the stacks, and the global variables.
func liveBytes() (sum int) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	for _, s := range samples {
		sum += int(s.Value.Uint64())
	}
	return sum
}
