// Package pending has the errors by which an operation says that its transaction has to
// commit before there is a response. The API commits on these two errors, as on none other,
// and then does what the error asks for.
package pending

import (
	"context"
	"net/http"
	"time"

	"guildhall/internal/outbound/delivery"
)

// Render writes a response. The Visit method of each generated response object is one.
type Render func(http.ResponseWriter) error

// Call is returned by an operation that calls another system between two transactions.
// The API leases the request's key in the first transaction and calls Run after its commit,
// whether or not the caller is still connected.
type Call struct {
	// Begun reports whether the first transaction has committed. It is asked when the
	// answer to that COMMIT was lost.
	Begun func(context.Context) (bool, error)

	// Run opens transactions of its own, in which it stores the response under the
	// request's key or releases the key.
	Run func(context.Context) (Render, error)
}

func (*Call) Error() string { return "the operation calls out after its transaction" }

// Wait is returned by a long poll that has found nothing. The API runs the operation
// again whenever the waiter is woken, and renders Empty when the time is over.
type Wait struct {
	For   time.Duration // since the request came
	Begin func() *delivery.Waiter
	Empty Render
}

func (*Wait) Error() string { return "the operation waits for events" }

// Events is the error of a fetch that waits up to wait for its first event. It is nil
// when got has events or wait is zero.
func Events(got delivery.Fetched, wait time.Duration, begin func() *delivery.Waiter) error {
	if len(got.Events) > 0 || wait == 0 {
		return nil
	}
	return &Wait{For: wait, Begin: begin, Empty: got.WriteJSON}
}
