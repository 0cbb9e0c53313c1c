package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// caller sends requests over one connection, which it opens anew when it was
// closed. It speaks HTTP itself, because net/http's client would take as much
// of the machine as the server.
type caller struct {
	address string
	conn    net.Conn
	in      *bufio.Reader
}

// response is what a caller got.
type response struct {
	status     int // 0: no response
	code       string
	retryAfter string
	took       time.Duration
}

// request is one request as it is sent.
func request(method, path, token string, body []byte, headers ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s /api/v1%s HTTP/1.1\r\nHost: drill\r\nX-Forwarded-Proto: https\r\nAuthorization: Bearer %s\r\n", method, path, token)
	if body != nil {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes()
}

// send sends a request and reads the whole response.
func (c *caller) send(ctx context.Context, request []byte) (a response) {
	begun := time.Now()
	defer func() { a.took = time.Since(begun) }()
	if c.conn == nil {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", c.address)
		if err != nil {
			return a
		}
		c.conn, c.in = conn, bufio.NewReader(conn)
	}
	conn := c.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := c.conn.Write(request); err != nil {
		c.close()
		return a
	}
	res, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.close()
		return a
	}
	defer res.Body.Close()
	var start [256]byte
	n, _ := io.ReadFull(res.Body, start[:])
	if _, err = io.Copy(io.Discard, res.Body); err != nil {
		c.close()
		return a
	}
	if res.Close {
		c.close()
	}
	a.status, a.retryAfter = res.StatusCode, res.Header.Get("Retry-After")
	if a.status >= 400 {
		_, rest, _ := bytes.Cut(start[:n], []byte(`"code":"`))
		code, _, _ := bytes.Cut(rest, []byte(`"`))
		a.code = string(code)
	}
	return a
}

func (c *caller) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// tally collects answers from many callers.
type tally struct {
	mu  sync.Mutex
	all []response
}

func (t *tally) add(a response) {
	t.mu.Lock()
	t.all = append(t.all, a)
	t.mu.Unlock()
}

// count is how many answers the condition holds for.
func (t *tally) count(holds func(response) bool) (n int) {
	for _, a := range t.all {
		if holds(a) {
			n++
		}
	}
	return n
}

func ok(a response) bool { return a.status >= 200 && a.status < 300 }

// failed is a response that says it was not the caller's doing, or none at all.
func failed(a response) bool { return a.status == 0 || a.status >= 500 }

// at is the quantile of the times of responses that the condition holds for.
func (t *tally) at(quantile float64, holds func(response) bool) time.Duration {
	var took []time.Duration
	for _, a := range t.all {
		if holds(a) {
			took = append(took, a.took)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[min(len(took)-1, int(quantile*float64(len(took))))]
}

// String shows how often each status and code came.
func (t *tally) String() string {
	seen := map[string]int{}
	for _, a := range t.all {
		seen[fmt.Sprintf("%d %s", a.status, a.code)]++
	}
	kinds := make([]string, 0, len(seen))
	for kind, n := range seen {
		kinds = append(kinds, fmt.Sprintf("%s: %d", kind, n))
	}
	slices.Sort(kinds)
	return fmt.Sprint(kinds)
}
