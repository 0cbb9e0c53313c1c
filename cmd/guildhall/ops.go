package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"guildhall/internal/base/db"
)

// startOps starts the listener for operators and their tools, without tokens and separate from the
// public listeners, unless it is switched off.
func (n *node) startOps(ctx context.Context, g *errgroup.Group, d *db.DB, s *served) error {
	if n.OpsListen == "" {
		return nil
	}
	l, err := n.open(ctx, "GUILDHALL_OPS_LISTEN", n.OpsListen)
	if err != nil {
		return err
	}
	s.at.ops = l.Addr()
	s.ops.Handler = serverNamed(n.knownHost(n.opsHandler(d, l.Addr())))
	s.ops.WriteTimeout = profileTimeout
	g.Go(func() error { return unlessClosed(s.ops.Serve(l)) })
	return nil
}

// opsServer is the Server header of the operators' listener. By it `guildhall ready` recognises a
// node, and not another program on the port.
const opsServer = "guildhall"

func serverNamed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", opsServer)
		next.ServeHTTP(w, r)
	})
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
		// pprof's cmdline is left out, since an argument may contain a password.
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// profiles reports whether profiles are served on a listener. They contain memory with tokens and
// secrets, so by default they are served on loopback only.
func (n *node) profiles(at net.Addr) bool {
	if n.Pprof != "" {
		return n.Pprof == "on"
	}
	tcp, ok := at.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// knownHost refuses requests whose Host is not an address, localhost or a configured name. This
// protects against DNS rebinding: a web page can make an operator's browser send requests to this
// listener under the page's own host name.
func (n *node) knownHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		host = strings.ToLower(strings.TrimSuffix(host, "."))
		_, err := netip.ParseAddr(strings.Trim(host, "[]"))
		// Every browser sends the header; some health checks with HTTP/1.0 do not.
		if err != nil && host != "" && host != "localhost" && !n.opsHosts[host] {
			http.Error(w, "This listener does not answer under this name; GUILDHALL_OPS_HOSTS lists the names it answers under.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// readyTimeout allows for a database that takes 300 ms to respond: over a new connection the check
// needs nine round trips, 2.7 s, although requests are served all the while. `guildhall ready`
// waits a second longer.
const readyTimeout = 4 * time.Second

// unready returns why the node should get no requests, or "".
func (n *node) unready(ctx context.Context, d *db.DB) string {
	if n.draining.Load() {
		return "stopping"
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := n.wrote.failing(); err != nil {
		n.log.WarnContext(ctx, "not ready: writes fail one after the other", "error", err)
		return cmp.Or(db.WhyNoWrites(err), "writes fail one after the other")
	}
	err := tryWrite(ctx, d)
	if errors.Is(err, db.ErrProgramTooOld) {
		n.log.ErrorContext(ctx, "not ready", "error", err)
		return db.ErrProgramTooOld.Error()
	}
	if err != nil {
		n.log.WarnContext(ctx, "not ready: the database takes no writes", "error", err)
		return cmp.Or(db.WhyNoWrites(err), "the database takes no writes")
	}
	return ""
}

// tryWrite does everything that a write needs and rolls it back: it needs this program's schema, a
// session that may write, a row with its index entry, and the procedural language, which Postgres
// loads for each session.
func tryWrite(ctx context.Context, d *db.DB) error {
	undo := errors.New("rolled back")
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := db.CheckProgram(ctx, tx); err != nil {
			return err
		}
		if _, err := db.Exec(ctx, tx, `INSERT INTO auth_nodes (id, epoch, seen_at) VALUES ($1, 0, 'epoch')`, "readiness "+db.NewID()); err != nil {
			return err
		}
		if _, err := db.Exec(ctx, tx, `DO 'BEGIN END'`); err != nil {
			return err
		}
		return undo
	})
	if errors.Is(err, undo) {
		return nil
	}
	return err
}
