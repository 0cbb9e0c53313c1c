// Package api handles HTTP: the chain of checks before an operation, the transaction around it, and
// the one place where errors become responses. It contains nothing about what the operations do.
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

// Config is the configuration of the handler. All fields are required except Proxies, Wake,
// Metrics, Tracer and About.
type Config struct {
	DB      *db.DB
	Tokens  Authenticator
	Limits  *ratelimit.Limiter
	Quotas  Quotas
	Proxies []netip.Prefix // proxies whose forwarding headers are trusted
	Env     string         // live or test
	Sealer  idempotency.Sealer
	Wake    func(guild string) // called after a commit that may have recorded events in the guild
	Log     *slog.Logger
	Metrics prometheus.Registerer
	Tracer  *tracing.Tracer // nil: no traces
	// Count is called for each finished request with a token, before its handler returns; nil:
	// requests are not counted.
	Count func(usage.Request)
	// Wrote is called with the result of each write: nil after a commit, or an error for which
	// Postgres now refuses every write (db.TakesNoWrites). Wrote may be nil.
	Wrote func(error)

	// About describes this installation in the served documents.
	About About

	// OneGuild makes every statement name a single guild, for tables that are distributed by guild.
	// Otherwise a batch may contain changes of several guilds.
	OneGuild bool

	// ValidateResponses logs every response that violates the contract.
	ValidateResponses bool

	Services
}

// New returns the handler of the API.
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
	e.Binder = nil // reqState.Bind replaces it
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
		serveDocuments(cfg.About, cfg.Limits, cfg.Quotas.Login),
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
