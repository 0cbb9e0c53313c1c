package giveaways

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
)

// entrant is a user in the pot with the number of entries that count for the user.
type entrant struct {
	UserID  string `db:"user_id"`
	Entries int64  `db:"entries"`
}

var errPot = errors.New("the entries of a giveaway must each be at least 1 and sum to at most 9223372036854775807")

// pick draws up to n distinct winners from pot, in the order in which they are
// drawn, and never anyone who is in out. It is exact arithmetic on integers and
// depends on nothing but its arguments, so everyone who has the record of a
// draw can repeat it:
//
//  1. The pot is every entrant who is not in out, sorted by user id, byte by
//     byte as text. W is the sum of their entries.
//  2. Random numbers come from the 32 bytes of seed. The i-th, i = 0, 1, 2, …,
//     is the first 8 bytes, as a big-endian unsigned number, of HMAC-SHA256
//     with seed as the key and i as the message, written as 8 bytes, big-endian.
//  3. To draw one winner, take the next random number x. If
//     x >= 2^64 - (2^64 mod W), discard it and take the next, so that no
//     remainder is likelier than another. Then r = x mod W.
//  4. The winner is the first of the pot for whom the entries of all up to and
//     including them sum to more than r.
//  5. The winner leaves the pot, W falls by their entries, and the drawing goes
//     on with 3, with the random numbers counted on, until n are drawn or the
//     pot is empty.
//
// It sorts pot in place. The time grows with the number of entrants, the memory
// too; neither grows with the number of entries.
func pick(seed []byte, pot []entrant, out map[string]bool, n int) ([]string, error) {
	sortPot(pot)
	in := make([]entrant, 0, len(pot))
	for _, e := range pot {
		if !out[e.UserID] {
			in = append(in, e)
		}
	}
	t, err := newTree(in)
	if err != nil {
		return nil, err
	}
	s := stream{seed: seed}
	winners := make([]string, 0, min(n, len(in)))
	for len(winners) < n && t.total > 0 {
		i := t.find(s.below(t.total))
		winners = append(winners, in[i].UserID)
		t.remove(i, uint64(in[i].Entries))
	}
	return winners, nil
}

// weight returns the sum of the entries of all entrants in pot who are not in out: the W that pick
// begins with.
func weight(pot []entrant, out map[string]bool) int64 {
	var sum int64
	for _, e := range pot {
		if !out[e.UserID] {
			sum += e.Entries
		}
	}
	return sum
}

func sortPot(pot []entrant) {
	slices.SortFunc(pot, func(a, b entrant) int { return cmp.Compare(a.UserID, b.UserID) })
}

// potHash returns the fingerprint of a pot: the SHA-256 of one line for each entrant, "<user id>
// <entries>\n", sorted by user id as in pick. Whoever has kept the entries can prove with it that
// they are the ones of the draw.
func potHash(pot []entrant) []byte {
	sortPot(pot)
	h := sha256.New()
	var line []byte
	for _, e := range pot {
		line = append(line[:0], e.UserID...)
		line = append(line, ' ')
		line = strconv.AppendInt(line, e.Entries, 10)
		line = append(line, '\n')
		h.Write(line)
	}
	return h.Sum(nil)
}

// stream is the sequence of random numbers that a seed gives.
type stream struct {
	seed []byte
	next uint64
}

// below returns a number in [0, w), each with equal probability. w must not be 0.
func (s *stream) below(w uint64) uint64 {
	// 2^64 mod w, computed without 2^64: the wrapped negation is 2^64 - w.
	excess := -w % w
	for {
		if x := s.number(); x <= math.MaxUint64-excess {
			return x % w
		}
	}
}

func (s *stream) number() uint64 {
	var i [8]byte
	binary.BigEndian.PutUint64(i[:], s.next)
	s.next++
	mac := hmac.New(sha256.New, s.seed)
	mac.Write(i[:])
	return binary.BigEndian.Uint64(mac.Sum(nil))
}

// tree is a Fenwick tree over the entries of a pot: node i, counted from 1, holds the sum of the
// i&-i weights that end at i. Finding by prefix sum and removing take time logarithmic in the
// number of entrants.
type tree struct {
	node  []uint64
	total uint64
}

func newTree(pot []entrant) (*tree, error) {
	t := &tree{node: make([]uint64, len(pot)+1)}
	for i, e := range pot {
		if e.Entries < 1 || uint64(e.Entries) > math.MaxInt64-t.total {
			return nil, fmt.Errorf("user %s has %d entries: %w", e.UserID, e.Entries, errPot)
		}
		t.total += uint64(e.Entries)
		k := i + 1
		t.node[k] += uint64(e.Entries)
		if up := k + k&-k; up < len(t.node) {
			t.node[up] += t.node[k]
		}
	}
	return t, nil
}

// find returns the first index whose prefix sum, including its own weight, exceeds r. r must be
// below the total.
func (t *tree) find(r uint64) int {
	at := 0
	for step := 1 << (bits.Len(uint(len(t.node))) - 1); step > 0; step >>= 1 {
		if k := at + step; k < len(t.node) && t.node[k] <= r {
			at, r = k, r-t.node[k]
		}
	}
	return at
}

// remove removes w, the whole weight of index i, from the tree.
func (t *tree) remove(i int, w uint64) {
	t.total -= w
	for k := i + 1; k < len(t.node); k += k & -k {
		t.node[k] -= w
	}
}

// replaceable returns how many winners a reroll of count replaces: at most the present winners or,
// if the giveaway ended without winners, at most its number of winners.
func replaceable(count, winners, winnerCount int) int {
	if winners == 0 {
		return min(count, winnerCount)
	}
	return min(count, winners)
}

// maxRounds is how many draws a giveaway has at most.
const maxRounds = 1000

// replace returns winners with drawn at the given positions, or at the first ones if places is
// nil, and the winners who were there. Winners for whom there is no position come last.
func replace(winners []string, places []int, drawn []string) (now, replaced []string) {
	now, replaced = slices.Clone(winners), []string{}
	for i, user := range drawn {
		at := i
		if places != nil {
			at = places[i]
		}
		if at >= len(now) {
			now = append(now, user)
			continue
		}
		replaced = append(replaced, now[at])
		now[at] = user
	}
	return now, replaced
}

// placesOf returns the positions of users among winners in ascending order, or the first user
// who is no winner.
func placesOf(winners, users []string) (places []int, stranger string) {
	for _, user := range users {
		at := slices.Index(winners, user)
		if at < 0 {
			return nil, user
		}
		places = append(places, at)
	}
	slices.Sort(places)
	return places, ""
}
