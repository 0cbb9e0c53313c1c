package main

import "testing"

func TestGarbageIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	for inUse, want := range map[uint64]int{0: 400, 3 << 20: 400, 6 << 20: 400, 12 << 20: 200, 24 << 20: 100, 48 << 20: 50, 1 << 30: 50} {
		if got := garbage(inUse); got != want {
			t.Errorf("%d MB in use: %d %%, want %d", inUse>>20, got, want)
		}
	}
	if inUse() < 1<<10 {
		t.Errorf("%d bytes are in use", inUse())
	}
}
