package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"guildhall/bench/rig"
)

const guildA, guildB = "100000000000000001", "200000000000000002"

func member(i int) int { return 300000000000000000 + i }

// neighbour lets guild A do its worst within its quotas, one kind of attack at a time and then all
// together, and measures the effect on guild B and on the machine.
func neighbour(p *place) {
	rows, length := sized(p, 1_000_000, 20_000), sized(p, 12*time.Second, time.Second)
	p.loadGuilds(map[string]int{guildA: rows, guildB: 1000})
	b := p.victim(p.Serve(fmt.Sprintf("GUILDHALL_RATE_READ=%d/1m", reads), fmt.Sprintf("GUILDHALL_RATE_WRITE=%d/1m", writes)))
	base := b.live(length, func(context.Context) {})
	b.judge("alone", base)
	stage := func(name string, attacks ...attack) {
		a := &attacker{address: b.node.HTTP, rows: rows}
		tokens := p.Tokens(guildA, len(attacks))
		seen := b.live(length, func(ctx context.Context) {
			var all sync.WaitGroup
			for i, one := range attacks {
				all.Go(func() { a.run(ctx, one, tokens[i]) })
			}
			all.Wait()
		})
		p.Say("%-24s guild A got %v", name, &a.responses)
		b.judge(name, seen)
		limit := base.calls.At(0.99, rig.OK)*3/2 + 20*time.Millisecond
		p.bound(seen.calls.At(0.99, rig.OK) <= limit, "%s: p99 of guild B %.1f ms, at most %.1f", name, seen.calls.Ms(0.99), rig.Ms(limit))
	}
	for _, one := range attacks {
		stage(one.name, one)
	}
	stage("all of them at once", attacks...)
}

// loadGuilds creates guilds with the given number of wallets and as many ledger entries.
func (p *place) loadGuilds(wallets map[string]int) {
	p.Load(func(w io.Writer) {
		for guild, n := range wallets {
			fmt.Fprintf(w, `{"record":"guild","id":"%s"}`+"\n", guild)
			for i := range n {
				fmt.Fprintf(w, `{"record":"wallet","guild_id":"%s","user_id":"%d","balance":1000}`+"\n", guild, member(i))
			}
		}
	})
}

// victim is guild B, which makes all kinds of requests all the time.
type victim struct {
	*place
	node   *rig.Node
	tokens []string
	fresh  []string // tokens that the server has not cached yet
}

func (p *place) victim(n *rig.Node) *victim {
	return &victim{place: p, node: n, tokens: p.Tokens(guildB, 64), fresh: p.Tokens(guildB, 400)}
}

// seen is what was measured in one stage.
type seen struct {
	calls, strangers rig.Tally
	asked, unready   int
}

// live runs B's requests for a while, concurrently with beside. It returns when both have ended.
func (b *victim) live(length time.Duration, beside func(context.Context)) *seen {
	s := &seen{}
	stage, cancel := context.WithTimeout(b, length)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { s.calls.Run(stage, rig.Load{Address: b.node.HTTP, Connections: 4, Rate: 200, Request: b.call}) })
	all.Go(func() {
		s.strangers.Run(stage, rig.Load{
			Address: b.node.HTTP, Connections: 1, Rate: 2, Total: len(b.fresh),
			Request: func(_, n int) []byte { return rig.Request("GET", "/me", b.fresh[n], nil) },
		})
		b.fresh = b.fresh[s.strangers.N():]
	})
	all.Go(func() {
		for rig.Pause(stage, 100*time.Millisecond) {
			s.asked++
			if !b.node.Ready(b) {
				s.unready++
			}
		}
	})
	beside(stage)
	all.Wait()
	b.Must(b.Err())
	return s
}

// call returns B's nth request.
func (b *victim) call(_, n int) []byte {
	token, user := b.tokens[n%len(b.tokens)], member(n%1000)
	switch n % 5 {
	case 0:
		return pays(token, user)
	case 1:
		return rig.Request("GET", "/economy/ledger?per_page=5", token, nil)
	case 2:
		return files(token, user, "note")
	default:
		return rig.Request("GET", fmt.Sprintf("/economy/wallet/%d", user), token, nil)
	}
}

// pays returns a request that pays a member.
func pays(token string, user int, headers ...string) []byte {
	return rig.Request("POST", "/economy/adjust", token, fmt.Appendf(nil, `{"user_id":"%d","delta":1}`, user), headers...)
}

// files returns a request that creates a case.
func files(token string, user int, kind string) []byte {
	body := fmt.Appendf(nil, `{"user_id":"%d","moderator_id":"7","type":"%s","reason":"drill"}`, user, kind)
	return rig.Request("POST", "/cases", token, body)
}

// judge compares the measurements with the promises.
func (b *victim) judge(stage string, s *seen) {
	b.Say("%-24s guild B: %v", stage, &s.calls)
	b.Hold(s.calls.Count(rig.Failed) == 0, "%s: no call of guild B fails (%d of %d)", stage, s.calls.Count(rig.Failed), s.calls.N())
	b.Hold(s.calls.AllOK(), "%s: every call of guild B succeeds (%d of %d)", stage, s.calls.Count(rig.OK), s.calls.N())
	b.Hold(s.strangers.AllOK(), "%s: tokens not seen before are recognised (%d of %d)", stage, s.strangers.Count(rig.OK), s.strangers.N())
	b.Hold(s.asked > 0 && s.unready == 0, "%s: ready all the time (%d of %d)", stage, s.asked-s.unready, s.asked)
}

// attacker is guild A.
type attacker struct {
	address   string
	rows      int // number of the guild's ledger entries
	responses rig.Tally
}

// A token's quotas of reads and writes a minute, which may be used at once.
const reads, writes = 600, 120

// attack is one kind of attack within the quota of a token: requests over several connections, each
// as fast as they are answered, or slow behaviour on each connection.
type attack struct {
	name               string
	connections, total int
	request            func(a *attacker, token string, n int) []byte
	slow               func(ctx context.Context, conn net.Conn, request []byte)
}

var attacks = []attack{
	{"deep pages", 64, reads, func(a *attacker, token string, _ int) []byte {
		return rig.Request("GET", fmt.Sprintf("/economy/ledger?page=%d&per_page=100", max(1, a.rows/100)), token, nil)
	}, nil},
	{"a burst of cases", writes, writes, func(_ *attacker, token string, n int) []byte { return files(token, member(n), "warn") }, nil},
	{"one wallet", writes, writes, func(_ *attacker, token string, _ int) []byte { return pays(token, member(1)) }, nil},
	{"slow bodies", writes, 0, func(_ *attacker, token string, _ int) []byte {
		return rig.Request("POST", "/economy/adjust", token, nil, "Content-Type: application/json", "Content-Length: 1000")
	}, trickles},
	{"slow readers", reads / 6, 0, func(_ *attacker, token string, _ int) []byte {
		return bytes.Repeat(rig.Request("GET", "/economy/ledger?per_page=100", token, nil), 6)
	}, readsNothing},
	{"duplicates of one key", writes, writes, func(_ *attacker, token string, _ int) []byte {
		return pays(token, member(2), "Idempotency-Key: the-one")
	}, nil},
	{"large bodies", writes, writes, func(_ *attacker, token string, n int) []byte {
		body := fmt.Appendf(nil, `{"user_id":"%d","delta":1`, member(n))
		return rig.Request("POST", "/economy/adjust", token, fmt.Appendf(body, "%*s", 64<<10-len(body), "}"))
	}, nil},
}

// run makes one attack with an unused token, until it is done or ctx ends.
func (a *attacker) run(ctx context.Context, one attack, token string) {
	if one.slow == nil {
		a.responses.Run(ctx, rig.Load{Address: a.address, Connections: one.connections, Total: one.total, Request: func(_, n int) []byte {
			return one.request(a, token, n)
		}})
		return
	}
	var all sync.WaitGroup
	for range one.connections {
		all.Go(func() {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.address)
			if err != nil {
				return
			}
			defer conn.Close()
			_ = conn.(*net.TCPConn).SetReadBuffer(2048) // the kernel may use another size
			one.slow(ctx, conn, one.request(a, token, 0))
		})
	}
	all.Wait()
}

// trickles announces a body and sends one byte of it a second.
func trickles(ctx context.Context, conn net.Conn, head []byte) {
	_, err := conn.Write(head)
	for err == nil && rig.Pause(ctx, time.Second) {
		_, err = conn.Write([]byte(" "))
	}
}

// readsNothing sends requests with long responses and never reads.
func readsNothing(ctx context.Context, conn net.Conn, requests []byte) {
	_, _ = conn.Write(requests) // the server may stop reading
	<-ctx.Done()
}
