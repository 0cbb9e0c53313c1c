package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"guildhall/gen"
	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/service/tickets"
)

// later is the part of an operation that comes after the first commit.
type later struct {
	// begun reports whether that has happened, where the answer to it was lost.
	begun func(context.Context) (bool, error)

	// run's response has been kept under the key, if the request has one.
	run func(context.Context) (idempotency.Response, error)
}

// How long it is asked whether the first unit has committed, and how often, while
// the database cannot be reached.
const (
	beginTimeout = 5 * time.Second
	beginPause   = 50 * time.Millisecond
)

// sure reports whether the first unit has committed after all. While it is open,
// the key would be in use until its lease ends.
func (l *later) sure(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	for {
		begun, err := l.begun(ctx)
		if err == nil || !db.Unavailable(err) {
			return begun
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(beginPause):
		}
	}
}

// phased serves the operation that may call out between two commits. Its first
// unit is like that of any write, and often the only one: replays, refusals and
// responses that need nobody else end there. When the operation leaves the rest
// for later, the key is leased and the rest runs after the commit, whether or
// not the client is still there.
func (u *units) phased(rs *reqState, next handler) error {
	var r *idempotency.Request
	if rs.key != "" {
		keyed := keyedRequest(rs)
		unlock, replay, err := u.lock(rs, keyed)
		if err != nil {
			return err
		}
		if replay != nil {
			return send(rs, *replay)
		}
		defer unlock()
		r = &keyed
	}
	u.prepare(rs)
	response, rest, err := u.first(rs, r, func(ctx context.Context) (captured, error) {
		if rs.broken != nil {
			return captured{}, rs.broken
		}
		return captureLater(ctx, rs, next)
	})
	if rest != nil {
		// No caller's share: what others know of by now has to be written down.
		lasting := db.As(context.WithoutCancel(rs.ctx), db.Caller{})
		if err == nil || db.Uncertain(err) && rest.sure(lasting) {
			response, err = rest.run(lasting)
		}
	}
	if r != nil && kept(err) {
		refusal := err
		response, _, err = u.first(rs, r, func(ctx context.Context) (captured, error) {
			response, err := refuse(ctx, rs, refusal)
			return captured{Response: response}, err
		})
	}
	if err != nil {
		return err
	}
	if !response.Replayed {
		u.wake(rs.by.GuildID)
	}
	return send(rs, response)
}

// first runs work in the first unit and keeps its response under the key, if there
// is one, or leases the key for what work has left for later.
func (u *units) first(rs *reqState, r *idempotency.Request, work func(context.Context) (captured, error)) (idempotency.Response, *later, error) {
	var done captured
	err := u.db.Do(rs.ctx, func(ctx context.Context, tx *db.Tx) error {
		done = captured{}
		if r != nil {
			replay, err := u.keys.ClaimLeased(ctx, tx, *r)
			if err != nil {
				return err
			}
			if replay != nil {
				done.Response = *replay
				return nil
			}
			ctx = idempotency.With(ctx, *r)
		}
		var err error
		done, err = work(ctx)
		switch {
		case err != nil || r == nil:
			return err
		case done.rest != nil:
			return u.keys.Lease(ctx, tx, *r)
		}
		return u.keys.Keep(ctx, tx, *r, done.Response)
	})
	return done.Response, done.rest, err
}

// captured is what the first unit of an operation has come to: a response, or the
// rest that makes one.
type captured struct {
	idempotency.Response
	rest *later
}

// captureLater is capture for an operation that may leave a rest.
func captureLater(ctx context.Context, rs *reqState, next handler) (captured, error) {
	var rest *later
	response, err := capture(ctx, rs, func(rs *reqState) error {
		err := next(rs)
		if b, ok := rs.Response().Writer.(*buffer); ok {
			rest = b.rest
		}
		return err
	})
	return captured{response, rest}, err
}

// unfinished is the response of an operation that has left a rest. It is never
// sent: instead of bytes it writes the rest.
type unfinished struct{ rest *later }

// VisitCreateTicketMessageResponse hands the rest to the unit.
func (r unfinished) VisitCreateTicketMessageResponse(w http.ResponseWriter) error {
	if e, ok := w.(*echo.Response); ok {
		w = e.Writer
	}
	b, ok := w.(*buffer)
	if !ok {
		return fmt.Errorf("an operation left a rest outside a phased unit, to %T", w)
	}
	b.rest = r.rest
	return nil
}

// CreateTicketMessage is the one phased operation.
func (o operations) CreateTicketMessage(ctx context.Context, r gen.CreateTicketMessageRequestObject) (gen.CreateTicketMessageResponseObject, error) {
	response, rest, err := o.ticketsOps.CreateTicketMessage(ctx, r)
	if err != nil || rest == nil {
		return response, err
	}
	return unfinished{&later{begun: rest.Begun, run: func(ctx context.Context) (idempotency.Response, error) {
		response, err := rest.Run(ctx)
		if err != nil {
			return idempotency.Response{}, err
		}
		return renderTicketMessage(response)
	}}}, nil
}

// TicketKeys keeps the responses to messages under their keys, for whoever
// finishes a message: the request itself, or a sweep.
type TicketKeys struct{ idempotency.Keys }

// Keep keeps what the server would send.
func (k TicketKeys) Keep(ctx context.Context, tx *db.Tx, r idempotency.Request, posted tickets.Response) error {
	response, err := renderTicketMessage(posted)
	if err != nil {
		return err
	}
	return k.Keys.Keep(ctx, tx, r, response)
}

func renderTicketMessage(response tickets.Response) (idempotency.Response, error) {
	b := &buffer{header: http.Header{}}
	if err := response.VisitCreateTicketMessageResponse(b); err != nil {
		return idempotency.Response{}, fault.Wrap(err, "render a response")
	}
	return b.response(), nil
}
