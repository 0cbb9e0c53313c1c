package giveaways

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// seedOf returns a fixed seed for each n, so that tests draw the same each time.
func seedOf(n uint64) []byte {
	seed := make([]byte, 32)
	binary.BigEndian.PutUint64(seed[24:], n)
	return seed
}

func mustPick(t *testing.T, seed []byte, pot []entrant, out map[string]bool, n int) []string {
	t.Helper()
	winners, err := pick(seed, pot, out, n)
	if err != nil {
		t.Fatal(err)
	}
	return winners
}

func setOf(ids ...string) map[string]bool {
	m := map[string]bool{}
	for _, id := range ids {
		m[id] = true
	}
	return m
}

func TestPick(t *testing.T) {
	t.Parallel()
	three := []entrant{{"10", 1}, {"20", 2}, {"9", 3}}
	for _, c := range []struct {
		name string
		pot  []entrant
		out  map[string]bool
		n    int
		want []string // the winners, in any order
	}{
		{"draws nobody from an empty pot", nil, nil, 3, nil},
		{"draws nobody when nobody is asked for", three, nil, 0, nil},
		{"draws everyone when as many are asked for", three, nil, 3, []string{"10", "20", "9"}},
		{"draws everyone once when more are asked for", three, nil, 100, []string{"10", "20", "9"}},
		{"leaves out whom it is told to", three, setOf("9", "10"), 3, []string{"20"}},
		{"does not mind the exclusion of strangers", three, setOf("77", "9", "10"), 3, []string{"20"}},
		{"draws nobody when all are excluded", three, setOf("9", "10", "20"), 1, nil},
		{"finds the only entrant however many entries they have", []entrant{{"5", math.MaxInt64}}, nil, 1, []string{"5"}},
		{"adds entries up to the largest integer", []entrant{{"5", math.MaxInt64 - 1}, {"6", 1}}, nil, 2, []string{"5", "6"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := mustPick(t, seedOf(7), slices.Clone(c.pot), c.out, c.n)
			slices.Sort(got)
			if diff := cmp.Diff(c.want, got); diff != "" && len(c.want)+len(got) > 0 {
				t.Errorf("winners (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPickRefusesAPotItCannotWeigh(t *testing.T) {
	t.Parallel()
	for name, pot := range map[string][]entrant{
		"no entries":       {{"1", 1}, {"2", 0}},
		"negative entries": {{"1", 1}, {"2", -1}},
		"a sum too large":  {{"1", math.MaxInt64}, {"2", 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if winners, err := pick(seedOf(1), pot, nil, 1); !errors.Is(err, errPot) {
				t.Errorf("got winners %v, error %v; want errPot", winners, err)
			}
		})
	}
}

// TestPickIsWhatItsDocumentSays repeats random draws with the independent implementation in the
// example. RELIABILITY.md, Giveaways.
func TestPickIsWhatItsDocumentSays(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(4, 2))
	for range 500 {
		pot, entries, out := []entrant{}, map[string]int64{}, map[string]bool{}
		most := int64(1) << random.IntN(55) // from equal weights to sums near the limit
		for range random.IntN(60) {
			e := entrant{strconv.FormatUint(random.Uint64N(1<<random.IntN(64)+1)+1, 10), 1 + random.Int64N(most)}
			if _, ok := entries[e.UserID]; ok {
				continue
			}
			pot = append(pot, e)
			entries[e.UserID] = e.Entries
			if random.IntN(5) == 0 {
				out[e.UserID] = true
			}
		}
		seed := make([]byte, 32)
		for i := range seed {
			seed[i] = byte(random.Uint32())
		}
		n := random.IntN(70)
		got := mustPick(t, seed, pot, out, n)
		want := repeat(seed, entries, out, n)
		if !slices.Equal(got, want) {
			t.Fatalf("seed %x, entries %v, out %v, n %d:\n got %v\nwant %v", seed, entries, out, n, got, want)
		}
		if len(got) != min(n, len(pot)-len(out)) {
			t.Fatalf("drew %d of %d with %d excluded, asked for %d", len(got), len(pot), len(out), n)
		}
		if unique := slices.Compact(slices.Sorted(slices.Values(got))); len(unique) != len(got) {
			t.Fatalf("a winner was drawn twice: %v", got)
		}
	}
}

// These values are published: anyone who verifies draws with another program can check that program
// against them. They must never change. RELIABILITY.md, Giveaways.
func TestPickKeepsItsPublishedValues(t *testing.T) {
	t.Parallel()
	seed := bytes.Repeat([]byte{0xab}, 32)
	pot := []entrant{{"300", 5}, {"41", 1}, {"100", 10}, {"200", 4}, {"1000", 80}}
	if got, want := mustPick(t, seed, pot, nil, 5), publishedWinners; !slices.Equal(got, want) {
		t.Errorf("winners are %q, want %q", got, want)
	}
	if got := hex.EncodeToString(potHash(pot)); got != publishedHash {
		t.Errorf("the hash of the entries is %s, want %s", got, publishedHash)
	}
}

func TestPickIgnoresTheOrderOfThePot(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	pot := make([]entrant, 200)
	for i := range pot {
		pot[i] = entrant{strconv.Itoa(1000 + i), int64(1 + i%9)}
	}
	winners, hash := mustPick(t, seedOf(3), pot, nil, 50), potHash(pot)
	for range 20 {
		random.Shuffle(len(pot), func(i, j int) { pot[i], pot[j] = pot[j], pot[i] })
		if got := potHash(slices.Clone(pot)); !bytes.Equal(got, hash) {
			t.Fatalf("the hash changed with the order: %x, %x", got, hash)
		}
		if got := mustPick(t, seedOf(3), pot, nil, 50); !slices.Equal(got, winners) {
			t.Fatalf("the winners changed with the order: %v, %v", got, winners)
		}
	}
}

func TestPotHashTellsPotsApart(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for i, pot := range [][]entrant{
		nil,
		{{"1", 1}},
		{{"1", 11}},
		{{"11", 1}},
		{{"1", 1}, {"2", 1}},
		{{"1", 1}, {"21", 1}},
	} {
		h := string(potHash(pot))
		if j, ok := seen[h]; ok {
			t.Errorf("pots %d and %d have the same hash", i, j)
		}
		seen[h] = i
	}
}

// With W just above 2^63 nearly every second number is discarded. A stream that did not discard
// would favour small remainders two to one. RELIABILITY.md, Giveaways.
func TestStreamDiscardsWhatWouldSkewIt(t *testing.T) {
	t.Parallel()
	const w = 1<<63 + 1
	s, low := stream{seed: seedOf(11)}, 0
	const n = 10_000
	for range n {
		if s.below(w) < w/2 {
			low++
		}
	}
	// Binomial with p = 1/2: five standard deviations are 250.
	if low < n/2-250 || low > n/2+250 {
		t.Errorf("%d of %d numbers are in the lower half", low, n)
	}
	if s.next < n*19/10 || s.next > n*21/10 {
		t.Errorf("%d numbers took %d of the stream; about every second should be discarded", n, s.next)
	}
}

// The first winner follows the weights, and so does the second, drawn without replacement. The
// seeds are fixed, so the statistics are too; a fair draw stays below the limits with probability
// 0.999. RELIABILITY.md, Giveaways.
func TestPickFollowsTheWeights(t *testing.T) {
	t.Parallel()
	pot := []entrant{{"1", 1}, {"2", 2}, {"3", 3}, {"4", 10}, {"5", 34}}
	const draws, all = 40_000, 50
	first, pairs := map[string]int{}, map[[2]string]int{}
	for i := range uint64(draws) {
		w := mustPick(t, seedOf(i), pot, nil, 2)
		first[w[0]]++
		pairs[[2]string{w[0], w[1]}]++
	}
	var ofFirst, ofPairs float64
	for _, a := range pot {
		p := float64(a.Entries) / all
		ofFirst += chi(first[a.UserID], draws*p)
		for _, b := range pot {
			if a != b {
				q := float64(b.Entries) / float64(all-a.Entries)
				ofPairs += chi(pairs[[2]string{a.UserID, b.UserID}], draws*p*q)
			}
		}
	}
	if ofFirst > 18.47 { // 4 degrees of freedom
		t.Errorf("chi-square of the first winners is %.2f: %v", ofFirst, first)
	}
	if ofPairs > 43.82 { // 19 degrees of freedom
		t.Errorf("chi-square of the first two winners is %.2f: %v", ofPairs, pairs)
	}
}

// RELIABILITY.md, Giveaways.
func TestPickTreatsEqualsAlike(t *testing.T) {
	t.Parallel()
	pot := make([]entrant, 64)
	for i := range pot {
		pot[i] = entrant{strconv.Itoa(100 + i), 7}
	}
	const draws, n = 20_000, 10
	wins := map[string]int{}
	for i := range uint64(draws) {
		for _, w := range mustPick(t, seedOf(i<<20), pot, nil, n) {
			wins[w]++
		}
	}
	var sum float64
	for _, e := range pot {
		sum += chi(wins[e.UserID], draws*n/64.0)
	}
	// Drawing 10 of 64 without replacement scales the statistic of 63 degrees
	// of freedom by 54/63.
	if sum > 103.4*54/63 {
		t.Errorf("chi-square of the winners is %.2f: %v", sum, wins)
	}
}

func chi(got int, want float64) float64 {
	d := float64(got) - want
	return d * d / want
}

func TestReplaceable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                        string
		count, winners, winnerCount int
		want                        int
	}{
		{"as many as asked for", 2, 5, 5, 2},
		{"no more than there are winners", 7, 5, 9, 5},
		{"a giveaway without winners can gain them", 1, 0, 3, 1},
		{"but no more than it was to have", 9, 0, 3, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := replaceable(c.count, c.winners, c.winnerCount); got != c.want {
				t.Errorf("replaceable(%d, %d, %d) is %d, want %d", c.count, c.winners, c.winnerCount, got, c.want)
			}
		})
	}
}

func TestReplace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                           string
		winners, drawn, want, replaced []string
		places                         []int
	}{
		{"takes the first places", []string{"a", "b", "c"}, []string{"x", "y"}, []string{"x", "y", "c"}, []string{"a", "b"}, nil},
		{"takes all places", []string{"a", "b"}, []string{"x", "y"}, []string{"x", "y"}, []string{"a", "b"}, nil},
		{"fills empty places", nil, []string{"x", "y"}, []string{"x", "y"}, nil, nil},
		{"takes given places", []string{"a", "b", "c"}, []string{"x", "y"}, []string{"x", "b", "y"}, []string{"a", "c"}, []int{0, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			before := slices.Clone(c.winners)
			got, replaced := replace(c.winners, c.places, c.drawn)
			if !slices.Equal(got, c.want) || !slices.Equal(replaced, c.replaced) {
				t.Errorf("replace(%v, %v, %v) is %v, %v, want %v, %v", c.winners, c.places, c.drawn, got, replaced, c.want, c.replaced)
			}
			if !slices.Equal(before, c.winners) {
				t.Errorf("the winners before became %v", c.winners)
			}
		})
	}
}

func BenchmarkPick(b *testing.B) {
	for _, size := range []int{100, 100_000} {
		for _, n := range []int{1, 100} {
			b.Run(strconv.Itoa(n)+"_of_"+strconv.Itoa(size), func(b *testing.B) {
				pot := make([]entrant, size)
				for i := range pot {
					pot[i] = entrant{strconv.Itoa(200_000_000_000_000_000 + i*7919), int64(1 + i%1000)}
				}
				sortPot(pot)
				b.ReportAllocs()
				var i uint64
				for b.Loop() {
					if _, err := pick(seedOf(i), pot, nil, n); err != nil {
						b.Fatal(err)
					}
					i++
				}
			})
		}
	}
}

func BenchmarkPotHash(b *testing.B) {
	pot := make([]entrant, 100_000)
	for i := range pot {
		pot[i] = entrant{strconv.Itoa(200_000_000_000_000_000 + i*7919), int64(1 + i%1000)}
	}
	b.ReportAllocs()
	for b.Loop() {
		potHash(pot)
	}
}
