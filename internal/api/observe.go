package api

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/auth"
	"guildhall/internal/db"
	"guildhall/internal/fault"
)

// patience is how long an operation may take in all.
const patience = 12 * time.Second

const (
	requestIDKey = "request-id"
	refusalKey   = "refusal"
)

// note remembers a refusal that was answered from inside, for the log.
func note(c echo.Context, err error) { c.Set(refusalKey, err) }

// observed wraps the whole request: its id and fixed headers, the one place
// where an error or a panic becomes an answer, its line in the log, its
// numbers.
func observed(log *slog.Logger, m *metrics) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			start := time.Now()
			id := db.NewID()
			c.Set(requestIDKey, id)
			h := c.Response().Header()
			h.Set(echo.HeaderXRequestID, id)
			h.Set(echo.HeaderCacheControl, "no-store")
			h.Set(echo.HeaderXContentTypeOptions, "nosniff")
			h.Set(echo.HeaderXFrameOptions, "DENY")

			ctx, cancel := bounded(c, start)
			defer cancel()
			c.SetRequest(c.Request().WithContext(ctx))
			err := recovered(c, next)
			if err != nil {
				f := classify(err, id)
				writeError(c, f)
				err = f
			} else if noted, ok := c.Get(refusalKey).(error); ok {
				err = noted
			}
			took := time.Since(start)
			m.observe(c, took)
			line(log, c, took, err)
			return nil
		}
	}
}

// bounded is the context of one request. A read is short, its statement has a
// timeout of its own, and its socket gets the deadline; so nobody has to watch
// whether its caller has gone, which costs three goroutines a query. A write is
// given up when the caller leaves before the commit.
func bounded(c echo.Context, start time.Time) (context.Context, context.CancelFunc) {
	ctx := c.Request().Context()
	if op := operationOf(c); op != nil && op.ReadOnly {
		return unwatched{ctx, start.Add(patience)}, func() {}
	}
	return context.WithDeadline(ctx, start.Add(patience))
}

// unwatched is a context that has a deadline for those who ask for it and is
// never cancelled.
type unwatched struct {
	context.Context
	until time.Time
}

func (u unwatched) Deadline() (time.Time, bool) { return u.until, true }
func (unwatched) Done() <-chan struct{}         { return nil }
func (unwatched) Err() error                    { return nil }

// recovered runs next and turns a panic into an error with its stack.
func recovered(c echo.Context, next echo.HandlerFunc) (err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			panic(p)
		default:
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return next(c)
}

// line writes the request's one line. The caller's faults are information,
// ours are errors. The path is the route's pattern: what a caller puts into a
// path may be a secret.
func line(log *slog.Logger, c echo.Context, took time.Duration, err error) {
	level := slog.LevelInfo
	status := c.Response().Status
	if status >= 500 {
		level = slog.LevelError
	}
	ctx := c.Request().Context()
	if !log.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs,
		slog.String("request_id", c.Get(requestIDKey).(string)),
		slog.String("method", method(c)),
		slog.String("route", c.Path()),
		slog.Int("status", status),
		slog.Float64("took_ms", float64(took.Microseconds())/1000),
		slog.Int64("bytes", c.Response().Size),
		slog.String("from", address(c).String()),
	)
	if by, _ := c.Get(principalKey).(*auth.Principal); by != nil {
		attrs = append(attrs, slog.String("token_id", by.TokenID), slog.String("guild_id", by.GuildID))
	}
	if f, ok := fault.As(err); ok {
		attrs = append(attrs, slog.String("code", f.Code))
		if cause := f.Unwrap(); cause != nil {
			attrs = append(attrs, slog.String("cause", cause.Error()))
		}
	}
	log.LogAttrs(ctx, level, "request", attrs...)
}

// method is the request's method if it is one of HTTP's own.
func method(c echo.Context) string {
	switch m := c.Request().Method; m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete, http.MethodOptions:
		return m
	default:
		return "other"
	}
}

// metrics are the request numbers that /metrics shows.
type metrics struct{ requests *prometheus.HistogramVec }

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "guildhall_request_duration_seconds",
		Help:    "Time to answer a request, by operation and status.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
	}, []string{"operation", "status"})}
	if r == nil {
		return m, nil
	}
	return m, r.Register(m.requests)
}

func (m *metrics) observe(c echo.Context, took time.Duration) {
	id := "none"
	if op := operationOf(c); op != nil {
		id = op.ID
	}
	m.requests.WithLabelValues(id, strconv.Itoa(c.Response().Status)).Observe(took.Seconds())
}
