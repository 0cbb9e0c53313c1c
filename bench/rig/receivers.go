package rig

import (
	"context"
	"encoding/json"
	"errors"
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

// Receiver is receivers of webhooks, told apart by their paths.
type Receiver struct {
	*httptest.Server

	mu       sync.Mutex
	answers  map[string]http.HandlerFunc // by path; 200 where there is none
	began    map[string][]time.Time      // requests, by path
	events   map[string]int              // how often each came, by id
	arrivals map[int]time.Time           // of events whose reason is a number
}

// Receiver starts one that ends with the run.
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
	var told struct{ ID string }
	_ = json.Unmarshal(body, &told) // an event that a run has made up need not be one
	v.mu.Lock()
	v.began[r.URL.Path] = append(v.began[r.URL.Path], at)
	v.events[told.ID]++
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

// Answer has requests of a path answered so.
func (v *Receiver) Answer(path string, with http.HandlerFunc) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.answers[path] = with
}

// After answers with a status after a while.
func After(d time.Duration, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		Pause(r.Context(), d)
		w.WriteHeader(status)
	}
}

// Requests are when those of a path began.
func (v *Receiver) Requests(path string) []time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.began[path])
}

// Asked is how many requests of a path there were.
func (v *Receiver) Asked(path string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.began[path])
}

// Events are how often each event came, by id.
func (v *Receiver) Events() map[string]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.events)
}

// Hole is a URL that takes connections and never answers.
func (r *Run) Hole() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.Must(err)
	r.Cleanup(l.Close)
	return "http://" + l.Addr().String()
}

// Watched are guilds with one endpoint each, whose events are timed.
type Watched struct {
	place    *Place
	receiver *Receiver
	tokens   []string // one for each guild
	writes   int
}

// Watch makes such guilds.
func (p *Place) Watch(receiver *Receiver, guilds int) *Watched {
	w := &Watched{place: p, receiver: receiver}
	alone, _ := p.Crowd(guilds, Crowd{URL: receiver.URL + "/watched", Alone: true})
	for _, guild := range alone {
		w.tokens = append(w.tokens, p.Token(guild))
	}
	return w
}

// For writes for all of them at a rate, evenly, and returns how long the events took
// from the response of the write to the receiver: an hour where one has not come within
// a minute.
func (w *Watched) For(ctx context.Context, n *Node, rate int, length time.Duration) *Tally {
	first := w.writes
	var mu sync.Mutex
	answered := map[int]time.Time{}
	calls := Load{
		Address: n.HTTP, Connections: max(len(w.tokens), 16), Rate: rate, For: length,
		Request: func(connection, k int) []byte {
			body := fmt.Appendf(nil, `{"user_id":"300000000000000001","delta":1,"reason":"numbered %d"}`, first+k)
			return Request("POST", "/economy/adjust", w.tokens[connection%len(w.tokens)], body)
		},
		Seen: func(k int, a Response) {
			if OK(a) {
				mu.Lock()
				answered[first+k] = time.Now()
				mu.Unlock()
			}
		},
	}.Run(ctx)
	w.writes += calls.N()
	if !calls.AllOK() {
		w.place.Must(errors.Join(ctx.Err(), fmt.Errorf("writes that are watched fail: %s; the server said:\n%s", calls, n.Complaints())))
	}
	v, took := w.receiver, &Tally{length: calls.length}
	w.place.Await(time.Minute, func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		for k := range answered {
			if v.arrivals[k].IsZero() {
				return false
			}
		}
		return true
	})
	v.mu.Lock()
	defer v.mu.Unlock()
	for k, at := range answered {
		arrived, came := v.arrivals[k]
		if !came {
			arrived = at.Add(time.Hour)
		}
		took.Add(Response{Status: http.StatusOK, Took: max(arrived.Sub(at), 0)})
	}
	return took
}

// Crowd says what many endpoints are that wait.
type Crowd struct {
	URL   string
	Each  int // deliveries that wait for each
	Wait  Wait
	Alone bool // each in a guild of its own, not ten to a guild
}

// Wait is what deliveries wait for.
type Wait string

// Deliveries wait for one of three: nothing, they are due; the next attempt, in an
// hour; the end of their endpoint's block, in an hour.
const (
	Due     Wait = ""
	Retry   Wait = "retry"
	Blocked Wait = "blocked"
)

// crowdRows are the rows of endpoints: $1 are their guilds, $2 their ids.
var crowdRows = []string{
	`INSERT INTO guilds (id, name, owner_id) SELECT DISTINCT g, g, g FROM unnest($1::text[], $2::text[]) AS n (g, id) ON CONFLICT DO NOTHING`,
	`INSERT INTO webhook_events (guild_id, id, type, payload)
	 SELECT g, 'crowd-' || id, 'economy.balance_changed', convert_to('{"id":"' || id || '"}', 'UTF8')
	 FROM unnest($1::text[], $2::text[]) AS n (g, id)`,
}

// crowded is the last guild that was made for a crowd.
var crowded atomic.Int64

// Crowd makes n endpoints in new guilds, and returns the guild and the id of each.
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
		g, id := db.Array(part), db.Array(made)
		p.Fill(crowdRows, g, id)
		p.Exec(`
			INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
			SELECT g, id, $4, $5, decode(s, 'hex'), '' FROM unnest($1::text[], $2::text[], $3::text[]) AS n (g, id, s)`,
			g, id, db.Array(secrets), of.URL, db.Array(event.Types))
		p.Exec(`
			INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_type, fresh, due_at)
			SELECT g, id, 'crowd-' || id, 'economy.balance_changed', false,
			       now() + CASE WHEN $3 = 'retry' THEN interval '1 hour' ELSE '0' END
			FROM unnest($1::text[], $2::text[]) AS n (g, id), generate_series(1, $4)`, g, id, string(of.Wait), of.Each)
		p.Exec(`
			INSERT INTO webhook_schedule (guild_id, endpoint_id, next_due, failures, blocks, failing_since, blocked_until)
			SELECT g, id, CASE WHEN $4 > 0 THEN now() + CASE WHEN $3 = '' THEN '0' ELSE interval '1 hour' END END,
			       CASE $3 WHEN 'retry' THEN 1 WHEN 'blocked' THEN 5 ELSE 0 END,
			       CASE $3 WHEN 'blocked' THEN 1 ELSE 0 END,
			       CASE WHEN $3 <> '' THEN now() END,
			       CASE WHEN $3 = 'blocked' THEN now() + interval '1 hour' END
			FROM unnest($1::text[], $2::text[]) AS n (g, id)`, g, id, string(of.Wait), of.Each)
		ids = append(ids, made...)
	}
	return guilds, ids
}
