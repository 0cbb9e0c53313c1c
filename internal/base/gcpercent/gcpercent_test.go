package gcpercent

import (
	"runtime"
	"runtime/metrics"
	"testing"

	"guildhall/internal/base/testutil"
)

func TestPercentageBoundsGarbageInBytes(t *testing.T) {
	t.Parallel()
	for live, want := range map[int]int{
		0: 400, 8: 400, 16: 150, 32: 50, 48: 33, 64: 25, 80: 20, 1024: 15,
	} {
		if got := percentage(live << 20); got != want {
			t.Errorf("%d MB of live memory: %d %%, want %d", live, got, want)
		}
	}
}

// The percentage follows the live memory from one collection to the next, down and up.
func TestTuneFollowsTheHeap(t *testing.T) {
	t.Parallel()
	Tune()
	large := make([]byte, 64<<20)
	awaitPercent(t, func(percent uint64) bool { return percent <= 25 })
	runtime.KeepAlive(large)
	awaitPercent(t, func(percent uint64) bool { return percent == 400 })
}

// awaitPercent collects garbage until the percentage is as expected.
func awaitPercent(t *testing.T, expected func(percent uint64) bool) {
	t.Helper()
	percent := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	testutil.Eventually(t, "GOGC fits the live memory", func() bool {
		runtime.GC()
		metrics.Read(percent)
		return expected(percent[0].Value.Uint64())
	})
}
