package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
)

const guildID = "402187554310020096"

// manyGuilds is how many further guilds are loaded, each with members of its own.
const (
	manyGuilds   = 1000
	guildMembers = 100
)

// changesACall is how many changes the operations take that make several.
const changesACall = 100

// operation is one thing to measure: a request to the server, and what its speed
// is held against.
type operation struct {
	name    string
	request func(*rand.Rand, []byte) []byte
	against side
	goals   map[int]float64 // of the ratio, by clients
	clients []int           // where it is not measured with the numbers asked for
	prepare func(ctx context.Context) (undo func() error, err error)
}

// side is the other side of a comparison.
type side int

const (
	nothing   side = iota
	plain          // the plainest program, by throughput
	pageOne        // page 1 of the leaderboard on the same server, by latency
	xpPageOne      // that of the XP leaderboard
	atOnce8   = 8  // the numbers of connections that goals are about
	atOnce32  = 32
)

// member is the id of the n-th member that was loaded, n from 1.
func member(n int) int64 { return 100_000_000_000_000_000 + int64(n)*7919 }

// guild is the id of the n-th further guild, n from 1.
func guild(n int) string { return strconv.Itoa(500_000_000_000_000_000 + n) }

// requests makes the requests of one token.
type requests struct{ wallets int }

func head(token string) string {
	return " HTTP/1.1\r\nHost: bench\r\nX-Forwarded-Proto: https\r\nAuthorization: Bearer " + token + "\r\n"
}

func get(token, path string) func(*rand.Rand, []byte) []byte {
	request := []byte("GET /api/v1" + path + head(token) + "\r\n")
	return func(_ *rand.Rand, b []byte) []byte { return append(b, request...) }
}

func (q requests) getOf(token, path string) func(*rand.Rand, []byte) []byte {
	end := head(token) + "\r\n"
	return func(r *rand.Rand, b []byte) []byte {
		b = append(append(b, "GET /api/v1"...), path...)
		b = strconv.AppendInt(b, member(1+r.IntN(q.wallets)), 10)
		return append(b, end...)
	}
}

// post sends a body about one of the members with one of the tokens.
func (q requests) post(path string, key bool, body string, tokens ...string) func(*rand.Rand, []byte) []byte {
	heads := make([]string, len(tokens))
	for i, t := range tokens {
		heads[i] = head(t)
	}
	return func(r *rand.Rand, b []byte) []byte {
		text := fmt.Sprintf(body, member(1+r.IntN(q.wallets)), 1+r.IntN(40))
		b = append(append(append(b, "POST /api/v1"...), path...), heads[r.IntN(len(heads))]...)
		if key {
			b = fmt.Appendf(b, "Idempotency-Key: %016x%016x\r\n", r.Uint64(), r.Uint64())
		}
		return fmt.Appendf(b, "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	}
}

// postMany sends as many changes in a call as it takes.
func (q requests) postMany(path string, key bool, token string) func(*rand.Rand, []byte) []byte {
	return func(r *rand.Rand, b []byte) []byte {
		text := []byte(`{"adjustments":[`)
		for i := range changesACall {
			if i > 0 {
				text = append(text, ',')
			}
			text = fmt.Appendf(text, `{"user_id":"%d","delta":%d}`, member(1+r.IntN(q.wallets)), 1+r.IntN(40))
		}
		text = append(text, "]}"...)
		b = append(append(append(b, "POST /api/v1"...), path...), head(token)...)
		if key {
			b = fmt.Appendf(b, "Idempotency-Key: %016x%016x\r\n", r.Uint64(), r.Uint64())
		}
		return fmt.Appendf(b, "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	}
}

func operations(h *host) []operation {
	const (
		change = `{"user_id":"%d","delta":%d}`
		warn   = `{"user_id":"%d","moderator_id":"%d","type":"warn","reason":"measured"}`
		adjust = "/economy/adjust"
	)
	q, many := requests{h.wallets}, requests{guildMembers}
	goals := func(at8, at32 float64) map[int]float64 { return map[int]float64{atOnce8: at8, atOnce32: at32} }
	return []operation{
		{name: "getWallet", request: q.getOf(h.token, "/economy/wallet/"), against: plain, goals: goals(0.85, 1.3)},
		{name: "leaderboard page 1", request: get(h.token, "/economy/leaderboard"), against: plain, goals: goals(0.95, 0.95)},
		{name: "adjustBalance, lone caller", request: q.post(adjust, false, change, h.token), against: plain, clients: []int{1}},
		{name: "adjustBalance", request: q.post(adjust, false, change, h.token), against: plain, goals: goals(1.15, 1.5)},
		{name: "adjustBalance with a key", request: q.post(adjust, true, change, h.token), against: plain, goals: goals(1.0, 1.5)},
		{name: "adjustBalance, 1,000 guilds", request: many.post(adjust, false, change, h.tokens...), against: plain, goals: goals(1.1, 1.4)},
		// A request of these makes a hundred changes.
		{name: "adjustBalances", request: q.postMany("/economy/adjustments", false, h.token), clients: []int{atOnce8}},
		{name: "adjustBalances with a key", request: q.postMany("/economy/adjustments", true, h.token), clients: []int{atOnce8}},
		{name: "adjustXpOfMembers", request: q.postMany("/levelling/adjustments", false, h.token), clients: []int{atOnce8}},
		{name: "listCases", request: get(h.token, "/cases?status=active&type=warn"), against: plain, goals: goals(0.8, 0.8)},
		{name: "listLedgerEntries", request: get(h.token, "/economy/ledger"), against: plain, goals: goals(0.8, 0.8)},
		{name: "listTickets", request: get(h.token, "/tickets"), against: plain, goals: goals(0.8, 0.8)},
		{
			name: "leaderboard page 4,000", request: get(h.token, "/economy/leaderboard?page="+strconv.Itoa(h.deepPage())),
			against: pageOne, goals: goals(2, 2),
		},
		{name: "getEconomyRank", request: q.getOf(h.token, "/economy/rank/"), against: pageOne, goals: goals(2, 2)},
		{name: "getLevellingRank", request: q.getOf(h.token, "/levelling/rank/"), against: xpPageOne, goals: goals(2, 2)},
		{name: "getLevelRecord", request: q.getOf(h.token, "/levelling/user/"), clients: []int{atOnce8}},
		{name: "XP leaderboard page 1", request: get(h.token, "/levelling/leaderboard"), clients: []int{atOnce8}},
		{name: "XP leaderboard page 4,000", request: get(h.token, "/levelling/leaderboard?page="+strconv.Itoa(h.deepPage())), clients: []int{atOnce8}},
		{name: "adjustXp", request: q.post("/levelling/adjust", false, change, h.token), clients: []int{atOnce8, atOnce32}},
		{name: "createCase", request: q.post("/cases", false, warn, h.token), clients: []int{atOnce8}},
		{name: "lookupNetworkUser", request: q.getOf(h.token, "/network/lookup/"), clients: []int{atOnce8}},
		// The last: what it leaves behind is worked off for a while.
		{
			name: "adjustBalance, one listens", request: q.post(adjust, false, change, h.token), against: plain, goals: goals(0.6, 0.8),
			prepare: h.listen,
		},
	}
}
