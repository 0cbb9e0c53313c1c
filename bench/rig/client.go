package rig

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Request returns the bytes of one HTTP request. An empty body means no body.
func Request(method, path, token string, body []byte, headers ...string) []byte {
	b := fmt.Appendf(nil, "%s /api/v1%s HTTP/1.1\r\nHost: bench\r\nX-Forwarded-Proto: https\r\n", method, path)
	b = fmt.Appendf(b, "Authorization: Bearer %s\r\n", token)
	if len(body) > 0 {
		b = fmt.Appendf(b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	for _, h := range headers {
		b = append(append(b, h...), "\r\n"...)
	}
	return append(append(b, "\r\n"...), body...)
}

// Response is the response to one request.
type Response struct {
	Status     int // 0: no response
	Code       string
	RetryAfter string
	Took       time.Duration
	First      time.Duration // time to the first byte
}

// OK reports whether the response is a success.
func OK(a Response) bool { return a.Status >= 200 && a.Status < 300 }

// Failed reports whether there was no response or a server error.
func Failed(a Response) bool { return a.Status == 0 || a.Status >= 500 }

// Caller sends requests over one connection, which it reopens when needed. It does not use
// net/http's client, which would need as much CPU as the server.
type Caller struct {
	Address string
	Body    bytes.Buffer // the body of the last response

	conn net.Conn
	in   *bufio.Reader
}

// Send sends a request and reads the whole response. The timeout is a minute.
func (c *Caller) Send(ctx context.Context, request []byte) (a Response) {
	begun := time.Now()
	defer func() {
		a.Took = time.Since(begun)
		if a.Status == 0 {
			c.Close()
		}
	}()
	if c.conn == nil {
		conn, err := (&net.Dialer{Timeout: time.Minute}).DialContext(ctx, "tcp", c.Address)
		if err != nil {
			return a
		}
		c.conn, c.in = conn, bufio.NewReaderSize(conn, 32<<10)
	}
	conn := c.conn
	_ = conn.SetDeadline(begun.Add(time.Minute)) // an error shows when the connection is used
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
		defer stop()
	}
	if _, err := conn.Write(request); err != nil {
		return a
	}
	_, _ = c.in.Peek(1) // an error shows in the next read
	a.First = time.Since(begun)
	res, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return a
	}
	defer res.Body.Close()
	c.Body.Reset()
	if _, err := c.Body.ReadFrom(res.Body); err != nil {
		return a
	}
	if res.Close {
		c.Close()
	}
	a.Status = res.StatusCode
	if a.Status >= 400 {
		a.RetryAfter = res.Header.Get("Retry-After")
		_, rest, _ := bytes.Cut(c.Body.Bytes(), []byte(`"code":"`))
		code, _, _ := bytes.Cut(rest, []byte(`"`))
		a.Code = string(code)
	}
	return a
}

// Data decodes the member `data` of the last response.
func (c *Caller) Data(into any) error {
	return json.Unmarshal(c.Body.Bytes(), &struct {
		Data any `json:"data"`
	}{into})
}

// Close closes the connection.
func (c *Caller) Close() {
	if c.conn != nil {
		_ = c.conn.Close() // it may be closed already
		c.conn = nil
	}
}

// Send sends one request over a new connection.
func (r *Run) Send(address string, request []byte) Response {
	c := &Caller{Address: address}
	defer c.Close()
	return c.Send(r, request)
}

// Ask sends one request over a new connection and decodes the response's data, unless into is nil.
// Anything but a success ends the run.
func (r *Run) Ask(address string, request []byte, into any) {
	c := &Caller{Address: address}
	defer c.Close()
	a := c.Send(r, request)
	r.Need(OK(a), "%.60q is answered with %d %s", request, a.Status, &c.Body)
	if into != nil {
		r.Must(c.Data(into))
	}
}

// Load is a load over several connections. Each connection waits for a response before it sends the
// next request.
type Load struct {
	Address     string
	Connections int
	Rate        int           // requests per second of all connections together; 0: no limit
	For         time.Duration // how long; 0: until the context ends
	Total       int           // number of requests; 0: no limit
	Request     func(connection, n int) []byte
	Seen        func(n int, a Response) // called for each response; may be nil
}

// Run sends a load, waits for the last responses, and adds all responses to t.
func (t *Tally) Run(ctx context.Context, l Load) *Tally {
	if l.For > 0 {
		during, cancel := context.WithTimeout(ctx, l.For)
		defer cancel()
		ctx = during
	}
	every := time.Duration(0) // the interval of one connection
	if l.Rate > 0 {
		every = time.Second * time.Duration(l.Connections) / time.Duration(l.Rate)
	}
	var next atomic.Int64
	var all sync.WaitGroup
	begun := time.Now()
	for i := range l.Connections {
		all.Go(func() {
			c := &Caller{Address: l.Address}
			defer c.Close()
			for due := begun.Add(every * time.Duration(i) / time.Duration(l.Connections)); ctx.Err() == nil; due = due.Add(every) {
				if l.Rate > 0 && !Pause(ctx, time.Until(due)) {
					return
				}
				n := int(next.Add(1)) - 1
				if l.Total > 0 && n >= l.Total {
					return
				}
				a := c.Send(context.WithoutCancel(ctx), l.Request(i, n))
				t.Add(a)
				if l.Seen != nil {
					l.Seen(n, a)
				}
				if !OK(a) { // ignores Retry-After, but does not retry in a tight loop
					Pause(ctx, 10*time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.length += time.Since(begun)
	return t
}

// Tally collects the responses of many callers.
type Tally struct {
	mu     sync.Mutex
	all    []Response
	length time.Duration
}

// Add adds a response.
func (t *Tally) Add(a Response) {
	t.mu.Lock()
	t.all = append(t.all, a)
	t.mu.Unlock()
}

// Since returns the responses after the first n.
func (t *Tally) Since(n int) *Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &Tally{all: slices.Clone(t.all[n:]), length: t.length}
}

// N returns the number of responses.
func (t *Tally) N() int { return t.Count(func(Response) bool { return true }) }

// Count returns the number of responses for which holds returns true.
func (t *Tally) Count(holds func(Response) bool) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.all {
		if holds(a) {
			n++
		}
	}
	return n
}

// AllOK reports whether there are responses and all are successes.
func (t *Tally) AllOK() bool { return t.N() > 0 && t.Count(OK) == t.N() }

// Rate returns the successes per second.
func (t *Tally) Rate() float64 { return float64(t.Count(OK)) / max(1e-9, t.length.Seconds()) }

// Ms returns a quantile of the successes' times, in milliseconds.
func (t *Tally) Ms(quantile float64) float64 { return Ms(t.At(quantile, OK)) }

// At returns a quantile of the times of the responses for which holds returns true.
func (t *Tally) At(quantile float64, holds func(Response) bool) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var took []time.Duration
	for _, a := range t.all {
		if holds(a) {
			took = append(took, a.Took)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[min(len(took)-1, int(quantile*float64(len(took))))]
}

// Ms returns a duration in milliseconds.
func Ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// String returns the number of responses, the times of the successes, and the number of responses
// by status and code.
func (t *Tally) String() string {
	kinds := map[string]int{}
	for _, a := range t.Since(0).all {
		kinds[strings.TrimSpace(fmt.Sprintf("%d %s", a.Status, a.Code))]++
	}
	text := fmt.Sprintf("%d, p50 %.1f ms, p95 %.1f, p99 %.1f, last %.1f", t.N(), t.Ms(0.5), t.Ms(0.95), t.Ms(0.99), t.Ms(1))
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		text += fmt.Sprintf(", %s: %d", kind, kinds[kind])
	}
	return text
}
