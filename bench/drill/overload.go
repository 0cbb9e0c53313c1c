package main

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"time"

	"guildhall/bench/rig"
)

// The kinds of load, each a stage of the drill.
const (
	cheapCalls   = "cheap calls"
	deepLists    = "lists of 100 at depth"
	slowDatabase = "a slow database"
)

// The limits that hold under overload, and how long loads last.
const (
	goodput      = 0.8
	refusedAfter = 2 * time.Second
	brief        = 300 * time.Millisecond // a short load whose numbers are not judged
)

// overload increases the number of connections, each of which waits for its response, far beyond
// what can be served. The number of served requests must not fall, and a request that is not served
// must get an error in time.
func overload(p *place) {
	rows := sized(p, 200_000, 2000)
	// Both guilds have the same data, so that a request costs the same in each.
	p.loadGuilds(map[string]int{guildA: rows, guildB: rows})
	tokens := append(p.Tokens(guildA, 32), p.Tokens(guildB, 32)...)
	wallet := func(i, n int) []byte {
		return rig.Request("GET", fmt.Sprintf("/economy/wallet/%d", member(n%1000)), tokens[i%len(tokens)], nil)
	}
	for _, work := range []struct {
		name  string
		delay time.Duration
		call  func(connection, n int) []byte
	}{
		{cheapCalls, 0, wallet},
		{deepLists, 0, func(i, n int) []byte {
			path := fmt.Sprintf("/economy/ledger?per_page=100&page=%d", 1+n%max(1, rows/100/2))
			return rig.Request("GET", path, tokens[i%len(tokens)], nil)
		}},
		{slowDatabase, sized(p, 300*time.Millisecond, 100*time.Millisecond), func(i, n int) []byte {
			if n%2 == 0 {
				return pays(tokens[i%len(tokens)], member(n%1000))
			}
			return wallet(i, n)
		}},
	} {
		if p.wants(work.name) {
			p.Part(func(part *rig.Place) {
				o := &overloaded{place: p.with(part), name: work.name, call: work.call, token: tokens[0]}
				o.run(work.delay)
			})
		}
	}
}

// overloaded is one kind of load on a server of its own.
type overloaded struct {
	*place
	name  string
	call  func(connection, n int) []byte
	token string // a token of guild A
	node  *rig.Node
}

// load sends requests over n connections for a while.
func (o *overloaded) load(n int, small time.Duration) *rig.Tally {
	return new(rig.Tally).Run(o, rig.Load{Address: o.node.HTTP, Connections: n, For: sized(o.place, 6*time.Second, small), Request: o.call})
}

// run finds the best throughput, and then sends more.
func (o *overloaded) run(delay time.Duration) {
	if delay > 0 {
		o.place = o.slowLink(delay)
	}
	o.node = o.Serve()
	each := o.fetches(o.token, []string{o.node.HTTP}, "case.created")
	among := sized(o.place, []int{8, 32, 100}, []int{8})
	o.load(among[0], brief) // opens connections, and caches tokens and statements
	best, at := 0.0, 0
	for _, n := range among {
		if rate := o.load(n, brief).Rate(); rate > best {
			best, at = rate, n
		}
	}
	o.Say("%s: best with %d connections, %.0f /s", o.name, at, best)
	for _, n := range []int{sized(o.place, 2000, 1000), 5 * at, 20 * at} {
		// Other load on the machine affects both measurements.
		before := o.load(at, brief).Rate()
		t := o.load(n, brief)
		o.judge(fmt.Sprintf("%s, %d connections", o.name, n), t, (before+o.load(at, brief).Rate())/2)
	}
	before := o.load(at, time.Second)
	o.load(20*at, brief)
	rig.Pause(o, 5*time.Second)
	after := o.load(at, time.Second)
	o.Must(o.Err())
	// With a slow database even the best number of connections may not be served completely.
	succeeded := func(t *rig.Tally) float64 { return float64(t.Count(rig.OK)) / float64(max(1, t.N())) }
	was, is := succeeded(before), succeeded(after)
	o.Hold(is > 0 && is >= was-0.05, "%s: 5 s later %.0f %% of the calls succeed, as before (%.0f %%)", o.name, 100*is, 100*was)
	o.Hold(o.node.Ready(o), "%s: 5 s later it is ready", o.name)
	share := after.Rate() / before.Rate()
	o.bound(share >= goodput, "%s: 5 s later %.0f %% of what it was", o.name, 100*share)
	o.Ask(o.node.HTTP, files(o.token, member(7), "note"), nil)
	each()
}

// judge compares the responses under overload with the promises.
func (o *overloaded) judge(what string, t *rig.Tally, best float64) {
	last := t.At(1, func(a rig.Response) bool { return a.Status == 503 || a.Status == 429 })
	peak := o.node.Peak()
	o.Say("%s: %.0f /s, best %.0f, %d MB at the peak, %v", what, t.Rate(), best, peak, t)
	o.Hold(t.Count(rig.OK) > 0, "%s: something is served", what)
	o.Hold(t.Count(func(a rig.Response) bool { return !rig.OK(a) && (a.Status != 503 || a.RetryAfter == "") }) == 0,
		"%s: what is not served is refused with 503 and Retry-After", what)
	o.bound(last <= refusedAfter*5/4, "%s: refusals within %v, give or take the machine's quarter (the last after %.0f ms)",
		what, refusedAfter, rig.Ms(last))
	o.bound(t.Rate() >= goodput*best, "%s: goodput %.0f %% of the best", what, 100*t.Rate()/best)
	most := sized(o.place, 144, 124) // MB, of which 32 are the program's own pages
	o.Hold(peak <= most, "%s: %d MB at the peak, at most %d", what, peak, most)
}

// slowLink puts a TCP proxy in front of the database that delays each response.
func (p *place) slowLink(delay time.Duration) *place {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	p.Must(err)
	p.Cleanup(l.Close)
	return p.with(p.Through(func(u *url.URL) {
		target := u.Host
		u.Host = l.Addr().String()
		go func() {
			for client, err := l.Accept(); err == nil; client, err = l.Accept() {
				go carry(client, target, delay)
			}
		}()
	}))
}

func carry(client net.Conn, target string, delay time.Duration) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client) // either side may close the connection
		_ = server.Close()
	}()
	buffer := make([]byte, 32<<10)
	for n := 0; err == nil; {
		if n, err = server.Read(buffer); n > 0 {
			time.Sleep(delay)
			_, err = client.Write(buffer[:n])
		}
	}
}
