package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"guildhall/internal/db"
)

// startOps serves what operators and their machinery ask for, without a token
// and never on the public listeners. It does nothing where that is switched off.
func (n *node) startOps(ctx context.Context, g *errgroup.Group, d *db.DB, at *addresses) (*http.Server, error) {
	s := n.server(nil)
	if n.OpsListen == "" {
		return s, nil
	}
	l, err := n.open(ctx, "GUILDHALL_OPS_LISTEN", n.OpsListen)
	if err != nil {
		return nil, err
	}
	at.ops = l.Addr()
	s.Handler = n.knownHost(n.opsHandler(d, l.Addr()))
	s.WriteTimeout = profileTimeout
	g.Go(func() error { return unlessClosed(s.Serve(l)) })
	return s, nil
}

func (n *node) opsHandler(d *db.DB, at net.Addr) http.Handler {
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
	if n.profiles(at) {
		// Not cmdline: an argument may hold a password.
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// profiles reports whether profiles are shown on a listener. The memory that
// they show holds tokens and secrets, so unasked they stay on this machine.
func (n *node) profiles(at net.Addr) bool {
	if n.Pprof != "" {
		return n.Pprof == "on"
	}
	tcp, ok := at.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// knownHost answers only requests for an address, localhost or a name that the
// operator has given. A page of a stranger can make an operator's browser call
// here under a name of its own whose address it changes to this machine's; that
// name gives it away.
func (n *node) knownHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		host = strings.ToLower(strings.TrimSuffix(host, "."))
		_, err := netip.ParseAddr(strings.Trim(host, "[]"))
		// No browser leaves the header out; checks that speak HTTP/1.0 do.
		if err != nil && host != "" && host != "localhost" && !n.opsHosts[host] {
			http.Error(w, "This listener does not answer under this name; GUILDHALL_OPS_HOSTS lists the names it answers under.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// unready says why no request should be sent here; empty when it should.
func (n *node) unready(ctx context.Context, d *db.DB) string {
	if n.draining.Load() {
		return "stopping"
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := tryWrite(ctx, d); err != nil {
		n.log.WarnContext(ctx, "not ready: the database takes no writes", "error", err)
		return "the database takes no writes"
	}
	return ""
}

// tryWrite does what every write needs and keeps nothing of it: a session that
// may write, a row with its index entry, and the procedural language, which is
// loaded anew for each session.
func tryWrite(ctx context.Context, d *db.DB) error {
	undo := errors.New("rolled back")
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO auth_nodes (id, epoch, seen_at) VALUES ($1, 0, 'epoch')`, "readiness "+db.NewID()); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DO 'BEGIN END'`); err != nil {
			return err
		}
		return undo
	})
	if errors.Is(err, undo) {
		return nil
	}
	return err
}

// pools tells a database's connections, and the places in front of them, to
// Prometheus.
type pools struct {
	db                         *db.DB
	open, used, waits, waiting *prometheus.Desc
	queued, refused            *prometheus.Desc
}

func newPools(user string, d *db.DB) *pools {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("guildhall_db_"+name, help, append(labels, "pool"), prometheus.Labels{"user": user})
	}
	return &pools{
		db:      d,
		open:    desc("connections", "Connections to Postgres."),
		used:    desc("connections_in_use", "Connections to Postgres in use."),
		waits:   desc("waits_total", "Times a connection had to be waited for."),
		waiting: desc("wait_seconds_total", "Time spent waiting for a connection."),
		queued:  desc("waiting", "Requests that wait for a connection."),
		refused: desc("refusals_total", "Requests refused because no connection became free for them: by their own token's share, or by the others'.", "by"),
	}
}

// Describe implements prometheus.Collector.
func (p *pools) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(p, ch) }

// Collect implements prometheus.Collector.
func (p *pools) Collect(ch chan<- prometheus.Metric) {
	s := p.db.Stats()
	p.collect(ch, "write", s.Write, s.Writes)
	p.collect(ch, "read", s.Read, s.Reads)
}

func (p *pools) collect(ch chan<- prometheus.Metric, pool string, s sql.DBStats, places db.PlaceStats) {
	ch <- prometheus.MustNewConstMetric(p.open, prometheus.GaugeValue, float64(s.OpenConnections), pool)
	ch <- prometheus.MustNewConstMetric(p.used, prometheus.GaugeValue, float64(s.InUse), pool)
	ch <- prometheus.MustNewConstMetric(p.waits, prometheus.CounterValue, float64(places.Waits), pool)
	ch <- prometheus.MustNewConstMetric(p.waiting, prometheus.CounterValue, places.Waited.Seconds(), pool)
	ch <- prometheus.MustNewConstMetric(p.queued, prometheus.GaugeValue, float64(places.Waiting), pool)
	ch <- prometheus.MustNewConstMetric(p.refused, prometheus.CounterValue, float64(places.OwnShare), "token", pool)
	ch <- prometheus.MustNewConstMetric(p.refused, prometheus.CounterValue, float64(places.Busy), "others", pool)
}
