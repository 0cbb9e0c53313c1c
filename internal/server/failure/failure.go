// Package failure says what an error is in HTTP: one table of statuses and one
// judgement of unknown errors, for the API and for the dashboard. How a failure
// is put into a body, and in which words, is theirs.
package failure

import (
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// statuses is what each kind of failure is in HTTP.
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

// The codes of refusals that are about HTTP itself. They have no kind of their
// own; the code decides about the status.
const (
	MethodNotAllowed     = "method_not_allowed"
	PayloadTooLarge      = "payload_too_large"
	UnsupportedMediaType = "unsupported_media_type"
)

var codeStatuses = map[string]int{
	MethodNotAllowed:     http.StatusMethodNotAllowed,
	PayloadTooLarge:      http.StatusRequestEntityTooLarge,
	UnsupportedMediaType: http.StatusUnsupportedMediaType,
}

// Status returns the status of f.
func Status(f *fault.Error) int {
	if s, ok := codeStatuses[f.Code]; ok {
		return s
	}
	return statuses[f.Kind]
}

// Words are how the failures are told that bring no words of their own.
type Words struct {
	Unavailable *fault.Error // the database does not answer, or not in time
	Internal    *fault.Error // everything else
}

// Of returns what the caller may know of err. An error that is no fault is told in the
// words given, and keeps its cause for the log.
func (w Words) Of(err error) *fault.Error {
	f, ok := fault.As(err)
	switch {
	case ok && f.Kind != fault.Internal:
		return f
	case !ok && (db.Unavailable(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
		return w.Unavailable.Because(err)
	default:
		return w.Internal.Because(err)
	}
}

// Seconds is d in whole seconds, rounded up, at least one: a caller that waits
// that long has waited long enough.
func Seconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }
