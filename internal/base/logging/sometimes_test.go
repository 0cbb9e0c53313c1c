package logging

import (
	"strconv"
	"testing"
	"time"
)

// A thing is due once per interval, and when there are many things, old ones are forgotten.
func TestTheLogHearsOfAThingNowAndThen(t *testing.T) {
	t.Parallel()
	var s Sometimes
	now := time.Now()
	for i, c := range []struct {
		thing string
		after time.Duration
		due   bool
	}{
		{"a", 0, true}, {"b", 1, true}, {"a", time.Second - 1, false}, {"a", time.Second, true},
	} {
		if got := s.Due(c.thing, now.Add(c.after), time.Second); got != c.due {
			t.Errorf("%d: of %s after %v: %t", i, c.thing, c.after, got)
		}
	}
	for i := range 3000 {
		s.Due(strconv.Itoa(i), now, time.Second)
	}
	if n := len(s.last); n > 1001 {
		t.Errorf("%d things are remembered", n)
	}
}
