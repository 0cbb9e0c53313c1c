package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"guildhall/bench/crowd"
	"guildhall/bench/proc"
	"guildhall/internal/access/seal"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/embedded"
	"guildhall/internal/outbound/egress"
	"guildhall/internal/service/webhooks"
)

// worker is the database role of the nodes, by which their statements are told
// from those of the load.
const worker = "bench_worker"

// host is a Postgres with an empty, migrated database to copy.
type host struct {
	server   *embedded.Server
	postgres int // process
	admin    *sql.DB
	template string
	places   int
	verbose  bool // print the nodes' statements of each place
}

func newHost(ctx context.Context, verbose bool) (_ *host, err error) {
	h := &host{template: "bench", verbose: verbose}
	// Not Fast: what is measured includes waiting for the disk.
	h.server, err = embedded.Start(ctx, embedded.Config{Settings: []string{"shared_preload_libraries=pg_stat_statements"}})
	if err != nil {
		return nil, fmt.Errorf("(pg_stat_statements is needed; it comes with Postgres, on some systems in a package of extras): %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	if h.postgres, err = proc.Postmaster(filepath.Join(h.server.Folder, "data")); err != nil {
		return nil, err
	}
	if h.admin, err = db.OpenSQL(h.server.URL, "bench-admin", 2); err != nil {
		return nil, err
	}
	for _, statement := range []string{`CREATE EXTENSION pg_stat_statements`, `CREATE ROLE ` + worker + ` LOGIN SUPERUSER`, `CREATE DATABASE ` + h.template} {
		if _, err := h.admin.ExecContext(ctx, statement); err != nil {
			return nil, err
		}
	}
	u, err := h.url(h.template, "")
	if err != nil {
		return nil, err
	}
	return h, db.Migrate(ctx, u)
}

func (h *host) close() error {
	var err error
	if h.admin != nil {
		err = h.admin.Close()
	}
	return errors.Join(err, h.server.Stop())
}

// url reaches a database, as the given role unless it is empty.
func (h *host) url(name, role string) (string, error) {
	u, err := url.Parse(h.server.URL)
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	if role != "" {
		u.User = url.User(role)
	}
	return u.String(), nil
}

// place is a database of its own with the load, and receivers.
type place struct {
	host      *host
	name      string
	db        *db.DB // of the load
	cfg       webhooks.Config
	trusted   *x509.CertPool
	guilds    []string // with one endpoint each, that events are recorded for
	crowds    int      // guilds of crowds so far
	quick     *httptest.Server
	slow      *httptest.Server // answers after delay
	broken    *httptest.Server // answers 500
	hole      string           // takes connections and never answers
	listener  net.Listener
	delay     atomic.Int64
	delivered atomic.Int64 // requests that slow has answered

	mu      sync.Mutex
	arrived map[int]time.Time // at quick, by number
}

// place makes a database and receivers. measured ends it.
func (h *host) place(ctx context.Context) (*place, error) {
	h.places++
	p := &place{host: h, name: fmt.Sprintf("bench_%d", h.places), trusted: x509.NewCertPool(), arrived: make(map[int]time.Time)}
	if _, err := h.admin.ExecContext(ctx, `CREATE DATABASE `+p.name+` TEMPLATE `+h.template); err != nil {
		return nil, err
	}
	u, err := h.url(p.name, "")
	if err != nil {
		return nil, err
	}
	if p.db, err = db.Open(db.Config{URL: u, Writers: 16, Name: "bench-load"}); err != nil {
		return nil, err
	}
	box, err := seal.New(bytes.Repeat([]byte{1}, seal.KeySize))
	if err != nil {
		return nil, err
	}
	p.cfg = webhooks.Config{DB: p.db, Box: box, Guard: egress.NewGuard([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, nil)}
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
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	p.hole = "http://" + p.listener.Addr().String()
	return p, nil
}

// measured does one thing at the place, which then goes.
func (p *place) measured(ctx context.Context, do func() error) error {
	err := do()
	if p.host.verbose && err == nil {
		err = p.statements(ctx)
	}
	for _, s := range []*httptest.Server{p.quick, p.slow, p.broken} {
		s.CloseClientConnections()
		s.Close()
	}
	err = errors.Join(err, p.listener.Close(), p.db.Close())
	_, dropped := p.host.admin.ExecContext(context.WithoutCancel(ctx), `DROP DATABASE `+p.name+` WITH (FORCE)`)
	return errors.Join(err, dropped)
}

// arrive notes when the event whose number is in the body has come.
func (p *place) arrive(w http.ResponseWriter, r *http.Request) {
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
func (p *place) endpoints(ctx context.Context, n int, receiver string) error {
	for i := range n {
		guild := fmt.Sprint(1000 + i)
		if err := p.exec(ctx, `INSERT INTO guilds (id, name, owner_id) VALUES ($1, $1, $1)`, guild); err != nil {
			return err
		}
		if _, err := webhooks.Add(ctx, p.cfg, guild, receiver, nil); err != nil {
			return err
		}
		p.guilds = append(p.guilds, guild)
	}
	return nil
}

func (p *place) exec(ctx context.Context, query string, args ...any) error {
	return p.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	})
}

// crowd makes n more endpoints, ten to a guild, for which deliveries wait.
func (p *place) crowd(ctx context.Context, n int, of crowd.Of) error {
	guilds := make([]string, n)
	for i := range guilds {
		if i%10 == 0 {
			p.crowds++
		}
		guilds[i] = fmt.Sprint(5_000_000 + p.crowds)
	}
	if _, err := crowd.Make(ctx, p.db, p.cfg.Box, guilds, of); err != nil {
		return err
	}
	return p.vacuum(ctx)
}

// fillLog adds settled deliveries to the log, as a month of traffic leaves them.
func (p *place) fillLog(ctx context.Context, n int) error {
	const step = 5_000
	for range n / step {
		err := p.exec(ctx, `
			INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_type, fresh, state, attempts, completed_at, response_class)
			SELECT d.guild_id, d.endpoint_id, d.event_id, d.event_type, false, 'delivered', 1, now(), '2xx'
			FROM (SELECT * FROM webhook_deliveries LIMIT 100) d, generate_series(1, $1)`, step/100)
		if err != nil {
			return err
		}
	}
	return p.vacuum(ctx)
}

func (p *place) vacuum(ctx context.Context) error {
	u, err := p.host.url(p.name, "")
	if err != nil {
		return err
	}
	return crowd.Vacuum(ctx, u)
}
