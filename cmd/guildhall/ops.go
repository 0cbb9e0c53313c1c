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

// startOps serves what operators and their machinery ask for, without a token
// and never on the public listeners. It does nothing where that is switched off.
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

// opsServer is how the operators' listener names itself in each answer, so that
// `guildhall ready` does not take another program on the port for a node.
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

// readyTimeout is for a database that answers in 300 ms. Over a new connection it
// needs nine round trips, 2.7 s, to say that it takes writes, and it serves all the
// while. `guildhall ready` waits a second longer.
const readyTimeout = 4 * time.Second

// unready says why no request should be sent here; empty when it should.
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

// tryWrite does what every write needs and keeps nothing of it: a schema that has
// what this program uses, a session that may write, a row with its index entry, and the procedural language, which is
// loaded anew for each session.
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
