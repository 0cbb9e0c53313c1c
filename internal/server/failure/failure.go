// Package failure maps errors to HTTP statuses, for the API and the dashboard alike: one table for
// faults, and one rule for all other errors. How a failure is rendered is up to each of them.
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

// statuses is the HTTP status of each kind of fault.
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

// Codes of refusals that are about HTTP itself. They have no kind; the code determines the status.
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

// Words are the faults to show for errors that are not faults.
type Words struct {
	Unavailable *fault.Error // the database does not respond, or not in time
	Internal    *fault.Error // everything else
}

// Of returns the fault to show for err. For an error that is not a fault it returns one of w, with
// err as the cause for the log.
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

// Seconds returns d in whole seconds, rounded up, at least 1, for Retry-After.
func Seconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }
