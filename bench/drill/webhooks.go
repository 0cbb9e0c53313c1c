package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"guildhall/bench/crowd"
	"guildhall/internal/access/seal"
	"guildhall/internal/base/db"
)

// webhooksSize is how big the drill is.
type webhooksSize struct {
	watched int           // guilds with one endpoint each, whose events are watched
	length  time.Duration // of one measurement
	flood   int           // events for one endpoint
	hanging int           // endpoints that never answer
	backlog int           // deliveries that wait for a slow endpoint
	waiting int           // deliveries that wait for an endpoint that is disabled, enabled, gone and deleted
	held    int           // deliveries that are held while older ones are pruned
	old     int           // those
	measure bool          // hold times, too
}

var fullWebhooks = webhooksSize{
	watched: 20, length: 15 * time.Second, flood: 50_000, hanging: 10_000, backlog: 10_000,
	waiting: 5_000_000, held: 500_000, old: 50_000, measure: true,
}

// webhooksStages are those that each have a server of their own from the beginning.
var webhooksStages = []struct {
	name string
	run  func(*hooks, context.Context, *server) error
}{
	{"a flood of one guild", (*hooks).flood},
	{"eight guilds of slow receivers", (*hooks).slowGuilds},
	{"a slow endpoint with a backlog", (*hooks).slowEndpoint},
	{"endpoints that never answer", (*hooks).neverRespond},
	{"a receiver that asks for a pause", (*hooks).politePause},
	{"an endpoint for which very much waits", (*hooks).bigBacklog},
}

// pruning is the name of the last stage, which fills the tables before its server
// starts.
const pruning = "pruning"

func webhooksStageNames() (names []string) {
	for _, stage := range webhooksStages {
		names = append(names, stage.name)
	}
	return names
}

// receivers lets receivers and guilds do what they do at their worst, and watches
// how long the events of others take from the response of the write to the
// receiver; then it changes an endpoint for which very much waits.
func receivers(ctx context.Context, p place, r *report, size webhooksSize) (err error) {
	h, err := newHooks(ctx, p, r, size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	for _, stage := range webhooksStages {
		if !p.wants(stage.name) {
			continue
		}
		if err := h.stage(ctx, func(ctx context.Context, s *server) error { return stage.run(h, ctx, s) }); err != nil {
			return fmt.Errorf("%s: %w", stage.name, err)
		}
	}
	if !p.wants(pruning) {
		return nil
	}
	return h.pruning(ctx)
}

// hooks is what the drill of webhooks works with.
type hooks struct {
	place  place
	report *report
	size   webhooksSize
	db     *db.DB
	sql    *sql.DB // without a time limit
	box    *seal.Box
	guilds []string
	tokens map[string]string // one of each watched guild

	receiver *httptest.Server
	hole     net.Listener
	arrivals arrivals

	mu        sync.Mutex
	responses map[string]http.HandlerFunc // by path
	began     map[string][]time.Time      // requests, by path
	writes    atomic.Int64                // numbers of the watched ones
}

// arrivals are when the watched events came, by number.
type arrivals struct {
	mu sync.Mutex
	at map[int64]time.Time
}

func newHooks(ctx context.Context, p place, r *report, size webhooksSize) (_ *hooks, err error) {
	h := &hooks{place: p, report: r, size: size, tokens: make(map[string]string), responses: make(map[string]http.HandlerFunc), began: make(map[string][]time.Time)}
	h.arrivals.at = make(map[int64]time.Time)
	if h.box, err = seal.New(secretKey); err != nil {
		return nil, err
	}
	if h.db, err = db.Open(db.Config{URL: p.databaseURL, Writers: 2, Readers: 2, Name: "drill"}); err != nil {
		return nil, err
	}
	if h.sql, err = db.OpenSQL(p.databaseURL, "drill-fill", 4); err != nil {
		return nil, err
	}
	if h.hole, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	h.receiver = httptest.NewServer(http.HandlerFunc(h.receive))
	for i := range size.watched {
		h.guilds = append(h.guilds, fmt.Sprint(700_000_000_000_000_000+i))
	}
	if _, err := crowd.Make(ctx, h.db, h.box, h.guilds, crowd.Of{URL: h.receiver.URL + "/watched"}); err != nil {
		return nil, err
	}
	for _, guild := range h.guilds {
		tokens, err := p.tokens(ctx, guild, 1)
		if err != nil {
			return nil, err
		}
		h.tokens[guild] = tokens[0]
	}
	return h, nil
}

func (h *hooks) close() error {
	h.receiver.CloseClientConnections()
	h.receiver.Close()
	return errors.Join(h.hole.Close(), h.sql.Close(), h.db.Close())
}

// receive is all receivers, told apart by their paths.
func (h *hooks) receive(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	h.mu.Lock()
	h.began[r.URL.Path] = append(h.began[r.URL.Path], at)
	response := h.responses[r.URL.Path]
	h.mu.Unlock()
	var n int64
	if _, tail, ok := strings.Cut(string(body), `"reason":"drill `); ok {
		if _, err := fmt.Sscanf(tail, "%d", &n); err == nil {
			h.arrivals.mu.Lock()
			if _, known := h.arrivals.at[n]; !known {
				h.arrivals.at[n] = at
			}
			h.arrivals.mu.Unlock()
		}
	}
	if response != nil {
		response(w, r)
	}
}

func (h *hooks) respond(path string, with http.HandlerFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.responses[path] = with
}

// requests returns when those of a path began.
func (h *hooks) requests(path string) []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.began[path])
}

func after(d time.Duration, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		pause(r.Context(), d)
		w.WriteHeader(status)
	}
}

// stage runs one stage on a server of its own and then forgets all endpoints
// but the watched.
func (h *hooks) stage(ctx context.Context, run func(context.Context, *server) error) error {
	s, err := h.place.serve(ctx, "GUILDHALL_RATE_READ=off", "GUILDHALL_RATE_WRITE=off", "GUILDHALL_WEBHOOK_ALLOW=127.0.0.0/8")
	if err != nil {
		return err
	}
	err = run(ctx, s)
	h.receiver.CloseClientConnections() // the server waits for its sends when it stops
	err = errors.Join(err, s.Stop())
	for _, statement := range []string{
		`TRUNCATE webhook_deliveries, webhook_events, webhook_attempts`,
		`DELETE FROM webhook_endpoints WHERE url NOT LIKE '%/watched'`,
		`DELETE FROM webhook_schedule s WHERE NOT EXISTS (SELECT FROM webhook_endpoints e WHERE e.guild_id = s.guild_id AND e.id = s.endpoint_id)`,
	} {
		if _, failed := h.sql.ExecContext(ctx, statement); failed != nil {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// watch writes for each watched guild ten times a second and returns the times
// from the responses to the arrivals.
func (h *hooks) watch(ctx context.Context, s *server) (took []time.Duration, err error) {
	stage, cancel := context.WithTimeout(ctx, h.size.length)
	defer cancel()
	var mu sync.Mutex
	answered := make(map[int64]time.Time)
	var all sync.WaitGroup
	for _, guild := range h.guilds {
		all.Go(func() {
			c := &caller{address: s.HTTP}
			defer c.close()
			for pause(stage, 100*time.Millisecond) {
				n := h.writes.Add(1)
				a := c.send(ctx, request("POST", "/economy/adjust", h.tokens[guild], fmt.Appendf(nil, `{"user_id":"%d","delta":1,"reason":"drill %d"}`, member(1), n)))
				mu.Lock()
				if ok(a) {
					answered[n] = time.Now()
				} else {
					err = fmt.Errorf("a write was answered with %d %s after %.0f ms; the server said:\n%s", a.status, a.code, ms(a.took), s.complaints())
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if err != nil {
		return nil, err
	}
	h.within(ctx, time.Minute, func() bool {
		h.arrivals.mu.Lock()
		defer h.arrivals.mu.Unlock()
		for n := range answered {
			if _, ok := h.arrivals.at[n]; !ok {
				return false
			}
		}
		return true
	})
	h.arrivals.mu.Lock()
	defer h.arrivals.mu.Unlock()
	for n, at := range answered {
		arrived, ok := h.arrivals.at[n]
		if !ok {
			arrived = at.Add(time.Hour) // not within a minute
		}
		took = append(took, max(arrived.Sub(at), 0))
	}
	if len(took) == 0 {
		return nil, errors.New("nothing was written")
	}
	slices.Sort(took)
	return took, ctx.Err()
}

func p99(took []time.Duration) time.Duration { return took[len(took)*99/100] }

// beside watches before something is done and while it lasts. The events of the
// others may take so many times as long, and a little more.
func (h *hooks) beside(ctx context.Context, s *server, what string, times float64, more time.Duration, do func() error) error {
	if _, err := h.watch(ctx, s); err != nil { // connections, statements and endpoints are known after this
		return err
	}
	before, err := h.watch(ctx, s)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	during, err := h.watch(ctx, s)
	if err != nil {
		return err
	}
	last := during[len(during)-1]
	limit := time.Duration(times*float64(p99(before))) + more
	h.report.say("%s: others' events p50 %.1f ms, p99 %.1f ms, last %.1f ms; before p50 %.1f, p99 %.1f", what,
		ms(during[len(during)/2]), ms(p99(during)), ms(last), ms(before[len(before)/2]), ms(p99(before)))
	h.report.hold(last < time.Minute, "%s: every event of the others arrives (%d)", what, len(during))
	if h.size.measure {
		h.report.hold(p99(during) <= limit, "%s: p99 of the others %.1f ms, at most %.1f", what, ms(p99(during)), ms(limit))
	}
	return nil
}

// within waits until something is so, and reports whether it came.
func (h *hooks) within(ctx context.Context, limit time.Duration, so func() bool) bool {
	for deadline := time.Now().Add(limit); !so(); {
		if time.Now().After(deadline) || !pause(ctx, 10*time.Millisecond) {
			return false
		}
	}
	return true
}

func (h *hooks) count(ctx context.Context, query string, args ...any) (n int) {
	if err := h.sql.QueryRowContext(ctx, query, args...).Scan(&n); err != nil {
		return -1
	}
	return n
}

// others makes endpoints that are not watched, so many to a guild.
func (h *hooks) others(ctx context.Context, n, perGuild int, of crowd.Of) (guild, endpoint string, err error) {
	guilds := make([]string, n)
	for i := range guilds {
		guilds[i] = fmt.Sprint(100_000_000_000_000_000 + h.writes.Add(1)*1_000_000 + int64(i/perGuild))
	}
	for i := range guilds { // the same number for the whole of a guild
		guilds[i] = guilds[i-i%perGuild]
	}
	ids, err := crowd.Make(ctx, h.db, h.box, guilds, of)
	if err != nil {
		return "", "", err
	}
	return guilds[0], ids[0], nil
}
