package logging

import (
	"sync"
	"time"
)

// Interval is how often a repeating problem is logged.
const Interval = 10 * time.Second

// Sometimes limits how often a repeating problem is logged. Its mutex guards all other fields.
type Sometimes struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// Due reports whether thing may be logged again, and if so counts it as logged at now.
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
