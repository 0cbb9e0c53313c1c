// Command webhooks measures deliveries with everything on one machine: a
// Postgres with fsync on, the load, the deliverer and the receivers. For 1, 10
// and 100 endpoints it records events at a steady rate and prints how long they
// take from their commit to the first byte at the receiver, then how fast a
// backlog drains; and it repeats the first with a million settled deliveries in
// the log.
//
//	go run ./bench/webhooks -rate 200 -seconds 10
package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/db"
	"guildhall/internal/db/embedded"
	"guildhall/internal/delivery"
	"guildhall/internal/egress"
	"guildhall/internal/event"
	"guildhall/internal/seal"
	"guildhall/internal/webhooks"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench/webhooks:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	rate := flag.Int("rate", 200, "events per second")
	seconds := flag.Int("seconds", 10, "length of one measurement")
	backlog := flag.Int("backlog", 5000, "events of the backlog that is drained")
	settled := flag.Int("settled", 1_000_000, "settled deliveries of the last measurement")
	flag.Parse()

	server, err := embedded.Start(ctx, embedded.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	if err := db.Migrate(ctx, server.URL); err != nil {
		return err
	}
	b, err := newBench(server.URL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()

	fmt.Printf("%-34s %9s %8s %8s %8s  %10s %10s %9s  %s\n", "", "events", "p50 ms", "p99 ms", "max ms", "claim ms", "settle ms", "stmts/ev", "with BEGIN and COMMIT")
	var before, after float64
	for _, n := range []int{1, 10, 100} {
		if err := b.endpoints(ctx, n); err != nil {
			return err
		}
		if before, err = b.steady(ctx, fmt.Sprintf("%d endpoints at %d/s", n, *rate), *rate, *seconds); err != nil {
			return err
		}
		if err := b.drain(ctx, n, *backlog); err != nil {
			return err
		}
	}
	if err := b.fill(ctx, *settled); err != nil {
		return err
	}
	if after, err = b.steady(ctx, fmt.Sprintf("the same with %d settled rows", *settled), *rate, *seconds); err != nil {
		return err
	}
	fmt.Printf("\na claim takes %.2f ms, with %d settled rows %.2f ms: %+.0f %%\n", before, *settled, after, 100*(after/before-1))
	return nil
}

type bench struct {
	db       *db.DB
	cfg      delivery.Config
	receiver *httptest.Server
	guilds   []string

	mu      sync.Mutex
	arrived map[string]time.Time // by event id
}

func newBench(url string) (*bench, error) {
	pool, err := db.Open(db.Config{URL: url, Writers: 16, Name: "bench-webhooks"})
	if err != nil {
		return nil, err
	}
	box, err := seal.New(bytes.Repeat([]byte{1}, seal.KeySize))
	if err != nil {
		return nil, err
	}
	b := &bench{db: pool, arrived: make(map[string]time.Time)}
	b.receiver = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, id := time.Now(), r.Header.Get("webhook-id")
		_, _ = io.Copy(io.Discard, r.Body) // whatever it is, it arrived
		b.mu.Lock()
		if _, ok := b.arrived[id]; !ok {
			b.arrived[id] = at
		}
		b.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	}))
	trusted := x509.NewCertPool()
	trusted.AddCert(b.receiver.Certificate())
	b.cfg = delivery.Config{
		DB: pool, Box: box, Authorities: trusted,
		Guard: egress.NewGuard([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, nil),
	}
	return b, nil
}

func (b *bench) close() error {
	b.receiver.Close()
	return b.db.Close()
}

// endpoints makes guilds with one endpoint each until there are n.
func (b *bench) endpoints(ctx context.Context, n int) error {
	for len(b.guilds) < n {
		guild := fmt.Sprint(1000 + len(b.guilds))
		err := b.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO guilds (id, name, owner_id) VALUES ($1, $1, $1)`, guild)
			return err
		})
		if err != nil {
			return err
		}
		if _, err := webhooks.Add(ctx, webhooks.Config{DB: b.cfg.DB, Box: b.cfg.Box, Guard: b.cfg.Guard}, guild, b.receiver.URL, nil); err != nil {
			return err
		}
		b.guilds = append(b.guilds, guild)
	}
	return nil
}

// record makes one event as a request does, in a transaction that writes, and
// returns when it has committed.
func (b *bench) record(ctx context.Context, guild string, n int) (time.Time, error) {
	err := b.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `
			INSERT INTO wallets (guild_id, user_id, balance) VALUES ($1, $2, 1)
			ON CONFLICT (guild_id, user_id) DO UPDATE SET balance = wallets.balance + 1, updated_at = now()`, guild, fmt.Sprint(1+n%500))
		if err != nil {
			return err
		}
		return event.Record(ctx, tx, event.System(guild), event.BalanceChanged, map[string]any{
			"user_id": fmt.Sprint(1 + n%500), "balance": 130, "previous_balance": 100, "delta": 30, "reason": fmt.Sprintf("bench %d", n), "ledger_entry_id": db.NewID(),
		})
	})
	return time.Now(), err
}

// worker runs a Deliverer. stop ends it and returns its metrics.
func (b *bench) worker(ctx context.Context) (d *delivery.Deliverer, stop func() (units, error), err error) {
	registry := prometheus.NewRegistry()
	cfg := b.cfg
	cfg.Metrics = registry
	if d, err = delivery.New(cfg); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	return d, func() (units, error) {
		u, err := readUnits(registry)
		cancel()
		return u, errors.Join(err, <-ended)
	}, nil
}

// units is what the deliverer's transactions took.
type units struct {
	claims, settles       float64
	claimMean, settleMean float64 // ms
}

func readUnits(registry *prometheus.Registry) (u units, err error) {
	families, err := registry.Gather()
	for _, f := range families {
		if f.GetName() != "guildhall_webhook_transaction_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			h := m.GetHistogram()
			n, mean := float64(h.GetSampleCount()), 1000*h.GetSampleSum()/float64(h.GetSampleCount())
			if m.GetLabel()[0].GetValue() == "claim" {
				u.claims, u.claimMean = n, mean
			} else {
				u.settles, u.settleMean = n, mean
			}
		}
	}
	return u, err
}

// steady records events at a rate and prints how long they took to arrive. It
// returns how long a claim takes.
func (b *bench) steady(ctx context.Context, name string, rate, seconds int) (float64, error) {
	d, stop, err := b.worker(ctx)
	if err != nil {
		return 0, err
	}
	if _, err := b.window(ctx, d, rate, 1); err != nil { // warms connections, statements, caches
		return 0, err
	}
	took, err := b.window(ctx, d, rate, seconds)
	if err != nil {
		return 0, err
	}
	u, err := stop()
	if err != nil {
		return 0, err
	}
	slices.Sort(took)
	at := func(p float64) float64 { return float64(took[int(p*float64(len(took)-1))].Microseconds()) / 1000 }
	events := float64(len(took) + rate)
	fmt.Printf("%-34s %9d %8.1f %8.1f %8.1f  %10.2f %10.2f %9.2f  %.2f\n", name, len(took), at(0.5), at(0.99), at(1), u.claimMean, u.settleMean,
		1+(u.claims+u.settles)/events, 1+3*(u.claims+u.settles)/events)
	return u.claimMean, nil
}

// window records events at a rate for some seconds and returns how long each
// took from its commit to the receiver.
func (b *bench) window(ctx context.Context, d *delivery.Deliverer, rate, seconds int) ([]time.Duration, error) {
	b.mu.Lock()
	clear(b.arrived)
	b.mu.Unlock()
	var from string
	if err := b.db.Reader().GetContext(ctx, &from, `SELECT coalesce(max(id), '') FROM webhook_events`); err != nil {
		return nil, err
	}

	total := rate * seconds
	committed := make([]time.Time, total)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	begin := time.Now()
	for n := range total {
		time.Sleep(time.Until(begin.Add(time.Duration(n) * time.Second / time.Duration(rate))))
		wg.Go(func() {
			at, err := b.record(ctx, b.guilds[n%len(b.guilds)], n)
			d.Wake(b.guilds[n%len(b.guilds)])
			mu.Lock()
			defer mu.Unlock()
			committed[n], errs = at, append(errs, err)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := b.allArrived(ctx, total); err != nil {
		return nil, err
	}
	var rows []struct {
		ID   string `db:"id"`
		Body string `db:"body"`
	}
	err := b.db.Reader().SelectContext(ctx, &rows, `SELECT id, convert_from(payload, 'UTF8') AS body FROM webhook_events WHERE id > $1`, from)
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range rows {
		var n int
		if _, tail, ok := strings.Cut(r.Body, `"reason":"bench `); ok {
			if _, err := fmt.Sscanf(tail, "%d", &n); err != nil {
				return nil, err
			}
			took = append(took, max(b.arrived[r.ID].Sub(committed[n]), 0))
		}
	}
	if len(took) != total {
		return nil, fmt.Errorf("%d of %d events were found", len(took), total)
	}
	return took, nil
}

func (b *bench) allArrived(ctx context.Context, n int) error {
	for deadline := time.Now().Add(2 * time.Minute); ; {
		b.mu.Lock()
		have := len(b.arrived)
		b.mu.Unlock()
		switch {
		case have >= n:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			return fmt.Errorf("%d of %d events arrived", have, n)
		}
		time.Sleep(time.Millisecond)
	}
}

// drain prints how fast a backlog goes out.
func (b *bench) drain(ctx context.Context, endpoints, total int) error {
	err := b.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		for n := range total {
			if err := event.Record(ctx, tx, event.System(b.guilds[n%len(b.guilds)]), event.BalanceChanged, map[string]int{"delta": n}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.mu.Lock()
	clear(b.arrived)
	b.mu.Unlock()
	begin := time.Now()
	_, stop, err := b.worker(ctx)
	if err != nil {
		return err
	}
	if err := b.allArrived(ctx, total); err != nil {
		return err
	}
	took := time.Since(begin)
	u, err := stop()
	if err != nil {
		return err
	}
	fmt.Printf("%-34s %9d %s %37.2f %10.2f %9.2f  %.2f\n", fmt.Sprintf("  a backlog, %d endpoints", endpoints), total,
		fmt.Sprintf("%6.0f/s", float64(total)/took.Seconds()), u.claimMean, u.settleMean,
		1+(u.claims+u.settles)/float64(total), 1+3*(u.claims+u.settles)/float64(total))
	return nil
}

// fill adds settled deliveries to the log, as a month of traffic leaves them.
func (b *bench) fill(ctx context.Context, n int) error {
	const step = 5_000
	for range n / step {
		err := b.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.ExecContext(ctx, `
				INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, state, attempts, completed_at)
				SELECT d.guild_id, d.endpoint_id, d.event_id, 'delivered', 1, now()
				FROM (SELECT * FROM webhook_deliveries LIMIT 100) d, generate_series(1, $1)`, step/100)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
