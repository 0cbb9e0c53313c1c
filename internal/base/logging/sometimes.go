package logging

import (
	"sync"
	"time"
)

// Interval is how often the log hears of the same trouble.
const Interval = 10 * time.Second

// Sometimes lets the log hear of a thing now and then. All of it is guarded by mu.
type Sometimes struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// Due reports whether it is time to speak of the thing again.
func (s *Sometimes) Due(thing string, now time.Time, interval time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.last[thing]) < interval {
		return false
	}
	if s.last == nil || len(s.last) > 1000 {
		s.last = make(map[string]time.Time)
	}
	s.last[thing] = now
	return true
}
