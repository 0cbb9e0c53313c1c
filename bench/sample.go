package main

import (
	"slices"
	"time"
)

// sample is what one or several measurements of the same thing found.
type sample struct {
	took      time.Duration
	latencies []time.Duration
	sorted    bool
}

func (s *sample) n() int { return len(s.latencies) }

// rate is in requests a second.
func (s *sample) rate() float64 {
	if s.took == 0 {
		return 0
	}
	return float64(len(s.latencies)) / s.took.Seconds()
}

// at is a quantile in milliseconds.
func (s *sample) at(q float64) float64 {
	if len(s.latencies) == 0 {
		return 0
	}
	if !s.sorted {
		slices.Sort(s.latencies)
		s.sorted = true
	}
	i := min(int(q*float64(len(s.latencies))), len(s.latencies)-1)
	return float64(s.latencies[i].Microseconds()) / 1000
}
