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

	// errUnknown is the error for a write without a key whose COMMIT got no response: if it is sent
	// again, it may be done twice.
	errUnknown = errUnavailable.With("The database was lost before it had said whether this was done: look before you send it again. " +
		"With an Idempotency-Key it could be sent again as it stands.")
)

// kept reports whether the contract stores this refusal under the request's key: one that was found
// after the key was accepted, is not our failure, and is not marked as Unkept.
func kept(err error) bool {
	f, ok := fault.As(err)
	return ok && !f.Unkept && (f.Kind == fault.Invalid || f.Kind == fault.NotFound || f.Kind == fault.Refused)
}

// classify turns any error into a fault to show. For an unknown error the caller gets only the
// request id.
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
			// The generated code could not bind a parameter that validation has accepted. Its text
			// may contain the value, so it is only logged.
			return invalid("The request cannot be read.").Because(err)
		}
	}
	return failure.Words{
		Unavailable: errUnavailable,
		Internal:    fault.New(fault.Internal, "internal_error", "Something went wrong on our side. Quote request %s.", requestID),
	}.Of(err)
}

// invalid returns the fault of a request that violates the schema.
func invalid(format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, "invalid_request", format, args...)
}

// envelope is the JSON body of every error.
type envelope struct {
	Error envelopeError `json:"error"`
}

type envelopeError struct {
	Code          string `json:"code"`
	Message       string `json:"message"`
	RequiredScope string `json:"required_scope,omitempty"`
}

// writeError responds with f. It writes nothing if the response has already begun.
func writeError(rs *reqState, f *fault.Error) {
	if !rs.Response().Committed {
		writeFault(rs.Response(), f)
	}
}

// writeFault writes the response for f.
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
	body.SetEscapeHTML(false)                                                    // the message is read by people
	_ = body.Encode(envelope{envelopeError{f.Code, f.Message, f.RequiredScope}}) // the client may have gone
}

// seconds returns d as the value of a Retry-After header.
func seconds(d time.Duration) string { return strconv.Itoa(failure.Seconds(d)) }
