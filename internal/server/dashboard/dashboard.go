// Package dashboard is the web page beside the API, for people: they make and
// revoke tokens, look after webhooks, and see what was asked, refused and
// changed in a guild. It speaks HTML over net/http and calls the same functions
// of the domains as the command line, each bound to a guild. It accepts no
// token, and the API accepts no session.
//
// A request passes through Server.ServeHTTP (HTTPS, host, cross-site), then
// through its route: a handler takes a *call and returns a reply or an error.
// Nothing is written to the caller before the handler has returned and its
// session is stored.
package dashboard

import (
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/alexedwards/scs/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"guildhall/internal/access/ratelimit"
	"guildhall/internal/access/seal"
	"guildhall/internal/base/db"
	"guildhall/internal/service/webhooks"
)

// Prefix is the path below which every page lives.
const Prefix = "/dashboard"

// Config is what the dashboard is made of. DB, Limits, Sealer, Env and Log are
// required.
type Config struct {
	DB *db.DB
	// URL is the public address, https://host[:port]/dashboard. Requests for
	// another host are not answered. nil: any name of this machine's own, as
	// for a server that nobody else reaches.
	URL     *url.URL
	Env     string // of the tokens made here: live or test
	Limits  *ratelimit.Limiter
	Login   ratelimit.Quota // of sign-ins per address
	Session ratelimit.Quota // of requests per session
	Sealer  *seal.Box
	Proxies []netip.Prefix // whose forwarding headers are believed
	Discord *Discord       // nil: nobody signs in but by an operator's link
	// CAFile holds the CA of a certificate that nobody else trusts, for calls to
	// paste; empty: there is none.
	CAFile string
	// Version is the program's, for those who have signed in.
	Version string
	// Operations is what the API can do, in the order of its document.
	Operations []Operation
	// Events are the types of events that endpoints can ask for, in the order in
	// which they are offered.
	Events []EventSample
	// Webhooks is what changing endpoints takes: Box and Guard. Wake is called
	// when something is to be sent at once; nil: the workers find it by themselves.
	Webhooks webhooks.Config
	Wake     func(guild string)
	Log      *slog.Logger
	Metrics  prometheus.Registerer // nil: nothing is measured
	Clock    func() time.Time      // nil: time.Now
}

// Operation is one operation of the API, as its document describes it.
type Operation struct{ ID, Method, Path, Scope, Summary, Tag string }

// EventSample is a type of events, as the document describes it.
type EventSample struct{ Type, Summary, Body string }

// Server answers everything below Prefix.
type Server struct {
	cfg      Config
	now      func() time.Time
	sessions *scs.SessionManager
	store    sessionStore
	access   *access
	pages    map[string]*template.Template
	assets   map[string]asset
	mux      *http.ServeMux
	foreign  *http.CrossOriginProtection
	scopes   []scopeGroup
	standIn  http.Handler // the pages of the local stand-in for Discord, if it is used
	met      *prometheus.HistogramVec
}

// New returns the dashboard. It makes no call.
func New(cfg Config) (*Server, error) {
	if cfg.DB == nil || cfg.Limits == nil || cfg.Sealer == nil || cfg.Log == nil || cfg.Env == "" {
		return nil, errors.New("dashboard: DB, Limits, Sealer, Env and Log are required")
	}
	s := &Server{cfg: cfg, now: cfg.Clock, foreign: http.NewCrossOriginProtection()}
	if s.now == nil {
		s.now = time.Now
	}
	s.store = sessionStore{cfg.DB}
	s.sessions = newSessions(s.store)
	s.access = newAccess(cfg.Discord, s.now)
	s.scopes = groupScopes(cfg.Operations)
	var err error
	if s.assets, err = readAssets(); err != nil {
		return nil, err
	}
	if s.pages, err = s.readPages(); err != nil {
		return nil, err
	}
	s.met = promauto.With(cfg.Metrics).NewHistogramVec(prometheus.HistogramOpts{
		Name:    "guildhall_dashboard_request_duration_seconds",
		Help:    "Time to answer a request for the dashboard, by route and status.",
		Buckets: []float64{.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
	}, []string{"route", "status"})
	if cfg.Discord != nil {
		s.standIn = cfg.Discord.standIn
	}
	s.routes()
	return s, nil
}

// Beside returns a handler that answers what is below Prefix by s, and
// everything else by next.
func (s *Server) Beside(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.Path; strings.HasPrefix(p, Prefix) && (len(p) == len(Prefix) || p[len(Prefix)] == '/') {
			s.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ParseURL reads the public address of a dashboard: https, and the path
// /dashboard or none.
func ParseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.ContainsAny(raw, "?#") {
		return nil, fmt.Errorf("%q is not the address of a dashboard: write https://host or https://host/dashboard", raw)
	}
	switch strings.TrimSuffix(u.Path, "/") {
	case "", Prefix:
	default:
		return nil, fmt.Errorf("%q: the dashboard's path is %s, behind a proxy too", raw, Prefix)
	}
	u.Path = Prefix
	return u, nil
}

// routes names every path. The first word says who may: open needs nobody,
// signed a session, guild the right to manage the guild that the path names.
func (s *Server) routes() {
	s.mux = http.NewServeMux()
	open := func(pattern string, h handler) { s.handle(pattern, h) }
	signed := func(pattern string, h handler) { s.handle(pattern, signedIn(h)) }
	guild := func(pattern string, h handler) { s.handle(pattern, signedIn(managing(h))) }

	open("GET /{$}", home)
	open("GET /login", byDiscord(login))
	open("GET /login/callback", byDiscord(callback))
	open("GET /link/{guild}/{key}", limited(showLink))
	open("POST /link/{guild}/{key}", limited(spendLink))
	open("POST /logout", logout)
	open("DELETE /integrations/api-tokens/{id}", deleteToken)
	signed("GET /sessions", listSessions)
	signed("POST /sessions", endSessions)

	const g = "/guilds/{guild}"
	guild("GET "+g, func(c *call) (reply, error) { return reply{to: c.path()}, nil })
	guild("GET "+g+"/{$}", overview)
	guild("GET "+g+"/tokens", listTokens)
	guild("GET "+g+"/tokens/new", newToken)
	guild("POST "+g+"/tokens", createToken)
	guild("GET "+g+"/tokens/{id}", showToken)
	guild("POST "+g+"/tokens/{id}/revoke", revokeToken)
	guild("GET "+g+"/requests", listRequests)
	guild("GET "+g+"/audit", listAudit)
	s.webhookRoutes(guild)
	s.recordRoutes(guild)
}

func (s *Server) handle(pattern string, h handler) {
	method, path, _ := strings.Cut(pattern, " ")
	route := path
	s.mux.HandleFunc(method+" "+Prefix+path, func(_ http.ResponseWriter, r *http.Request) {
		c := callOf(r)
		c.r, c.route, c.handler = r, method+" "+Prefix+route, h
	})
}

// Expired is what nobody can use any more: sessions, links, and marks of what
// happened once.
func Expired() []db.Expiry {
	return []db.Expiry{
		{Table: "dashboard_sessions", Key: "hash", Since: "expires_at", Kept: "0", Shared: true},
		{Table: "dashboard_links", Key: "hash", Since: "expires_at", Kept: "1 day"},
		{Table: "dashboard_once", Key: "key", Since: "made_at", Kept: "2 days"},
	}
}
