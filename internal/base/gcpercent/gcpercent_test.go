package gcpercent

import "testing"

func TestGarbageIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	for inUse, want := range map[uint64]int{
		0: 400, 8 << 20: 400, 16 << 20: 150, 32 << 20: 50, 48 << 20: 33, 64 << 20: 25, 80 << 20: 20, 1 << 30: 15,
	} {
		if got := percentage(inUse); got != want {
			t.Errorf("%d MB in use: %d %%, want %d", inUse>>20, got, want)
		}
	}
	if liveBytes() < 1<<10 {
		t.Errorf("%d bytes are in use", liveBytes())
	}
}
