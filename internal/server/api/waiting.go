package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db"
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
func (u *units) waiting(rs *reqState, next handler) error {
	if rs.broken != nil {
		return rs.broken
	}
	response, wait, err := u.tried(rs, next)
	if err != nil || wait == nil {
		return sent(rs, response, err)
	}
	ctx, cancel := context.WithDeadline(rs.ctx, rs.came.Add(wait.For))
	defer cancel()
	unhurried(rs, wait.For)
	one := wait.Begin()
	defer one.End()
	for {
		began := time.Now() //nolint:forbidigo // a stretch of time, not an instant that anything keeps
		again := one.Wait(ctx)
		rs.waited += time.Since(began)
		if !again {
			rs.closed = rs.gone()
			return send(rs, response)
		}
		// The next look has as long for its work as a request of its own.
		db.EndBy(rs.ctx, time.Now().Add(workTimeout)) //nolint:forbidigo // a stretch of time, not an instant that anything keeps
		if err := u.stillKnown(rs); err != nil {
			return err
		}
		if response, wait, err = u.tried(rs, next); err != nil || wait == nil {
			return sent(rs, response, err)
		}
	}
}

func sent(rs *reqState, response idempotency.Response, err error) error {
	if err != nil {
		return err
	}
	return send(rs, response)
}

// tried runs the operation in a unit of its own. Beside the response it returns what
// the operation would wait for.
func (u *units) tried(rs *reqState, next handler) (response idempotency.Response, wait *delivery.Wait, err error) {
	err = u.db.Do(rs.ctx, func(ctx context.Context, _ *db.Tx) (err error) {
		wait = nil
		response, err = capture(ctx, rs, func(rs *reqState) error {
			err := next(rs)
			if b, ok := rs.Response().Writer.(*buffer); ok {
				wait = b.wait
			}
			return err
		})
		return err
	})
	return response, wait, err
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
