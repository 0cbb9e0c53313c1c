// Package gcpercent sets how much garbage may pile up between two collections.
package gcpercent

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// How much garbage may pile up between two collections. A server at rest holds a
// few megabytes, for which Go's own 100 % would mean twenty collections a second
// under load. Until the heap has its ordinary size, garbage may fill it. A server with
// thousands of connections holds more than that, and much garbage beside it would be
// memory that nobody needs.
const (
	mostGarbage  = 400      // percent of what is in use
	leastGarbage = 15       // percent
	ordinaryHeap = 40 << 20 // bytes, in use and garbage
	leastRoom    = 16 << 20 // bytes of garbage
)

// Tune sets the percentage after each collection to what suits it.
func Tune() {
	last := mostGarbage
	debug.SetGCPercent(last)
	var after func(*cycle)
	after = func(*cycle) {
		if want := percentage(liveBytes()); want*10 < last*9 || want*9 > last*10 {
			debug.SetGCPercent(want)
			last = want
		}
		runtime.SetFinalizer(new(cycle), after)
	}
	runtime.SetFinalizer(new(cycle), after)
}

// percentage is the percentage for what is in use.
func percentage(inUse uint64) int {
	room := max(leastRoom, ordinaryHeap-int(inUse))
	return min(mostGarbage, max(leastGarbage, 100*room/max(int(inUse), 1)))
}

// cycle is an object that nobody holds, so that its finalizer runs after each
// collection. It is large enough not to share its memory with others.
type cycle struct{ _ [64]byte }

// liveBytes is what a collection has to look at, to which the percentage applies.
func liveBytes() (bytes uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	for _, s := range samples {
		if s.Value.Kind() == metrics.KindUint64 {
			bytes += s.Value.Uint64()
		}
	}
	return bytes
}
