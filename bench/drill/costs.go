package main

import (
	"fmt"
	"runtime"
	"time"

	"guildhall/bench/rig"
)

// costs measures how much time of a processor a request takes of the server and of
// Postgres, and an event that is delivered: what docs/operate/sizes.md computes sizes
// from. It holds no promise but that everything succeeds.
func costs(p *place) {
	const callers = 8 // enough to keep two cores busy, few enough that none waits for long
	length := sized(p, 5*time.Second, 200*time.Millisecond)
	p.loadGuilds(map[string]int{guildA: 1000, guildB: 1000})
	hook := p.Receiver()
	p.Register(guildB, hook.URL)
	quiet, heard := p.Token(guildA), p.Token(guildB)
	node := p.Serve()
	p.Say("%d cores, %d callers, %s each; in microseconds of a processor:", runtime.NumCPU(), callers, length)
	for i, kind := range []struct {
		name    string
		request func(n int, key string) []byte
		heard   bool
	}{
		{"a read (getWallet)", func(n int, _ string) []byte {
			return rig.Request("GET", fmt.Sprintf("/economy/wallet/%d", member(n%1000)), quiet, nil)
		}, false},
		{"a write (adjustBalance)", func(n int, _ string) []byte { return pays(quiet, member(n%1000)) }, false},
		{"a write with a key", func(n int, key string) []byte { return pays(quiet, member(n%1000), key) }, false},
		{"a write with a key, its event delivered", func(n int, key string) []byte { return pays(heard, member(n%1000), key) }, true},
	} {
		server, postgres := node.CPU(), p.CPU()
		responses := rig.Load{Address: node.HTTP, Connections: callers, For: length, Request: func(_, n int) []byte {
			return kind.request(n, fmt.Sprintf("Idempotency-Key: cost-%d-%d", i, n))
		}}.Run(p)
		n := responses.N()
		if kind.heard {
			all := p.Await(2*time.Minute, func() bool { return len(hook.Events()) >= n })
			p.Hold(all, "the event of each arrives (%d of %d)", len(hook.Events()), n)
		}
		each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(max(n, 1)) }
		p.Say("  %-42s server %4.0f, Postgres %4.0f   (%.0f a second, p99 %.1f ms)", kind.name,
			each(node.CPU()-server), each(p.CPU()-postgres), responses.Rate(), responses.Ms(0.99))
		p.Hold(responses.AllOK(), "each of them succeeds: %v", responses)
	}
}
