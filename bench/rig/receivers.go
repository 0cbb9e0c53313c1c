package rig

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/event"
)

// Receiver is an HTTP server that plays several webhook receivers, one for each path.
type Receiver struct {
	*httptest.Server

	mu       sync.Mutex
	answers  map[string]http.HandlerFunc // responses by path; without one the status is 200
	began    map[string][]time.Time      // when requests arrived, by path
	events   map[string]int              // how often each event arrived, by id
	arrivals map[int]time.Time           // when the events of numbered writes arrived: their reason is a number
}

// Receiver starts a Receiver that stops at the end of the run.
func (r *Run) Receiver() *Receiver {
	v := &Receiver{
		answers: map[string]http.HandlerFunc{}, began: map[string][]time.Time{}, events: map[string]int{}, arrivals: map[int]time.Time{},
	}
	v.Server = httptest.NewServer(http.HandlerFunc(v.receive))
	r.Cleanup(func() error { v.CloseClientConnections(); v.Close(); return nil })
	return v
}

func (v *Receiver) receive(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var payload struct{ ID string }
	_ = json.Unmarshal(body, &payload) // an event that a benchmark has made up may have another form
	v.mu.Lock()
	v.began[r.URL.Path] = append(v.began[r.URL.Path], at)
	v.events[payload.ID]++
	if _, tail, numbered := strings.Cut(string(body), `"reason":"numbered `); numbered {
		var n int
		if _, err := fmt.Sscanf(tail, "%d", &n); err == nil && v.arrivals[n].IsZero() {
			v.arrivals[n] = at
		}
	}
	answer := v.answers[r.URL.Path]
	v.mu.Unlock()
	if answer != nil {
		answer(w, r)
	}
}

// Answer sets the response to requests of a path.
func (v *Receiver) Answer(path string, with http.HandlerFunc) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.answers[path] = with
}

// After returns a handler that waits for d and then responds with a status.
func After(d time.Duration, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		Pause(r.Context(), d)
		w.WriteHeader(status)
	}
}

// Requests returns when the requests of a path arrived.
func (v *Receiver) Requests(path string) []time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.began[path])
}

// Asked returns the number of requests of a path.
func (v *Receiver) Asked(path string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.began[path])
}

// arrived returns when the event of the nth numbered write first arrived.
func (v *Receiver) arrived(n int) time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.arrivals[n]
}

// Events returns how often each event arrived, by id.
func (v *Receiver) Events() map[string]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.events)
}

// Hole returns a URL that accepts connections and never responds.
func (r *Run) Hole() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.Must(err)
	r.Cleanup(l.Close)
	return "http://" + l.Addr().String()
}

// Watched is a number of guilds with one endpoint each, whose events are timed.
type Watched struct {
	place    *Place
	receiver *Receiver
	tokens   []string // one token for each guild
	writes   int
}

// Watch creates such guilds.
func (p *Place) Watch(receiver *Receiver, guilds int) *Watched {
	w := &Watched{place: p, receiver: receiver}
	alone, _ := p.Crowd(guilds, Crowd{URL: receiver.URL + "/watched", Alone: true})
	for _, guild := range alone {
		w.tokens = append(w.tokens, p.Token(guild))
	}
	return w
}

// For sends writes for all these guilds at an even rate and returns how long the events took.
func (w *Watched) For(n *Node, rate int, length time.Duration) *Tally {
	first := w.writes
	calls, lags := w.place.Lags(Load{
		Address: n.HTTP, Connections: max(len(w.tokens), 16), Rate: rate, For: length,
		Request: func(connection, k int) []byte {
			body := fmt.Appendf(nil, `{"user_id":"300000000000000001","delta":1,"reason":"numbered %d"}`, first+k)
			return Request("POST", "/economy/adjust", w.tokens[connection%len(w.tokens)], body)
		},
	}, func(k int) time.Time { return w.receiver.arrived(first + k) })
	w.writes += calls.N()
	w.place.Need(calls.AllOK(), "writes that are watched fail: %s; the server said:\n%s", calls, n.Log())
	return lags
}

// Lags sends writes and returns, for each that succeeded, how long its event took from the write's
// response to its arrival. An event that does not arrive within a minute counts as an hour.
func (r *Run) Lags(l Load, arrived func(n int) time.Time) (calls, lags *Tally) {
	var answered sync.Map // the number of the write, and when it was answered
	l.Seen = func(n int, a Response) {
		if OK(a) {
			answered.Store(n, time.Now())
		}
	}
	calls, lags = new(Tally).Run(r, l), &Tally{}
	r.Await(time.Minute, func() bool {
		all := true
		answered.Range(func(n, _ any) bool {
			all = !arrived(n.(int)).IsZero()
			return all
		})
		return all
	})
	answered.Range(func(n, at any) bool {
		took := time.Hour
		if came := arrived(n.(int)); !came.IsZero() {
			took = max(came.Sub(at.(time.Time)), 0)
		}
		lags.Add(Response{Status: http.StatusOK, Took: took})
		return true
	})
	return calls, lags
}

// Crowd describes endpoints with waiting deliveries.
type Crowd struct {
	URL   string
	Each  int    // waiting deliveries of each endpoint
	Wait  string // what the deliveries wait for: empty for due deliveries, or Retry or Blocked
	Alone bool   // each endpoint has its own guild; otherwise ten share a guild
}

// Values of Crowd.Wait. With Retry, the next attempt of each delivery is an hour away. With
// Blocked, the end of the endpoint's block is an hour away.
const (
	Retry   = "retry"
	Blocked = "blocked"
)

//go:embed crowd.sql
var crowdRows string

// crowded is the number of the last guild that was created for a crowd.
var crowded atomic.Int64

// Crowd creates n endpoints in new guilds and returns the guild and the id of each.
func (p *Place) Crowd(n int, of Crowd) (guilds, ids []string) {
	for i := range n {
		if of.Alone || i%10 == 0 {
			crowded.Add(1)
		}
		guilds = append(guilds, fmt.Sprint(700_000_000_000_000_000+crowded.Load()))
	}
	for part := range slices.Chunk(guilds, 1000) {
		made, secrets := make([]string, len(part)), make([]string, len(part))
		for i, guild := range part {
			made[i] = db.NewID()
			secrets[i] = fmt.Sprintf("%x", p.Box.Seal([]byte("whsec_c2VjcmV0c2VjcmV0c2VjcmV0"), delivery.BoundTo(guild, made[i])))
		}
		p.Exec(crowdRows, db.Array(part), db.Array(made), db.Array(secrets), of.URL, db.Array(event.Types), of.Each, of.Wait)
		ids = append(ids, made...)
	}
	return guilds, ids
}
