package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"guildhall/internal/base/fault"
	"guildhall/internal/server/failure"
)

var (
	errNoRoute     = fault.New(fault.NotFound, "not_found", "There is no such route.")
	errMethod      = fault.New(fault.Forbidden, failure.MethodNotAllowed, "This path does not take this method; see the Allow header.")
	errTooLarge    = fault.New(fault.Forbidden, failure.PayloadTooLarge, "The body is too large.")
	errMedia       = fault.New(fault.Forbidden, failure.UnsupportedMediaType, "The body must be sent as application/json, in UTF-8 and without a content encoding.")
	errUnavailable = fault.New(fault.Unavailable, "service_unavailable", "The service cannot answer now; try the same request again.").After(5 * time.Second)

	// errUnknown is told of a write without a key whose COMMIT nobody has answered: sent
	// again, it may be done twice.
	errUnknown = errUnavailable.With("The database was lost before it had said whether this was done: look before you send it again. " +
		"With an Idempotency-Key it could be sent again as it stands.")
)

// kept reports whether the contract keeps this refusal under the key of the
// request: what was found after the key was accepted, short of failure, unless it says itself
// that it is not kept.
func kept(err error) bool {
	f, ok := fault.As(err)
	return ok && !f.Unkept && (f.Kind == fault.Invalid || f.Kind == fault.NotFound || f.Kind == fault.Refused)
}

// classify turns any error into a failure that can be shown. An error that is not known
// is ours, and only the request id is told.
func classify(err error, requestID string) *fault.Error {
	var he *echo.HTTPError
	if _, ok := fault.As(err); !ok && errors.As(err, &he) {
		switch {
		case he.Code == http.StatusNotFound:
			return errNoRoute
		case he.Code == http.StatusMethodNotAllowed:
			return errMethod
		case he.Code == http.StatusRequestEntityTooLarge:
			return errTooLarge
		case he.Code >= 400 && he.Code < 500:
			// The generated wrapper could not bind a parameter that validation let
			// through; its text may repeat the value, so it stays in the log.
			return invalid("The request cannot be read.").Because(err)
		}
	}
	return failure.Words{
		Unavailable: errUnavailable,
		Internal:    fault.New(fault.Internal, "internal_error", "Something went wrong on our side. Quote request %s.", requestID),
	}.Of(err)
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
	w.WriteHeader(failure.Status(f))
	body := json.NewEncoder(w)
	body.SetEscapeHTML(false)                                                    // people read the message
	_ = body.Encode(envelope{envelopeError{f.Code, f.Message, f.RequiredScope}}) // a client that is gone misses its response
}

// seconds is d as a header tells it.
func seconds(d time.Duration) string { return strconv.Itoa(failure.Seconds(d)) }
