package api

import (
	"testing"
	"time"
)

func TestSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "1", time.Nanosecond: "1", time.Second: "1", time.Second + 1: "2",
		59*time.Second + time.Millisecond: "60",
	} {
		if got := seconds(d); got != want {
			t.Errorf("%v is %s seconds, want %s", d, got, want)
		}
	}
}
