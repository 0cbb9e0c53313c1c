package transfer

import "hash/maphash"

// Stood is what stood in the lines of a file so far, by a hash of each thing: some 15 MB
// for a million.
type Stood struct {
	seed   maphash.Seed
	things map[uint64]struct{}
}

// NewStood knows of nothing yet.
func NewStood() *Stood {
	return &Stood{seed: maphash.MakeSeed(), things: make(map[uint64]struct{})}
}

// Already reports whether a thing stood there before, and notes it. Outside of a file s is nil.
func (s *Stood) Already(thing Ref) bool {
	if s == nil {
		return false
	}
	before, key := len(s.things), maphash.Comparable(s.seed, thing)
	s.things[key] = struct{}{}
	return len(s.things) == before
}
