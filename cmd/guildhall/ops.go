package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"guildhall/internal/db"
)

// startOps serves what operators and their machinery ask for, without a token
// and never on the public listeners.
func (n *node) startOps(ctx context.Context, g *errgroup.Group, d *db.DB, at *addresses) (*http.Server, error) {
	l, err := n.open(ctx, "GUILDHALL_OPS_LISTEN", n.OpsListen)
	if err != nil {
		return nil, err
	}
	at.ops = l.Addr()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "alive")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if why := n.unready(r.Context(), d); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(n.metrics, promhttp.HandlerOpts{Registry: n.metrics}))
	// Not cmdline: an argument may hold a password.
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	s := n.server(mux)
	s.WriteTimeout = profileTime
	g.Go(func() error { return unlessClosed(s.Serve(l)) })
	return s, nil
}

// unready says why no request should be sent here; empty when it should.
func (n *node) unready(ctx context.Context, d *db.DB) string {
	if n.draining.Load() {
		return "stopping"
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := d.Ping(ctx); err != nil {
		return "the database does not answer"
	}
	return ""
}

// pools tells a database's connections to Prometheus.
type pools struct {
	db                         *db.DB
	open, used, waits, waiting *prometheus.Desc
}

func newPools(user string, d *db.DB) *pools {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("guildhall_db_"+name, help, []string{"pool"}, prometheus.Labels{"user": user})
	}
	return &pools{
		db:      d,
		open:    desc("connections", "Connections to Postgres."),
		used:    desc("connections_in_use", "Connections to Postgres in use."),
		waits:   desc("waits_total", "Times a connection had to be waited for."),
		waiting: desc("wait_seconds_total", "Time spent waiting for a connection."),
	}
}

// Describe implements prometheus.Collector.
func (p *pools) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(p, ch) }

// Collect implements prometheus.Collector.
func (p *pools) Collect(ch chan<- prometheus.Metric) {
	write, read := p.db.Stats()
	for pool, s := range map[string]sql.DBStats{"write": write, "read": read} {
		ch <- prometheus.MustNewConstMetric(p.open, prometheus.GaugeValue, float64(s.OpenConnections), pool)
		ch <- prometheus.MustNewConstMetric(p.used, prometheus.GaugeValue, float64(s.InUse), pool)
		ch <- prometheus.MustNewConstMetric(p.waits, prometheus.CounterValue, float64(s.WaitCount), pool)
		ch <- prometheus.MustNewConstMetric(p.waiting, prometheus.CounterValue, s.WaitDuration.Seconds(), pool)
	}
}
