package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// attack is one thing that guild A does, inside the quotas of its tokens.
type attack struct {
	name string
	run  func(context.Context, *attackSite)
}

// attackSite is what an attack has to work with. Each takes tokens that have
// spent nothing.
type attackSite struct {
	server    *server
	rows      int // of the ledger
	responses tally

	mu     sync.Mutex
	tokens []string
}

func (a *attackSite) token() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tokens[0]
	a.tokens = a.tokens[1:]
	return t
}

// A token may read 600 times and write 120 times a minute, which it may do at
// once.
const reads, writes = 600, 120

var attacks = []attack{
	{"deep pages", deepPages},
	{"silent names", silentWebhooks},
	{"a burst of cases", burstOfCases},
	{"one wallet", oneWallet},
	{"slow bodies", slowBodies},
	{"slow readers", slowReaders},
	{"duplicates of one key", duplicates},
	{"large bodies", largeBodies},
}

func allAtOnce(ctx context.Context, a *attackSite) {
	var all sync.WaitGroup
	for _, one := range attacks {
		all.Go(func() { one.run(ctx, a) })
	}
	all.Wait()
}

// flood sends total requests over as many connections as wanted, as fast as
// they are answered.
func (a *attackSite) flood(ctx context.Context, connections, total int, request func(n int) []byte) {
	next := make(chan int)
	go func() {
		defer close(next)
		for n := range total {
			select {
			case next <- n:
			case <-ctx.Done():
				return
			}
		}
	}()
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			c := &caller{address: a.server.HTTP}
			defer c.close()
			for n := range next {
				a.responses.add(c.send(ctx, request(n)))
			}
		})
	}
	all.Wait()
}

func deepPages(ctx context.Context, a *attackSite) {
	deepest := request("GET", fmt.Sprintf("/economy/ledger?page=%d&per_page=100", max(1, a.rows/100)), a.token(), nil)
	a.flood(ctx, 64, reads, func(int) []byte { return deepest })
}

func silentWebhooks(ctx context.Context, a *attackSite) {
	token := a.token()
	a.flood(ctx, writes, writes, func(n int) []byte {
		return request("POST", "/webhooks", token, fmt.Appendf(nil, `{"url":"https://slow-%d.drill.test/x","events":["case.created"]}`, n))
	})
}

func burstOfCases(ctx context.Context, a *attackSite) {
	token := a.token()
	a.flood(ctx, writes, writes, func(n int) []byte {
		return request("POST", "/cases", token, fmt.Appendf(nil, `{"user_id":"%d","moderator_id":"7","type":"warn","reason":"burst"}`, member(n)))
	})
}

func oneWallet(ctx context.Context, a *attackSite) {
	tokens := []string{a.token(), a.token()}
	a.flood(ctx, 200, 200, func(n int) []byte {
		return request("POST", "/economy/adjust", tokens[n%2], fmt.Appendf(nil, `{"user_id":"%d","delta":1}`, member(1)))
	})
}

// slowBodies announces bodies and sends a byte a second of each.
func slowBodies(ctx context.Context, a *attackSite) {
	head := request("POST", "/economy/adjust", a.token(), nil, "Content-Type: application/json", "Content-Length: 1000")
	a.hold(ctx, writes, func(conn net.Conn) {
		if _, err := conn.Write(head); err != nil {
			return
		}
		for pause(ctx, time.Second) {
			if _, err := conn.Write([]byte(" ")); err != nil {
				return
			}
		}
	})
}

// slowReaders ask for long answers and never read them.
func slowReaders(ctx context.Context, a *attackSite) {
	list := bytes.Repeat(request("GET", "/economy/ledger?per_page=100", a.token(), nil), 6)
	a.hold(ctx, reads/6, func(conn net.Conn) {
		if _, err := conn.Write(list); err == nil {
			<-ctx.Done()
		}
	})
}

// hold opens connections and keeps them until the stage ends.
func (a *attackSite) hold(ctx context.Context, connections int, use func(net.Conn)) {
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "tcp", a.server.HTTP)
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

func duplicates(ctx context.Context, a *attackSite) {
	same := request("POST", "/economy/adjust", a.token(), fmt.Appendf(nil, `{"user_id":"%d","delta":1}`, member(2)), "Idempotency-Key: the-one")
	a.flood(ctx, writes, writes, func(int) []byte { return same })
}

func largeBodies(ctx context.Context, a *attackSite) {
	token := a.token()
	a.flood(ctx, writes, writes, func(n int) []byte {
		body := fmt.Appendf(nil, `{"user_id":"%d","delta":1}`, member(n))
		return request("POST", "/economy/adjust", token, append(body, bytes.Repeat([]byte(" "), 64<<10-len(body))...))
	})
}
