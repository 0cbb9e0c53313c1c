package api

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/delivery"
)

const (
	// maxWait is the longest that a request may wait for something to answer with.
	maxWait = 20 * time.Second

	// answerTimeout is how long a caller may take to read the response after that.
	answerTimeout = 20 * time.Second
)

// waiting serves an operation that may have nothing to answer with yet. It is run in
// units of its own, again and again, until it has, or the waiting is over. In between
// the request holds nothing: no connection, and no place. Each time its token has to be
// good still.
//
// Thousands may wait. All that works runs apart, and the frames from here up to net/http
// are small ones, so that their stacks stay at 8 KB.
func (u *units) waiting(rs *reqState, next handler) error {
	if rs.broken != nil {
		return rs.broken
	}
	rs.body = bytes.Clone(rs.body) // which keeps no more than it needs
	try := &waitingCall{units: u, next: next}
	err := apart(rs, try.first)
	if err != nil || try.waiter == nil {
		return err
	}
	defer try.end()
	for try.pause(rs) {
		if err := apart(rs, try.again); err != nil || try.answered {
			return err
		}
	}
	rs.closed = rs.gone()
	return send(rs, try.nothing)
}

// apart runs next on a goroutine of its own, whose stack goes with it.
func apart(rs *reqState, next handler) error {
	served := make(chan error, 1)
	go func() { served <- fault.Caught(func() error { return next(rs) }) }()
	return <-served
}

// waitingCall is a request that waits, attempt by attempt.
type waitingCall struct {
	units    *units
	next     handler
	nothing  idempotency.Response // what the last one would answer
	answered bool
	waiter   *delivery.Waiter
	late     *time.Timer // ends the waiting
}

// first is the first attempt. It begins to wait where there is nothing yet.
func (a *waitingCall) first(rs *reqState) error {
	wait, err := a.try(rs)
	if err != nil || wait == nil {
		return err
	}
	unhurried(rs, wait.For)
	rs.value = nil
	a.waiter, a.late = wait.Begin(), time.NewTimer(time.Until(rs.came.Add(wait.For)))
	return nil
}

func (a *waitingCall) end() {
	a.late.Stop()
	a.waiter.End()
}

// again is a further one, which has as long for its work as a request of its own.
func (a *waitingCall) again(rs *reqState) error {
	db.EndBy(rs.ctx, time.Now().Add(workTimeout)) //nolint:forbidigo // a stretch of time, not an instant that anything keeps
	if err := a.units.stillKnown(rs); err != nil {
		return err
	}
	_ = validateBody(rs) // which has found nothing before
	_, err := a.try(rs)
	rs.value = nil
	return err
}

// pause waits until there may be something, and reports whether there may.
func (a *waitingCall) pause(rs *reqState) bool {
	began := time.Now() //nolint:forbidigo // a stretch of time, not an instant that anything keeps
	again := a.waiter.Wait(rs.ctx, a.late.C)
	rs.waited += time.Since(began)
	return again
}

// try runs the operation in a unit of its own, and answers when there is something. Else
// it returns what the operation would wait for.
func (a *waitingCall) try(rs *reqState) (wait *delivery.Wait, err error) {
	err = a.units.db.Do(rs.ctx, func(ctx context.Context, _ *db.Tx) (err error) {
		wait = nil
		a.nothing, err = capture(ctx, rs, func(rs *reqState) error {
			err := a.next(rs)
			if b, ok := rs.Response().Writer.(*buffer); ok {
				wait = b.wait
			}
			return err
		})
		return err
	})
	if err != nil || wait != nil {
		return wait, err
	}
	a.answered = true
	return nil, send(rs, a.nothing)
}

// stillKnown fails when the request's token has been revoked, or has expired, since.
func (u *units) stillKnown(rs *reqState) error {
	bearer, err := auth.FromHeader(rs.Request().Header)
	if err == nil {
		_, err = u.login.Authenticate(rs.ctx, bearer, rs.from)
	}
	return err
}

// unhurried gives the connection of a request that waits the time that it takes: by the
// server's own deadlines, its caller would seem to be gone before.
func unhurried(rs *reqState, wait time.Duration) {
	c, at := http.NewResponseController(rs.Response()), rs.came.Add(wait+answerTimeout)
	_ = c.SetReadDeadline(at) // a connection without deadlines needs none
	_ = c.SetWriteDeadline(at)
}

// PullWebhookEvents and PullBotEvents are the operations that wait.
func (o operations) PullWebhookEvents(ctx context.Context, r gen.PullWebhookEventsRequestObject) (gen.PullWebhookEventsResponseObject, error) {
	response, wait, err := o.webhooksOps.PullWebhookEvents(ctx, r)
	if err != nil || wait == nil {
		return response, err
	}
	return nothingYet{visit: response.VisitPullWebhookEventsResponse, wait: wait}, nil
}

// PullBotEvents is the other.
func (o operations) PullBotEvents(ctx context.Context, r gen.PullBotEventsRequestObject) (gen.PullBotEventsResponseObject, error) {
	response, wait, err := o.streamsOps.PullBotEvents(ctx, r)
	if err != nil || wait == nil {
		return response, err
	}
	return nothingYet{visit: response.VisitPullBotEventsResponse, wait: wait}, nil
}

// nothingYet is the response of an operation that would wait.
type nothingYet struct {
	visit func(http.ResponseWriter) error
	wait  *delivery.Wait
}

// VisitPullWebhookEventsResponse hands what it would wait for to the unit.
func (r nothingYet) VisitPullWebhookEventsResponse(w http.ResponseWriter) error { return r.hand(w) }

// VisitPullBotEventsResponse does the same.
func (r nothingYet) VisitPullBotEventsResponse(w http.ResponseWriter) error { return r.hand(w) }

func (r nothingYet) hand(w http.ResponseWriter) error {
	inner := w
	if e, ok := w.(*echo.Response); ok {
		inner = e.Writer
	}
	b, ok := inner.(*buffer)
	if !ok {
		return fmt.Errorf("an operation would wait outside its unit, to %T", inner)
	}
	b.wait = r.wait
	return r.visit(w)
}
