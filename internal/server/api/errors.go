package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// statuses is what each kind of failure is in HTTP, here and, but for upstream, on
// the dashboard.
var statuses = map[fault.Kind]int{
	fault.Internal:        http.StatusInternalServerError,
	fault.Invalid:         http.StatusBadRequest,
	fault.Unauthenticated: http.StatusUnauthorized,
	fault.Forbidden:       http.StatusForbidden,
	fault.NotFound:        http.StatusNotFound,
	fault.Refused:         http.StatusUnprocessableEntity,
	fault.Conflict:        http.StatusConflict,
	fault.Limited:         http.StatusTooManyRequests,
	fault.Upstream:        http.StatusBadGateway,
	fault.Unavailable:     http.StatusServiceUnavailable,
}

// Three refusals are about HTTP itself. They are made here alone and have no
// kind of their own; their code overrides the status.
var codeStatuses = map[string]int{
	errMethod.Code:   http.StatusMethodNotAllowed,
	errTooLarge.Code: http.StatusRequestEntityTooLarge,
	errMedia.Code:    http.StatusUnsupportedMediaType,
}

var (
	errNoRoute     = fault.New(fault.NotFound, "not_found", "There is no such route.")
	errMethod      = fault.New(fault.Forbidden, "method_not_allowed", "This path does not take this method; see the Allow header.")
	errTooLarge    = fault.New(fault.Forbidden, "payload_too_large", "The body is too large.")
	errMedia       = fault.New(fault.Forbidden, "unsupported_media_type", "The body must be sent as application/json, in UTF-8 and without a content encoding.")
	errUnavailable = fault.New(fault.Unavailable, "service_unavailable", "The service cannot answer now; try the same request again.").After(5 * time.Second)
)

// kept reports whether the contract keeps this refusal under the key of the
// request: what was found after the key was accepted, short of failure.
func kept(err error) bool {
	f, ok := fault.As(err)
	return ok && (f.Kind == fault.Invalid || f.Kind == fault.NotFound || f.Kind == fault.Refused)
}

// classify turns any error into a failure that can be shown. What is not known
// is ours, and only the request id is told.
func classify(err error, requestID string) *fault.Error {
	f, ok := fault.As(err)
	var he *echo.HTTPError
	switch {
	case ok:
	case errors.As(err, &he) && he.Code == http.StatusNotFound:
		f = errNoRoute
	case errors.As(err, &he) && he.Code == http.StatusMethodNotAllowed:
		f = errMethod
	case errors.As(err, &he) && he.Code == http.StatusRequestEntityTooLarge:
		f = errTooLarge
	case errors.As(err, &he) && he.Code >= 400 && he.Code < 500:
		// The generated wrapper could not bind a parameter that validation let
		// through; its text may repeat the value, so it stays in the log.
		f = invalid("The request cannot be read.").Because(err)
	case db.Unavailable(err), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		f = errUnavailable.Because(err)
	default:
		f = fault.New(fault.Internal, "internal_error", "Something went wrong on our side. Quote request %s.", requestID).Because(err)
	}
	if f.Kind == fault.Internal && ok {
		f = fault.New(fault.Internal, "internal_error", "Something went wrong on our side. Quote request %s.", requestID).Because(err)
	}
	return f
}

// invalid is a request that breaks the published schema.
func invalid(format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, "invalid_request", format, args...)
}

// envelope is the body of every error.
type envelope struct {
	Error envelopeError `json:"error"`
}

type envelopeError struct {
	Code          string `json:"code"`
	Message       string `json:"message"`
	RequiredScope string `json:"required_scope,omitempty"`
}

// writeError answers with f. It writes nothing when the response has begun.
func writeError(rs *reqState, f *fault.Error) {
	if !rs.Response().Committed {
		writeFault(rs.Response(), f)
	}
}

// writeFault writes the response that f is.
func writeFault(w http.ResponseWriter, f *fault.Error) {
	h := w.Header()
	switch {
	case f.Kind == fault.Unauthenticated:
		h.Set(echo.HeaderWWWAuthenticate, "Bearer")
	case f.RequiredScope != "":
		h.Set(echo.HeaderWWWAuthenticate, fmt.Sprintf(`Bearer error="insufficient_scope", scope="%s"`, f.RequiredScope))
	}
	if f.RetryAfter > 0 {
		h.Set(echo.HeaderRetryAfter, seconds(f.RetryAfter))
	}
	h.Set(echo.HeaderContentType, contentType)
	w.WriteHeader(status(f))
	body := json.NewEncoder(w)
	body.SetEscapeHTML(false)                                                    // people read the message
	_ = body.Encode(envelope{envelopeError{f.Code, f.Message, f.RequiredScope}}) // a client that is gone misses its response
}

func status(f *fault.Error) int {
	if s, ok := codeStatuses[f.Code]; ok {
		return s
	}
	return statuses[f.Kind]
}

// seconds is d in whole seconds, rounded up, at least one: who waits that long
// has waited long enough.
func seconds(d time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(d.Seconds()))))
}
