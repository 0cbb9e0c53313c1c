package transfer

import "hash/maphash"

// Stood remembers the things that the lines of a file have named so far, as hashes: about 15 MB for
// a million.
type Stood struct {
	seed   maphash.Seed
	things map[uint64]struct{}
}

// NewStood returns an empty Stood.
func NewStood() *Stood {
	return &Stood{seed: maphash.MakeSeed(), things: make(map[uint64]struct{})}
}

// Already reports whether the file has named the thing before, and remembers it. A nil Stood
// always returns false.
func (s *Stood) Already(thing Ref) bool {
	if s == nil {
		return false
	}
	before, key := len(s.things), maphash.Comparable(s.seed, thing)
	s.things[key] = struct{}{}
	return len(s.things) == before
}
