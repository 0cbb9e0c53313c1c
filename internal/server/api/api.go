// Package api is everything that knows HTTP: the chain of checks before an
// operation, the unit of work around it, and the one place where failures
// become responses. It refuses to know what the operations do.
package api

import (
	"errors"
	"log/slog"
	"net/http"
	"net/netip"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"guildhall/gen"
	"guildhall/internal/access/idempotency"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/access/usage"
	"guildhall/internal/base/db"
	"guildhall/internal/base/tracing"
	"guildhall/internal/contract"
	"guildhall/internal/service/batch"
)

// Config is what the handler is made of. Everything is required except
// Proxies, Wake, Metrics, Tracer and About.
type Config struct {
	DB      *db.DB
	Tokens  Authenticator
	Limits  *ratelimit.Limiter
	Quotas  Quotas
	Proxies []netip.Prefix // whose forwarding headers are believed
	Env     string         // live or test
	Sealer  idempotency.Sealer
	Wake    func(guild string) // called after a commit that may have recorded events of the guild
	Log     *slog.Logger
	Metrics prometheus.Registerer
	Tracer  *tracing.Tracer // nil: nothing is traced
	// Count is told of each answered request that came with a token; nil:
	// nobody counts. It is called before the request's handler returns.
	Count func(usage.Request)
	// Wrote is told of requests' writes: nil of one that is committed, the error of
	// one that Postgres takes from nobody now (db.TakesNoWrites); nil: nobody asks.
	Wrote func(error)

	// About is what the served documents say of this installation.
	About About

	// OneGuild makes each statement name one guild, where the tables are
	// distributed by it. Otherwise changes of several guilds may share one.
	OneGuild bool

	// ValidateResponses logs every response that the contract does not know.
	ValidateResponses bool

	Services
}

// New returns the public handler.
func New(cfg Config) (http.Handler, error) {
	switch {
	case cfg.DB == nil, cfg.Tokens == nil, cfg.Limits == nil, cfg.Sealer == nil, cfg.Log == nil:
		return nil, errors.New("api: DB, Tokens, Limits, Sealer and Log are required")
	case cfg.Env != "live" && cfg.Env != "test":
		return nil, errors.New("api: Env must be live or test")
	}
	if cfg.Wake == nil {
		cfg.Wake = func(string) {}
	}
	doc, err := contract.Document()
	if err != nil {
		return nil, err
	}
	public, err := serveDocuments(cfg.About, cfg.Limits, cfg.Quotas.Login)
	if err != nil {
		return nil, err
	}
	numbers, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, err
	}
	u := &units{
		db: cfg.DB, wake: cfg.Wake, login: cfg.Tokens,
		keys: idempotency.Keys{Sealer: cfg.Sealer, Answer: answer}, mutex: idempotency.NewKeyedMutex(),
		preparations: preparations(cfg.Services),
	}

	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.Binder = nil // reqState.Bind takes its place
	middlewares := []middleware{matchOperation(readOperations(doc))}
	if cfg.ValidateResponses {
		middlewares = append(middlewares, validateResponse(doc, cfg.Log))
	}
	if cfg.Tracer != nil {
		middlewares = append(middlewares, traceRequest(cfg.Tracer))
	}
	e.Use(chain(append(middlewares,
		accessLog(cfg.Log, numbers, cfg.Count, cfg.Wrote),
		requireHTTPS(cfg.Proxies),
		public,
		authenticateToken(cfg.Tokens, cfg.Limits, cfg.Quotas.Login),
		limitRate(cfg.Limits, cfg.Quotas),
		requireOperation,
		requireScope,
		requireGuild,
		readBody(&largeBodyPermits{}),
		validateRequest,
		u.unit,
	)))
	host := batch.Host{DB: cfg.DB, OneGuild: cfg.OneGuild, Started: numbers.batch, Wake: cfg.Wake}
	strict := gen.NewStrictHandler(newOperations(cfg, host), nil)
	gen.RegisterHandlersWithBaseURL(getAndHead{e}, strict, Prefix)
	return e, nil
}

// getAndHead registers HEAD wherever GET is; net/http drops the body.
type getAndHead struct{ *echo.Echo }

// GET registers h for GET and HEAD.
func (g getAndHead) GET(path string, h echo.HandlerFunc, m ...echo.MiddlewareFunc) *echo.Route {
	g.HEAD(path, h, m...)
	return g.Echo.GET(path, h, m...)
}
