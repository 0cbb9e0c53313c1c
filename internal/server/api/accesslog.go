package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/access/usage"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// requestTimeout is how long an operation may take, not counting the wait of a long poll.
const requestTimeout = 12 * time.Second

// workTimeout is the part of requestTimeout for the database; the rest is for sending the response.
const workTimeout = requestTimeout - 500*time.Millisecond

// statusClosed is logged and counted instead of a status when the caller hung up before its
// response was ready. Other servers' logs use the same number.
const statusClosed = 499

// accessLog handles a request as a whole: it sets the request's id and the fixed headers, turns
// errors and panics into responses, writes the log line and updates the metrics.
func accessLog(log *slog.Logger, m *metrics, count func(usage.Request), wrote func(error)) middleware {
	ended := func(rs *reqState) {
		took := time.Since(rs.came)
		m.observe(rs, took-rs.waited)
		writeLogLine(log, rs, rs.came.Add(took), took)
		countUsage(count, rs, rs.came)
		written(wrote, rs)
	}
	return func(next handler) handler {
		return func(rs *reqState) error {
			rs.caller = rs.Request().Context()
			defer begin(rs, time.Now())()
			if err := recovered(rs, next); err != nil {
				failed(rs, err)
			}
			ended(rs)
			return nil
		}
	}
}

// begin sets the request's id, its fixed headers and its deadline.
func begin(rs *reqState, start time.Time) (cancel context.CancelFunc) {
	rs.id, rs.came = db.NewID(), start
	set(rs, "X-Request-Id", rs.id)
	h := rs.Response().Header()
	h["Cache-Control"], h["X-Content-Type-Options"], h["X-Frame-Options"] = noStore, noSniff, deny
	limit := requestTimeout
	if rs.op != nil && rs.op.LongPoll {
		limit += maxWait
	}
	rs.ctx, cancel = context.WithDeadline(rs.Request().Context(), start.Add(limit))
	return cancel
}

// failed responds with an error.
func failed(rs *reqState, err error) {
	f := classify(err, rs.id)
	if f.Kind == fault.Unavailable && db.Uncertain(err) && rs.key == "" && !rs.reads() {
		f = errUnknown.Because(err)
	}
	rs.closed = rs.gone() && (f.Kind == fault.Unavailable || errors.Is(err, context.Canceled) || rs.reads() && f.Kind != fault.Internal)
	writeError(rs, f)
	rs.refusal = f
}

// gone reports whether the caller has hung up.
func (rs *reqState) gone() bool { return rs.caller != nil && rs.caller.Err() != nil }

// reads reports whether the request is a read.
func (rs *reqState) reads() bool { return rs.op != nil && rs.op.reads() }

// written reports the result of a write to the node's health check. It leaves out failures that are
// the caller's.
func written(wrote func(error), rs *reqState) {
	if wrote == nil || rs.op == nil || rs.op.ReadOnly {
		return
	}
	switch {
	case rs.refusal != nil && db.TakesNoWrites(rs.refusal):
		wrote(rs.refusal)
	case rs.Response().Status < http.StatusMultipleChoices:
		wrote(nil)
	}
}

// Values of headers that every response has. All responses share the slices, since nothing changes
// a header's values in place.
var noStore, noSniff, deny = []string{"no-store"}, []string{"nosniff"}, []string{"DENY"}

// set sets headers, given as name, value, name, value. Names must be in canonical form, which saves
// canonicalising them for each request.
func set(rs *reqState, pairs ...string) {
	h, values := rs.Response().Header(), make([]string, len(pairs)/2)
	for i := range values {
		values[i] = pairs[2*i+1]
		h[pairs[2*i]] = values[i : i+1 : i+1]
	}
}

// recovered runs next and turns a panic into an error with its stack.
func recovered(rs *reqState, next handler) (err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			panic(p)
		default:
			err = fault.Panicked(p)
		}
	}()
	return next(rs)
}

// writeLogLine writes the request's log line. The caller's errors have level info, ours error. The
// path is the route's pattern, since callers may put secrets into paths. The record is made by hand
// because a Logger would look up its caller. No value can change, so the log formats the record later.
func writeLogLine(log *slog.Logger, rs *reqState, now time.Time, took time.Duration) {
	level := slog.LevelInfo
	status := rs.status()
	switch {
	case status == http.StatusBadGateway: // the chat platform has refused, which callers can cause
		level = slog.LevelWarn
	case status >= 500:
		level = slog.LevelError
	}
	if !log.Enabled(rs.ctx, level) {
		return
	}
	attrs := append(make([]slog.Attr, 0, 12),
		slog.String("request_id", rs.id),
		slog.String("method", method(rs)),
		slog.String("route", rs.Path()),
		slog.Int("status", status),
		slog.Float64("took_ms", float64(took.Microseconds())/1000),
		slog.Int64("bytes", rs.Response().Size),
		slog.String("from", rs.from.String()),
	)
	if rs.by != nil {
		attrs = append(attrs, slog.String("token_id", rs.by.ID), slog.String("guild_id", rs.by.GuildID))
	}
	if rs.trace != "" {
		attrs = append(attrs, slog.String("trace_id", rs.trace))
	}
	f, refused := fault.As(rs.refusal)
	switch {
	case rs.closed:
		attrs = append(attrs, slog.String("code", "client_closed"))
	case refused:
		attrs = append(attrs, slog.String("code", f.Code))
	}
	if refused {
		if cause := f.Unwrap(); cause != nil {
			attrs = append(attrs, slog.String("cause", cause.Error()))
		}
	}
	r := slog.NewRecord(now, level, "request", 0)
	r.AddAttrs(attrs...)
	_ = log.Handler().Handle(rs.ctx, r) // there is nowhere to report a failing log
}

// status is the response's status, or statusClosed.
func (rs *reqState) status() int {
	if rs.closed {
		return statusClosed
	}
	return rs.Response().Status
}

// method returns the request's method, or a placeholder if it is not one of HTTP's own.
func method(rs *reqState) string {
	switch m := rs.Request().Method; m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete, http.MethodOptions:
		return m
	default:
		return "other"
	}
}

// metrics are the request metrics of /metrics.
type metrics struct{ requests, batches, waits *prometheus.HistogramVec }

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "guildhall_request_duration_seconds",
		Help:    "Time to answer a request, without what it was asked to wait for, by operation and status; 499 means that the caller hung up first.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
	}, []string{"operation", "status"})}
	m.batches = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "guildhall_request_batch_size",
		Help:    "Requests of a collected operation that shared one transaction.",
		Buckets: []float64{1, 2, 4, 8, 16, 32, 64},
	}, []string{"operation"})
	m.waits = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "guildhall_request_batch_wait_seconds",
		Help:    "Time that the first request of each batch waited for it to begin, by operation.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .5, 2},
	}, []string{"operation"})
	if r == nil {
		return m, nil
	}
	return m, errors.Join(r.Register(m.requests), r.Register(m.batches), r.Register(m.waits))
}

// batch returns the function that records the batches of an operation.
func (m *metrics) batch(operation string) func(size int, waited time.Duration) {
	sizes, waits := m.batches.WithLabelValues(operation), m.waits.WithLabelValues(operation)
	return func(size int, waited time.Duration) {
		sizes.Observe(float64(size))
		waits.Observe(waited.Seconds())
	}
}

func (m *metrics) observe(rs *reqState, took time.Duration) {
	id := "none"
	if rs.op != nil {
		id = rs.op.ID
	}
	m.requests.WithLabelValues(id, strconv.Itoa(rs.status())).Observe(took.Seconds())
}
