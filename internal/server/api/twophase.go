package api

import (
	"context"
	"net/http"
	"time"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/service/pending"
)

// While the database cannot be reached, the API asks this often, and for this long, whether the
// first transaction of a two-phase operation has committed.
const (
	beginTimeout = 5 * time.Second
	beginPause   = 50 * time.Millisecond
)

// begun reports whether the first transaction of call has committed after all. Unless that
// is found out, the key stays in use until its lease ends.
func begun(ctx context.Context, call *pending.Call) bool {
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	for {
		committed, err := call.Begun(ctx)
		if err == nil || !db.Unavailable(err) {
			return committed
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(beginPause):
		}
	}
}

// secondPhase makes the call that a two-phase operation needs after its first transaction, whose
// error is err. It continues when the caller hangs up and uses no connection slot of the caller:
// what the other system has accepted must be recorded.
func secondPhase(rs *reqState, call *pending.Call, err error) (idempotency.Response, error) {
	ctx := db.As(context.WithoutCancel(rs.ctx), db.Caller{})
	if err != nil && (!db.Uncertain(err) || !begun(ctx, call)) {
		return idempotency.Response{}, err
	}
	response, err := call.Run(ctx)
	if err != nil {
		return idempotency.Response{}, err
	}
	return rendered(response)
}

// rendered returns the response that render writes.
func rendered(render pending.Render) (idempotency.Response, error) {
	b := &buffer{header: http.Header{}}
	if err := render(b); err != nil {
		return idempotency.Response{}, fault.Wrap(err, "render a response")
	}
	return b.response(), nil
}

// TicketKeys stores the responses of ticket messages under their keys. It is used by whoever
// finishes a message: the request itself, or the sweep after its node has died.
type TicketKeys struct{ idempotency.Keys }

// Keep stores the response that the server would send.
func (k TicketKeys) Keep(ctx context.Context, tx *db.Tx, r idempotency.Request, render pending.Render) error {
	response, err := rendered(render)
	if err != nil {
		return err
	}
	return k.Keys.Keep(ctx, tx, r, response)
}
