package giveaways

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"math/big"
	"slices"
)

// The values of a published draw; rules_test.go checks that pick gives them.
var (
	publishedWinners = []string{"100", "300", "1000", "41", "200"}
	publishedHash    = "d3799ff4af5004afab1c07807c02a4cb321ac69de4fbf8ebe8686f0e3a3eba95"
)

// repeat is an independent implementation of a draw, as anyone could write it: it follows the five
// steps in pick's documentation as directly as it can, with whole lists and big integers, and
// shares no code with pick.
func repeat(seed []byte, entries map[string]int64, out map[string]bool, n int) []string {
	var pot []string
	for id := range entries {
		if !out[id] {
			pot = append(pot, id)
		}
	}
	slices.Sort(pot)
	var i uint64
	winners := []string{}
	for len(winners) < n && len(pot) > 0 {
		w := new(big.Int)
		for _, id := range pot {
			w.Add(w, big.NewInt(entries[id]))
		}
		all := new(big.Int).Lsh(big.NewInt(1), 64)
		limit := new(big.Int).Sub(all, new(big.Int).Mod(all, w))
		x := new(big.Int).Set(limit)
		for x.Cmp(limit) >= 0 {
			mac := hmac.New(sha256.New, seed)
			_ = binary.Write(mac, binary.BigEndian, i)
			x.SetBytes(mac.Sum(nil)[:8])
			i++
		}
		r, sum := new(big.Int).Mod(x, w), new(big.Int)
		at := slices.IndexFunc(pot, func(id string) bool {
			return sum.Add(sum, big.NewInt(entries[id])).Cmp(r) > 0
		})
		winners = append(winners, pot[at])
		pot = slices.Delete(pot, at, at+1)
	}
	return winners
}

// A draw is repeated from its record in giveaway_draws and the entries of the
// giveaway. Here user 1000 had won before and the caller of the reroll had left
// user 41 out.
func Example_repeatDraw() {
	record := struct {
		seed        []byte
		entriesHash string
		pastWinners []string
		excluded    []string
		drawn       []string
	}{
		seed:        bytes.Repeat([]byte{0xab}, 32),
		entriesHash: "d3799ff4af5004afab1c07807c02a4cb321ac69de4fbf8ebe8686f0e3a3eba95",
		pastWinners: []string{"1000"},
		excluded:    []string{"41"},
		drawn:       []string{"100", "300"},
	}
	entries := map[string]int64{"41": 1, "100": 10, "200": 4, "300": 5, "1000": 80}

	// First check that these are the entries of the draw.
	h := sha256.New()
	for _, id := range slices.Sorted(maps.Keys(entries)) {
		fmt.Fprintf(h, "%s %d\n", id, entries[id])
	}
	fmt.Println("same entries:", hex.EncodeToString(h.Sum(nil)) == record.entriesHash)

	// Then check that the seed gives the same winners.
	out := map[string]bool{}
	for _, id := range slices.Concat(record.pastWinners, record.excluded) {
		out[id] = true
	}
	drawn := repeat(record.seed, entries, out, len(record.drawn))
	fmt.Println("same winners:", slices.Equal(drawn, record.drawn))
	fmt.Println(drawn)
	// Output:
	// same entries: true
	// same winners: true
	// [100 300]
}
