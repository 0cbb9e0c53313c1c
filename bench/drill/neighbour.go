package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"guildhall/bench/rig"
)

const guildA, guildB = "100000000000000001", "200000000000000002"

func member(i int) int { return 300000000000000000 + i }

// neighbour lets guild A do its worst inside its quotas, each thing in turn and
// all at once, and watches what guild B and the machinery notice.
func neighbour(p *place) {
	rows, length := sized(p, 1_000_000, 20_000), sized(p, 12*time.Second, 2*time.Second)
	p.loadGuilds(map[string]int{guildA: rows, guildB: 1000})
	b := p.victim(p.ServeWith())
	base := b.live(length, func(context.Context) {})
	b.judge("alone", base)
	for _, one := range append(attacks, attack{"all of them at once", allAtOnce}) {
		a := &attacker{address: b.node.HTTP, rows: rows, tokens: p.Tokens(guildA, 2*len(attacks))}
		seen := b.live(length, func(ctx context.Context) { one.run(ctx, a) })
		p.Say("%-24s guild A got %v", one.name, &a.responses)
		b.judge(one.name, seen)
		limit := base.calls.At(0.99, rig.OK)*3/2 + 20*time.Millisecond
		p.bound(seen.calls.At(0.99, rig.OK) <= limit, "%s: p99 of guild B %.1f ms, at most %.1f", one.name, seen.calls.Ms(0.99), rig.Ms(limit))
	}
}

// loadGuilds makes guilds with so many wallets each, and as many rows of the ledger.
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

// victim is guild B: a little of everything, all the time.
type victim struct {
	*place
	node   *rig.Node
	tokens []string
	fresh  []string // tokens that the server has not seen yet
}

func (p *place) victim(n *rig.Node) *victim {
	return &victim{place: p, node: n, tokens: p.Tokens(guildB, 64), fresh: p.Tokens(guildB, 400)}
}

// seen is what B and the machinery saw during one stage.
type seen struct {
	calls, strangers *rig.Tally
	asked, unready   int
}

// live runs B's calls for a while, beside what else is done. It returns once
// both have ended.
func (b *victim) live(length time.Duration, beside func(context.Context)) (s seen) {
	stage, cancel := context.WithTimeout(b, length)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		s.calls = rig.Load{Address: b.node.HTTP, Connections: 4, Rate: 200, Request: b.call}.Run(stage)
	})
	all.Go(func() {
		s.strangers = rig.Load{
			Address: b.node.HTTP, Connections: 1, Rate: 2, Total: len(b.fresh),
			Request: func(_, n int) []byte { return rig.Request("GET", "/me", b.fresh[n], nil) },
		}.Run(stage)
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

// call is B's n-th request.
func (b *victim) call(_, n int) []byte {
	token, user := b.tokens[n%len(b.tokens)], member(n%1000)
	switch n % 5 {
	case 0:
		return pays(token, user)
	case 1:
		return rig.Request("GET", "/economy/ledger?per_page=5", token, nil)
	case 2:
		return rig.Request("POST", "/cases", token, fmt.Appendf(nil, `{"user_id":"%d","moderator_id":"7","type":"note","reason":"drill"}`, user))
	default:
		return rig.Request("GET", fmt.Sprintf("/economy/wallet/%d", user), token, nil)
	}
}

// pays is a write that pays a member.
func pays(token string, user int, headers ...string) []byte {
	return rig.Request("POST", "/economy/adjust", token, fmt.Appendf(nil, `{"user_id":"%d","delta":1}`, user), headers...)
}

// judge holds what was seen against the promises.
func (b *victim) judge(stage string, s seen) {
	b.Say("%-24s guild B: %v", stage, s.calls)
	b.Hold(s.calls.Count(rig.Failed) == 0, "%s: no call of guild B fails (%d of %d)", stage, s.calls.Count(rig.Failed), s.calls.N())
	b.Hold(s.calls.AllOK(), "%s: every call of guild B succeeds (%d of %d)", stage, s.calls.Count(rig.OK), s.calls.N())
	b.Hold(s.strangers.AllOK(), "%s: tokens not seen before are recognised (%d of %d)", stage, s.strangers.Count(rig.OK), s.strangers.N())
	b.Hold(s.asked > 0 && s.unready == 0, "%s: ready all the time (%d of %d)", stage, s.asked-s.unready, s.asked)
}

// attack is one thing that guild A does, inside the quotas of its tokens.
type attack struct {
	name string
	run  func(context.Context, *attacker)
}

// attacker is guild A at its worst. Each attack takes tokens that have spent nothing.
type attacker struct {
	address   string
	rows      int // of the ledger
	responses rig.Tally
	tokens    []string
	taken     atomic.Int64
}

func (a *attacker) token() string { return a.tokens[a.taken.Add(1)-1] }

// A token may read 600 times and write 120 times a minute, which it may do at
// once.
const reads, writes = 600, 120

var attacks = []attack{
	{"deep pages", func(ctx context.Context, a *attacker) {
		deepest := rig.Request("GET", fmt.Sprintf("/economy/ledger?page=%d&per_page=100", max(1, a.rows/100)), a.token(), nil)
		a.flood(ctx, 64, reads, func(_, _ int) []byte { return deepest })
	}},
	{"a burst of cases", func(ctx context.Context, a *attacker) {
		token := a.token()
		a.flood(ctx, writes, writes, func(_, n int) []byte {
			body := fmt.Appendf(nil, `{"user_id":"%d","moderator_id":"7","type":"warn","reason":"burst"}`, member(n))
			return rig.Request("POST", "/cases", token, body)
		})
	}},
	{"one wallet", func(ctx context.Context, a *attacker) {
		tokens := []string{a.token(), a.token()}
		a.flood(ctx, 200, 200, func(_, n int) []byte { return pays(tokens[n%2], member(1)) })
	}},
	{"slow bodies", slowBodies},
	{"slow readers", slowReaders},
	{"duplicates of one key", func(ctx context.Context, a *attacker) {
		same := pays(a.token(), member(2), "Idempotency-Key: the-one")
		a.flood(ctx, writes, writes, func(_, _ int) []byte { return same })
	}},
	{"large bodies", func(ctx context.Context, a *attacker) {
		token := a.token()
		a.flood(ctx, writes, writes, func(_, n int) []byte {
			body := fmt.Appendf(nil, `{"user_id":"%d","delta":1`, member(n))
			return rig.Request("POST", "/economy/adjust", token, fmt.Appendf(body, "%*s", 64<<10-len(body), "}"))
		})
	}},
}

func allAtOnce(ctx context.Context, a *attacker) {
	var all sync.WaitGroup
	for _, one := range attacks {
		all.Go(func() { one.run(ctx, a) })
	}
	all.Wait()
}

// flood sends total requests over as many connections as wanted, as fast as
// they are answered.
func (a *attacker) flood(ctx context.Context, connections, total int, request func(_, n int) []byte) {
	a.responses.Run(ctx, rig.Load{Address: a.address, Connections: connections, Total: total, Request: request})
}

// slowBodies announces bodies and sends a byte a second of each.
func slowBodies(ctx context.Context, a *attacker) {
	head := rig.Request("POST", "/economy/adjust", a.token(), nil, "Content-Type: application/json", "Content-Length: 1000")
	a.occupy(ctx, writes, func(conn net.Conn) {
		_, err := conn.Write(head)
		for err == nil && rig.Pause(ctx, time.Second) {
			_, err = conn.Write([]byte(" "))
		}
	})
}

// slowReaders ask for long answers and never read them.
func slowReaders(ctx context.Context, a *attacker) {
	list := rig.Request("GET", "/economy/ledger?per_page=100", a.token(), nil)
	a.occupy(ctx, reads/6, func(conn net.Conn) {
		for range 6 {
			if _, err := conn.Write(list); err != nil {
				return
			}
		}
		<-ctx.Done()
	})
}

// occupy opens connections and keeps them until the stage ends.
func (a *attacker) occupy(ctx context.Context, connections int, use func(net.Conn)) {
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.address)
			if err != nil {
				return
			}
			defer conn.Close()
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetReadBuffer(2048) // a hint
			}
			use(conn)
		})
	}
	all.Wait()
}
