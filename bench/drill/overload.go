package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// overloadSize is how big the drill is.
type overloadSize struct {
	ledger  int
	length  time.Duration // of one measurement
	best    []int         // numbers of connections among which the best throughput is looked for
	times   []int         // of those, how many are then tried
	most    []int         // and how many connections besides
	delay   time.Duration // of the slow database
	measure bool          // hold throughput and memory, too
}

var fullOverload = overloadSize{
	ledger: 200_000, length: 6 * time.Second, best: []int{8, 32, 100}, times: []int{5, 20}, most: []int{2000}, delay: 300 * time.Millisecond, measure: true,
}

// The kinds of work, each a stage of the drill.
const (
	cheapCalls   = "cheap calls"
	deepLists    = "lists of 100 at depth"
	slowDatabase = "a slow database"
)

// The bounds that hold under overload.
const (
	goodput      = 0.8
	refusedAfter = 2 * time.Second
	memoryBound  = 128 << 20
)

// overload calls with more and more connections, each of which waits for its
// answer, until far more come than can be served. The number of calls that are served
// must not fall, and a caller that is not served must be told so in time.
func overload(ctx context.Context, p place, r *report, size overloadSize) error {
	// Both guilds have the same, so that a call costs the same whoever makes it.
	both := map[string]int{guildA: size.ledger, guildB: size.ledger}
	if err := p.load(ctx, func(w io.Writer) error { return guildsWith(w, both) }); err != nil {
		return err
	}
	deep := max(1, size.ledger/100/2)
	for _, work := range []struct {
		name  string
		delay time.Duration
		call  func(token string, n int) []byte
	}{
		{cheapCalls, 0, func(token string, n int) []byte {
			return request("GET", fmt.Sprintf("/economy/wallet/%d", member(n%1000)), token, nil)
		}},
		{deepLists, 0, func(token string, n int) []byte {
			return request("GET", fmt.Sprintf("/economy/ledger?per_page=100&page=%d", 1+n%deep), token, nil)
		}},
		{slowDatabase, size.delay, func(token string, n int) []byte {
			if n%2 == 0 {
				return request("POST", "/economy/adjust", token, fmt.Appendf(nil, `{"user_id":"%d","delta":1}`, member(n%1000)))
			}
			return request("GET", fmt.Sprintf("/economy/wallet/%d", member(n%1000)), token, nil)
		}},
	} {
		if !p.wants(work.name) {
			continue
		}
		if err := size.underLoad(ctx, p, r, work.name, work.delay, work.call); err != nil {
			return fmt.Errorf("%s: %w", work.name, err)
		}
	}
	return nil
}

// underLoad finds the best throughput of one kind of work on a server of its
// own, and then asks for more.
func (size overloadSize) underLoad(ctx context.Context, p place, r *report, name string, delay time.Duration, call func(string, int) []byte) (err error) {
	tokens, err := p.tokens(ctx, guildA, 32)
	if err != nil {
		return err
	}
	others, err := p.tokens(ctx, guildB, 32)
	if err != nil {
		return err
	}
	tokens = append(tokens, others...)
	if delay > 0 {
		slow, err := slowLink(p.databaseURL, delay)
		if err != nil {
			return err
		}
		defer slow.close()
		p.databaseURL = slow.url
	}
	s, err := p.serve(ctx, "GUILDHALL_RATE_READ=off", "GUILDHALL_RATE_WRITE=off")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	load := func(connections int) *tally { return s.closedLoop(ctx, connections, size.length, tokens, call) }
	load(size.best[0]) // connections, tokens and statements are there after this

	best, at := 0.0, 0
	for _, n := range size.best {
		if rate := perSecond(load(n), size.length); rate > best {
			best, at = rate, n
		}
	}
	r.say("%s: best with %d connections, %.0f /s", name, at, best)
	numbers := append([]int{}, size.most...)
	for _, times := range size.times {
		numbers = append(numbers, times*at)
	}
	for _, n := range numbers {
		// Other work of the machine falls on both.
		before := perSecond(load(at), size.length)
		t := load(n)
		best := (before + perSecond(load(at), size.length)) / 2
		size.judge(r, fmt.Sprintf("%s, %d connections", name, n), t, best, s.peak())
	}
	before := load(at)
	load(at * size.times[len(size.times)-1])
	if !pause(ctx, 5*time.Second) {
		return ctx.Err()
	}
	after := load(at)
	// A slow database may not do for all even of the best number of connections.
	r.hold(after.succeeded() > 0 && after.succeeded() >= before.succeeded()-0.05, "%s: 5 s later %.0f %% of the calls succeed, as before (%.0f %%)",
		name, 100*after.succeeded(), 100*before.succeeded())
	r.hold(s.ready(ctx), "%s: 5 s later it is ready", name)
	if size.measure {
		share := perSecond(after, size.length) / perSecond(before, size.length)
		r.hold(share >= goodput, "%s: 5 s later %.0f %% of what it was", name, 100*share)
	}
	return nil
}

// judge holds what callers got under overload against the promises.
func (size overloadSize) judge(r *report, what string, t *tally, best float64, peak int64) {
	rate, refused := perSecond(t, size.length), func(a response) bool { return a.status == 503 || a.status == 429 }
	last := t.at(1, refused)
	r.say("%s: %.0f /s, best %.0f, p99 %.0f ms, %d MB at the peak %v", what, rate, best, ms(t.at(0.99, ok)), peak>>20, t)
	r.hold(t.count(ok) > 0, "%s: something is served", what)
	r.hold(t.count(func(a response) bool { return !ok(a) && (a.status != 503 || a.retryAfter == "") }) == 0,
		"%s: what is not served is refused with 503 and Retry-After", what)
	if size.measure {
		r.hold(last <= refusedAfter*5/4, "%s: refusals within %v, give or take the machine's quarter (the last after %.0f ms)", what, refusedAfter, ms(last))
		r.hold(rate >= goodput*best, "%s: goodput %.0f %% of the best", what, 100*rate/best)
		r.hold(peak <= memoryBound, "%s: %d MB at the peak, at most %d", what, peak>>20, memoryBound>>20)
	}
}

func perSecond(t *tally, length time.Duration) float64 {
	return float64(t.count(ok)) / length.Seconds()
}

// succeeded is the share of calls that did.
func (t *tally) succeeded() float64 { return float64(t.count(ok)) / max(1, float64(len(t.all))) }

// closedLoop keeps as many requests under way as there are connections, for a
// while. A caller that was refused waits as long as a caller would that does not
// listen: not at all, but not in a tight loop.
func (s *server) closedLoop(ctx context.Context, connections int, length time.Duration, tokens []string, call func(string, int) []byte) *tally {
	stage, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var t tally
	var next atomic.Int64
	var all sync.WaitGroup
	for i := range connections {
		all.Go(func() {
			c := &caller{address: s.HTTP}
			defer c.close()
			for stage.Err() == nil {
				a := c.send(ctx, call(tokens[i%len(tokens)], int(next.Add(1))))
				t.add(a)
				if !ok(a) {
					pause(stage, 10*time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	return &t
}

// link is a way to the database that takes its time.
type link struct {
	url      string
	listener net.Listener
}

func (l *link) close() { _ = l.listener.Close() }

// slowLink puts a TCP proxy before the database that passes each response on after
// a delay.
func slowLink(databaseURL string, delay time.Duration) (*link, error) {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return nil, err
	}
	target := u.Host
	l := &link{}
	if l.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	u.Host = l.listener.Addr().String()
	l.url = u.String()
	go func() {
		for {
			client, err := l.listener.Accept()
			if err != nil {
				return
			}
			go carry(client, target, delay)
		}
	}()
	return l, nil
}

func carry(client net.Conn, target string, delay time.Duration) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := server.Read(buf)
		if n > 0 {
			time.Sleep(delay)
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
