// Package dashboard serves web pages for people, beside the API: people create and revoke tokens,
// manage webhooks, and see what was requested, refused and changed in a guild. The package serves
// HTML with net/http and calls the same functions of the services as the command line does, each
// limited to one guild. The dashboard accepts no token, and the API accepts no session.
//
// A request passes through Server.ServeHTTP (HTTPS, host, cross-site check), then through its
// route: a handler takes a *call and returns a reply or an error. Nothing is written to the caller
// before the handler has returned and the session is stored.
package dashboard

import (
	"errors"
	"fmt"
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

// Prefix is the path below which all pages are.
const Prefix = "/dashboard"

// Config configures a dashboard. DB, Limits, Sealer, Env and Log are required.
type Config struct {
	DB *db.DB
	// URL is the public address, https://host[:port]/dashboard. Requests for another host are
	// refused. nil means every name of this machine, as on a server that only this machine can
	// reach.
	URL     *url.URL
	Env     string // environment of the tokens created here: live or test
	Limits  *ratelimit.Limiter
	Login   ratelimit.Quota // limit of sign-ins for each address
	Session ratelimit.Quota // limit of requests for each session
	Sealer  *seal.Box
	Proxies []netip.Prefix // proxies whose forwarding headers are trusted
	Discord *Discord       // nil means that people sign in only with an operator's link
	// CAFile is the file of a private certificate authority, for the example calls; empty if there
	// is none.
	CAFile string
	// Version is the program's version, shown to people who have signed in.
	Version string
	// Operations are the operations of the API, in the order of the API document.
	Operations []Operation
	// Events are the types of events to which endpoints can subscribe, in the order of the form.
	Events []EventSample
	// Webhooks is the configuration for changing endpoints: Box and Guard. Wake is called when a
	// delivery should be sent at once; if Wake is nil, the workers find the delivery with their
	// next poll.
	Webhooks webhooks.Config
	Wake     func(guild string)
	Log      *slog.Logger
	Metrics  prometheus.Registerer // nil means no metrics
	Clock    func() time.Time      // nil means time.Now
}

// Operation is one operation of the API, as the API document describes it.
type Operation struct{ ID, Method, Path, Scope, Summary, Tag string }

// EventSample is a type of events, as the API document describes it.
type EventSample struct{ Type, Summary, Body string }

// Server serves every page below Prefix.
type Server struct {
	cfg      Config
	now      func() time.Time
	sessions *scs.SessionManager
	store    sessionStore
	access   *access
	pages    map[string]pageTemplate
	assets   map[string]asset
	mux      *http.ServeMux
	foreign  *http.CrossOriginProtection
	scopes   []scopeGroup
	standIn  http.Handler // the pages of the local stand-in for Discord, if the stand-in is used
	met      *prometheus.HistogramVec
}

// New returns a dashboard. New makes no network calls.
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

// Beside returns a handler that passes requests below Prefix to s, and all others to next.
func (s *Server) Beside(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.Path; strings.HasPrefix(p, Prefix) && (len(p) == len(Prefix) || p[len(Prefix)] == '/') {
			s.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ParseURL parses the public address of a dashboard: https, with the path /dashboard or no path.
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

// routes registers every path with the mux.
func (s *Server) routes() {
	s.mux = http.NewServeMux()
	s.register(s.handle,
		func(pattern string, h handler) { s.handle(pattern, signedIn(h)) },
		func(pattern string, h handler) { s.handle(pattern, signedIn(managing(h))) })
}

// register passes every path to one of three functions, by who may use the path: open means
// everyone, signed means a person with a session, guild means a person who may manage the guild in
// the path.
func (s *Server) register(open, signed, guild func(pattern string, h handler)) {
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

// Expired returns the tables with rows that are no longer used: sessions, links, and the records
// that a form was sent once.
func Expired() []db.Expiry {
	return []db.Expiry{
		{Table: "dashboard_sessions", Key: "hash", Since: "expires_at", Kept: "0", Shared: true},
		{Table: "dashboard_links", Key: "hash", Since: "expires_at", Kept: "1 day"},
		{Table: "dashboard_once", Key: "key", Since: "made_at", Kept: "2 days"},
	}
}
