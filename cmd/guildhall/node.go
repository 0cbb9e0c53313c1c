package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/access/usage"
	"guildhall/internal/base/certificate"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/logging"
	"guildhall/internal/base/tracing"
	"guildhall/internal/operate/doctor"
	"guildhall/internal/operate/monitor"
	"guildhall/internal/operate/secretkey"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/server/api"
	"guildhall/internal/server/connlimit"
	"guildhall/internal/service/webhooks"
)

// The deadlines of a shutdown, counted from the signal. All are shorter than the forty seconds that
// operators are told to allow.
const (
	drainTimeout    = 5 * time.Second  // the node still serves and asks callers to reconnect elsewhere
	shutdownTimeout = 20 * time.Second // after that, for requests that are still running
	exitTimeout     = 38 * time.Second // for the whole shutdown
)

// The timeouts of a connection and of a request.
const (
	headerTimeout  = 5 * time.Second
	readTimeout    = 10 * time.Second // for reading the whole request
	writeTimeout   = 25 * time.Second // for writing the whole response
	idleTimeout    = 60 * time.Second
	profileTimeout = 5 * time.Minute // on the operators' listener, for long profiles
	maxHeader      = 64 << 10
)

// node is one running process.
type node struct {
	checked
	databaseURL string
	listenURL   string // URL of the same database without a pooler
	drain       time.Duration
	finish      bool // whether contracting migrations wait that this node runs later
	chat        chat.Platform
	log         *slog.Logger
	lines       *logging.Writer // the writer behind log
	// local serves the dashboard on this machine, with a stand-in for Discord, if no public address
	// is set.
	local bool
	// caFile is the CA of a certificate that dev has created.
	caFile string
	// fallback uses any free port if the configured one is in use.
	fallback bool
	// ready is called once, when everything is being served; an error ends the node.
	ready func(addresses) error

	// Set by run before anything is started.
	pageDB  *db.DB // the dashboard's database; nil: no dashboard
	metrics *prometheus.Registry
	tracer  *tracing.Tracer

	draining atomic.Bool // set at the signal, read by requests
	wrote    writes
}

// addresses are the addresses of the listeners; nil: no listener.
type addresses struct{ https, http, ops net.Addr }

// run serves and works until ctx ends. It then stops in an order that fails no request, and returns
// nil after an orderly end.
func (n *node) run(ctx context.Context) error {
	n.metrics = prometheus.NewRegistry()
	n.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), n.lines.Metric())
	b, err := thisBuild()
	if err != nil {
		return err
	}
	b.show(n.metrics)
	n.log.Info("starting", "version", b.Version, "contract", b.Contract, "commit", b.Commit, "go", b.Go)
	if n.tracer, err = tracing.New(ctx, version, n.log); err != nil {
		return err
	}
	defer n.tracer.Close(ctx)
	if n.chat, err = n.platform(); err != nil {
		return err
	}
	// Looking up tokens and readiness use connections of their own, so that requests cannot take
	// them all.
	vital, err := db.Open(db.Config{URL: n.databaseURL, Writers: 1, Readers: n.share.lookups, Name: "guildhall-vital"})
	if err != nil {
		return err
	}
	defer vital.Close()
	n.metrics.MustRegister(monitor.NewPools("vital", vital))
	n.warnConnections(ctx, vital)
	return n.live(ctx, vital)
}

// warnConnections logs a warning if the database admits fewer connections than the node takes. An
// error does not stop the start: the database may be away for a moment.
func (n *node) warnConnections(ctx context.Context, d *db.DB) {
	if n.listenURL != n.databaseURL { // a pooler stands between
		return
	}
	note, err := doctor.TooFewConnections(ctx, d.Reader(), n.share.sum(n.api()))
	if err != nil {
		n.log.Warn("the limit of connections is not known", "error", err)
	}
	warnOf(n.log, note)
}

// served is what a node serves so far.
type served struct {
	public []*http.Server
	ops    *http.Server
	at     addresses
}

// live starts the parts of a node and stops them in three steps: first the workers, then the public
// listeners, then what both need. If the start fails, it stops what was started, in the same order.
func (n *node) live(ctx context.Context, vital *db.DB) error {
	d, err := n.openAPI()
	if err != nil {
		return err
	}
	if d != nil {
		defer d.Close()
	}
	if n.pageDB, err = n.openPages(); err != nil {
		return err
	}
	if n.pageDB != nil {
		defer n.pageDB.Close()
	}
	g, groupCtx := errgroup.WithContext(ctx)
	working, stopWorking := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWorking()
	standing, stopStanding := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStanding()

	s := served{ops: n.server(nil)}
	if err := n.start(standing, working, g, d, vital, &s); err != nil {
		g.Go(func() error { return err })
	}
	g.Go(func() error {
		<-groupCtx.Done()
		n.draining.Store(true)
		stopWorking()
		err := n.closePublic(ctx, s.public)
		stopStanding()
		return errors.Join(err, s.ops.Close())
	})
	return n.end(ctx, groupCtx, g)
}

// openAPI opens the connections for API requests. It returns nil if the node has no API.
func (n *node) openAPI() (*db.DB, error) {
	if !n.api() {
		return nil, nil //nolint:nilnil // no API, no connections
	}
	d, err := db.Open(db.Config{URL: n.databaseURL, Writers: n.share.writes, Readers: n.share.reads, Name: "guildhall-api", Distributed: n.DBDistributed == "on"})
	if err == nil {
		n.metrics.MustRegister(monitor.NewPools("api", d))
	}
	return d, err
}

// start starts all parts in g.
func (n *node) start(standing, working context.Context, g *errgroup.Group, d, vital *db.DB, s *served) error {
	times, standbys := monitor.NewClock(vital, n.log, n.metrics), monitor.NewReplication(vital, n.log, n.metrics)
	wake, err := n.startWorkers(working, g)
	if err != nil {
		return err
	}
	if n.api() {
		if err := n.startAPI(standing, working, g, d, vital, wake, s); err != nil {
			return err
		}
	}
	if err := n.startOps(working, g, vital, s); err != nil {
		return err
	}
	if n.finish {
		g.Go(func() error {
			db.Finish(working, n.listenURL, finishAfter, n.finished)
			return nil
		})
	}
	g.Go(func() error { return times.Watch(working) })
	g.Go(func() error { return standbys.Watch(working) })
	if n.ready != nil {
		if err := n.ready(s.at); err != nil {
			return err
		}
	}
	n.log.Info("ready", "https", text(s.at.https), "http", text(s.at.http), "ops", text(s.at.ops), "env", n.Env)
	return nil
}

// closePublic closes the public listeners after the drain, when the running requests have ended or
// shutdownTimeout is over. It closes all of them concurrently, so that slow callers of one listener
// take no time from callers of another. There is no drain without a public listener, nor after an
// error of the node's own.
func (n *node) closePublic(ctx context.Context, public []*http.Server) error {
	if n.drain > 0 && ctx.Err() != nil && len(public) > 0 {
		n.log.Info("stopping", "drain", n.drain.String())
		time.Sleep(n.drain)
	} else {
		n.log.Info("stopping")
	}
	limit, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	errs := make([]error, len(public))
	var all sync.WaitGroup
	for i, s := range public {
		all.Go(func() { errs[i] = s.Shutdown(limit) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// end waits until everything has ended, at most exitTimeout after the first part has ended.
func (n *node) end(ctx, groupCtx context.Context, g *errgroup.Group) error {
	ended := make(chan error, 1)
	go func() { ended <- g.Wait() }()
	<-groupCtx.Done()
	var err error
	select {
	case err = <-ended:
	case <-time.After(exitTimeout):
		n.log.Warn("stopping anyway: something did not finish in time")
		if ctx.Err() != nil {
			return nil //nolint:nilerr // that is how a stop may end
		}
		return context.Cause(groupCtx)
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		n.log.Warn("requests under way did not finish in time")
		return nil //nolint:nilerr // that is how a stop may end
	}
	return err
}

// startAPI builds the public handler and serves it.
func (n *node) startAPI(standing, working context.Context, g *errgroup.Group, d, vital *db.DB, wake func(guild string), s *served) error {
	var tokens *auth.Tokens
	limits, err := ratelimit.New(ratelimit.Config{
		RedisURL: n.RedisURL, Metrics: n.metrics, Log: n.log, Traced: n.tracer != nil, Nodes: func() int { return tokens.Nodes() },
	})
	if err != nil {
		return fault.Wrap(err, "GUILDHALL_REDIS_URL")
	}
	tokens, err = auth.NewTokens(auth.Config{
		DB: vital, URL: n.listenURL, Env: n.Env, Log: n.log, Metrics: n.metrics,
		Exhausted: func(ctx context.Context, from netip.Addr) bool {
			return limits.Exhausted(ctx, auth.LoginKey(from), n.quotas.Login)
		},
	})
	if err != nil {
		return err
	}
	waiters, workers := delivery.NewWaiters(d, n.log, n.metrics), wake
	wake = func(guild string) { workers(guild); waiters.Wake(guild) }
	platform := n.chat
	if work := n.handing(d, waiters.Wake); work != nil {
		platform = work
		wake = func(guild string) { workers(guild); waiters.Wake(guild); work.Wake(guild) }
		g.Go(func() error { return work.Run(standing) })
	}
	sealer := secretkey.Responses{Box: n.box}
	services, err := api.NewServices(platform, sealer, webhooks.Config{DB: d, Box: n.hooks.Box, Guard: n.hooks.Guard, Waiters: waiters})
	if err != nil {
		return err
	}
	counter := usage.NewCounter()
	handler, err := api.New(api.Config{
		DB: d, Tokens: tokens, Limits: limits, Quotas: n.quotas, Proxies: n.proxies, Env: n.Env,
		Count: counter.Count, Wrote: n.wrote.note, Sealer: sealer, Wake: wake, Log: n.log, Metrics: n.metrics,
		Tracer: n.tracer, ValidateResponses: n.CheckAnswers == "log", Services: services,
		About:    api.About{PublicURL: n.PublicURL, Version: version, Guides: guides, Dashboard: n.dashboardURL()},
		OneGuild: n.DBDistributed == "on",
	})
	if err != nil {
		return err
	}
	if handler, err = n.withDashboard(handler, limits, wake); err != nil {
		return err
	}
	if err := n.listen(working, g, n.parting(handler), s); err != nil {
		return err
	}
	g.Go(func() error { return waiters.Run(working) })
	g.Go(func() error { return counter.Run(standing, d, n.log) })
	g.Go(func() error {
		defer limits.Close()
		return tokens.Run(standing)
	})
	return nil
}

// listen opens the public listeners and serves handler on them.
func (n *node) listen(ctx context.Context, g *errgroup.Group, handler http.Handler, s *served) error {
	connections := connlimit.New(n.proxies, n.metrics)
	if n.HTTPSListen != "" {
		pair, err := certificate.Load(n.certificate(), n.log)
		if err != nil {
			return err
		}
		n.metrics.MustRegister(pair.Metric())
		l, err := n.open(ctx, "GUILDHALL_HTTPS_LISTEN", n.HTTPSListen)
		if err != nil {
			return err
		}
		s.at.https = l.Addr()
		https := n.server(handler)
		https.TLSConfig = pair.TLSConfig()
		s.public = append(s.public, https)
		g.Go(func() error { return unlessClosed(https.ServeTLS(connections.Bound(l), "", "")) })
		g.Go(func() error { return pair.Watch(ctx) })
	}
	if n.HTTPListen != "" {
		l, err := n.open(ctx, "GUILDHALL_HTTP_LISTEN", n.HTTPListen)
		if err != nil {
			return err
		}
		s.at.http = l.Addr()
		plain := n.server(handler)
		s.public = append(s.public, plain)
		g.Go(func() error { return unlessClosed(plain.Serve(connections.Bound(l))) })
	}
	return nil
}

func (n *node) server(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: connlimit.MaxStreams},
		// OPTIONS * requires a token as any other request does.
		DisableGeneralOptionsHandler: true,
		// Failed handshakes and similar errors are caused by callers, so they are logged at level
		// debug.
		ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelDebug),
	}
}

// parting adds "Connection: close" to responses while the node drains. Closing idle connections
// instead would cut off requests that are just arriving.
func (n *node) parting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// open listens on an address. Its error names the setting.
func (n *node) open(ctx context.Context, setting, addr string) (net.Listener, error) {
	lc := net.ListenConfig{Control: connlimit.DropUnread}
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil && n.fallback {
		if host, _, split := net.SplitHostPort(addr); split == nil {
			l, err = lc.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
		}
	}
	return l, fault.Wrap(err, setting)
}

func unlessClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func text(a net.Addr) string {
	if a == nil {
		return ""
	}
	return a.String()
}

// deliveryConfig returns the deliverer's configuration.
func (n *node) deliveryConfig(d *db.DB) delivery.Config {
	c := n.hooks
	c.DB, c.Log, c.Metrics, c.Tracer = d, n.log, n.metrics, n.tracer
	c.OneGuild, c.Show = n.DBDistributed == "on", webhooks.ShowNotice
	return c
}
