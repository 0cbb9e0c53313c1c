package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"guildhall/bench/crowd"
	"guildhall/bench/testbed"
	"guildhall/internal/outbound/egress"
	"guildhall/internal/service/webhooks"
)

// worker is the database role of the nodes, by which their statements are told
// from those of the load.
const worker = "bench_worker"

// webhookPlace is a place with receivers.
type webhookPlace struct {
	*testbed.Place
	webhookOptions
	workerURL string
	cfg       webhooks.Config
	trusted   *x509.CertPool
	guilds    []string // with one endpoint each, that events are recorded for
	crowds    int      // guilds of crowds so far
	quick     *httptest.Server
	slow      *httptest.Server // answers after delay
	broken    *httptest.Server // answers 500
	hole      string           // takes connections and never answers
	delay     atomic.Int64
	delivered atomic.Int64 // requests that slow has answered

	mu      sync.Mutex
	arrived map[int]time.Time // at quick, by number
}

// at measures something at a place of its own, with so many endpoints for which
// events are recorded.
func (o webhookOptions) at(ctx context.Context, endpoints int, measure func(*webhookPlace) error) (err error) {
	// Not Fast: what is measured includes waiting for the disk.
	place, err := testbed.New(ctx, testbed.Config{Statements: true, Writers: 16})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, place.Close()) }()
	p := &webhookPlace{Place: place, webhookOptions: o, trusted: x509.NewCertPool(), arrived: make(map[int]time.Time)}
	if p.workerURL, err = p.As(ctx, worker); err != nil {
		return err
	}
	p.cfg = webhooks.Config{DB: p.DB, Box: p.Box, Guard: egress.NewGuard([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, nil)}
	p.quick = httptest.NewTLSServer(http.HandlerFunc(p.arrive))
	p.trusted.AddCert(p.quick.Certificate())
	// Receivers of crowds would do their half of TLS elsewhere: without it, they
	// take less of this machine than they would with it.
	p.slow = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // whatever it is, it arrived
		time.Sleep(time.Duration(p.delay.Load()))
		p.delivered.Add(1)
	}))
	p.broken = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	for _, s := range []*httptest.Server{p.quick, p.slow, p.broken} {
		defer s.Close()
		defer s.CloseClientConnections()
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer silent.Close()
	p.hole = "http://" + silent.Addr().String()
	if err := p.endpoints(ctx, endpoints); err != nil {
		return err
	}
	if err := measure(p); err != nil || !o.verbose {
		return err
	}
	return p.Statements(ctx, worker)
}

// arrive notes when the event whose number is in the body has come.
func (p *webhookPlace) arrive(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	body, err := io.ReadAll(r.Body)
	_, tail, ok := strings.Cut(string(body), `"reason":"bench `)
	var n int
	if _, scanned := fmt.Sscanf(tail, "%d", &n); err != nil || !ok || scanned != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.arrived[n]; !known {
		p.arrived[n] = at
	}
	w.WriteHeader(http.StatusNoContent)
}

// endpoints makes n guilds with one endpoint each, that events are recorded for.
func (p *webhookPlace) endpoints(ctx context.Context, n int) error {
	for i := range n {
		guild := fmt.Sprint(1000 + i)
		if err := p.Exec(ctx, []string{`INSERT INTO guilds (id, name, owner_id) VALUES ($1, $1, $1)`}, guild); err != nil {
			return err
		}
		if _, err := webhooks.Add(ctx, p.cfg, guild, p.quick.URL, nil); err != nil {
			return err
		}
		p.guilds = append(p.guilds, guild)
	}
	return nil
}

// crowd makes n more endpoints, ten to a guild, for which deliveries wait.
func (p *webhookPlace) crowd(ctx context.Context, n int, of crowd.Of) error {
	guilds := make([]string, n)
	for i := range guilds {
		if i%10 == 0 {
			p.crowds++
		}
		guilds[i] = fmt.Sprint(5_000_000 + p.crowds)
	}
	if _, err := crowd.Make(ctx, p.DB, p.Box, guilds, of); err != nil {
		return err
	}
	return testbed.Vacuum(ctx, p.URL)
}

// fillLog adds settled deliveries to the log, as a month of traffic leaves them.
func (p *webhookPlace) fillLog(ctx context.Context, n int) error {
	if err := p.Exec(ctx, []string{`
		INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_type, fresh, state, attempts, completed_at, response_class)
		SELECT d.guild_id, d.endpoint_id, d.event_id, d.event_type, false, 'delivered', 1, now(), '2xx'
		FROM (SELECT * FROM webhook_deliveries LIMIT 100) d, generate_series(1, $1)`}, n/100); err != nil {
		return err
	}
	return testbed.Vacuum(ctx, p.URL)
}
