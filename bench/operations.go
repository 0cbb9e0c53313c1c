package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"guildhall/bench/rig"
)

const guildID = "402187554310020096"

// manyGuilds is the number of further guilds that are loaded, each with its own members.
const (
	manyGuilds   = 1000
	guildMembers = 100
)

// changesACall is how many changes one call makes, for operations that make several.
const changesACall = 100

// operation is an operation to measure: its request, and what its speed is compared with.
type operation struct {
	name    string
	request call
	plain   bool                   // compared by throughput with the plainest program
	beside  call                   // compare latency with this operation of the same server instead
	goals   map[int]float64        // required ratio, by number of clients
	clients []int                  // numbers of clients; empty: the numbers of the flag
	prepare func(*rig.Place) error // fails for another build that does not have the operation
}

// call returns the nth request of a connection.
type call func(connection, n int) []byte

// member returns the id of the nth member, n from 1.
func member(n int) int64 { return 100_000_000_000_000_000 + int64(n)*7919 }

// guild returns the id of the nth further guild, n from 1.
func guild(n int) string { return strconv.Itoa(500_000_000_000_000_000 + n) }

func get(token, path string) call {
	request := rig.Request("GET", path, token, nil)
	return func(_, _ int) []byte { return request }
}

// members is the number of members of a guild that requests are about.
type members int

func (m members) any() int64 { return member(1 + rand.IntN(int(m))) }

func (m members) get(token, path string) call {
	return func(_, _ int) []byte { return rig.Request("GET", path+strconv.FormatInt(m.any(), 10), token, nil) }
}

// post returns a call that sends bodies with one of the tokens, and with idempotency keys if keyed.
func post(path string, keyed bool, body func() []byte, tokens ...string) call {
	return func(_, _ int) []byte {
		token := tokens[rand.IntN(len(tokens))]
		if keyed {
			return rig.Request("POST", path, token, body(), fmt.Sprintf("Idempotency-Key: %016x%016x", rand.Uint64(), rand.Uint64()))
		}
		return rig.Request("POST", path, token, body())
	}
}

// transfer returns a body that moves a coin between two members.
func (m members) transfer() []byte {
	from := rand.IntN(int(m))
	return fmt.Appendf(nil, `{"from_user_id":"%d","to_user_id":"%d","amount":1}`, member(1+from), member(1+(from+1+rand.IntN(int(m)-1))%int(m)))
}

// change returns a body that changes one member.
func (m members) change() []byte {
	return fmt.Appendf(nil, `{"user_id":"%d","delta":%d}`, m.any(), 1+rand.IntN(40))
}

func (m members) warn() []byte {
	return fmt.Appendf(nil, `{"user_id":"%d","moderator_id":"%d","type":"warn","reason":"measured"}`, m.any(), 1+rand.IntN(40))
}

// changes returns a body with changesACall changes.
func (m members) changes() []byte {
	list := make([][]byte, changesACall)
	for i := range list {
		list[i] = m.change()
	}
	return fmt.Appendf(nil, `{"adjustments":[%s]}`, bytes.Join(list, []byte(",")))
}

func operations(h *host) []operation {
	const adjust = "/economy/adjust"
	m, few := members(h.wallets), members(guildMembers)
	goals := func(at8, at32 float64) map[int]float64 { return map[int]float64{8: at8, 32: at32} }
	wealthiest, highest := get(h.token, "/economy/leaderboard"), get(h.token, "/levelling/leaderboard")
	deep := "/leaderboard?page=" + strconv.Itoa(min(4000, h.wallets/25))
	return []operation{
		{name: "getWallet", request: m.get(h.token, "/economy/wallet/"), plain: true, goals: goals(0.85, 1.3)},
		{name: "leaderboard page 1", request: wealthiest, plain: true, goals: goals(0.95, 0.95)},
		{name: "adjustBalance, lone caller", request: post(adjust, false, m.change, h.token), plain: true, clients: []int{1}},
		{name: "adjustBalance", request: post(adjust, false, m.change, h.token), plain: true, goals: goals(1.15, 1.5)},
		{name: "adjustBalance with a key", request: post(adjust, true, m.change, h.token), plain: true, goals: goals(1.0, 1.5)},
		{name: "adjustBalance, 1,000 guilds", request: post(adjust, false, few.change, h.tokens...), plain: true, goals: goals(1.1, 1.4)},
		// Each request makes a hundred changes.
		{name: "adjustBalances", request: post("/economy/adjustments", false, m.changes, h.token), clients: []int{8}},
		{name: "adjustBalances with a key", request: post("/economy/adjustments", true, m.changes, h.token), clients: []int{8}},
		{name: "adjustXpOfMembers", request: post("/levelling/adjustments", false, m.changes, h.token), clients: []int{8}},
		{name: "listCases", request: get(h.token, "/cases?status=active&type=warn"), plain: true, goals: goals(0.8, 0.8)},
		{name: "listLedgerEntries", request: get(h.token, "/economy/ledger"), plain: true, goals: goals(0.8, 0.8)},
		{name: "listTickets", request: get(h.token, "/tickets")},
		{name: "leaderboard page 4,000", request: get(h.token, "/economy"+deep), beside: wealthiest, goals: goals(2, 2)},
		{name: "getEconomyRank", request: m.get(h.token, "/economy/rank/"), beside: wealthiest, goals: goals(2, 2)},
		{name: "getLevellingRank", request: m.get(h.token, "/levelling/rank/"), beside: highest, goals: goals(2, 2)},
		{name: "getLevelRecord", request: m.get(h.token, "/levelling/user/"), clients: []int{8}},
		{name: "XP leaderboard page 1", request: highest, clients: []int{8}},
		{name: "XP leaderboard page 4,000", request: get(h.token, "/levelling"+deep), clients: []int{8}},
		{name: "adjustXp", request: post("/levelling/adjust", false, m.change, h.token), clients: []int{8, 32}},
		{name: "createCase", request: post("/cases", false, m.warn, h.token), clients: []int{8}},
		{name: "lookupNetworkUser", request: m.get(h.token, "/network/lookup/"), clients: []int{8}},
		// These two change what the rows above read.
		{
			name: "transferBalance with a key", request: post("/economy/transfers", true, m.transfer, h.token),
			beside: post(adjust, true, m.change, h.token), goals: goals(2, 2),
			prepare: func(p *rig.Place) error { // everybody can pay
				p.Exec(`UPDATE wallets SET balance = balance + 1000000 WHERE guild_id = $1`, guildID)
				return nil
			},
		},
		{
			name: "adjustXp, weeks are counted", request: post("/levelling/adjust", false, m.change, h.token), clients: []int{8, 32},
			prepare: func(p *rig.Place) error {
				return p.ImportBy(strings.NewReader(`{"record":"settings","guild_id":"`+guildID+`","levelling":{"periods":true}}`), "--update")
			},
		},
		// This comes last, since the receiver stays. Its deliveries count as a part of the change.
		{
			name: "adjustBalance, one listens", request: post(adjust, false, m.change, h.token), plain: true, goals: goals(0.6, 0.8),
			prepare: func(p *rig.Place) error { p.Register(guildID, p.Receiver().URL); return nil },
		},
	}
}
