package api

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/service/pending"
)

const (
	// maxWait is the longest wait of a long poll.
	maxWait = 20 * time.Second

	// answerTimeout is how long a caller may take to read the response after the wait.
	answerTimeout = 20 * time.Second
)

// longPoll serves an operation that may have to wait for its response. The operation runs
// again and again, each time in a transaction of its own, until it has a response or the
// wait is over. Between two runs the request holds neither a connection nor a slot. Before
// each run its token is checked again.
//
// Thousands of requests may wait. All work runs on a goroutine of its own, and the frames
// from here up to net/http are small, so that a waiting request's stack stays at 8 KB.
func (u *units) longPoll(rs *reqState, next handler) error {
	if rs.broken != nil {
		return rs.broken
	}
	rs.body = bytes.Clone(rs.body) // a copy, so that the larger read buffer can be freed
	p := &poll{units: u, next: next}
	err := apart(rs, p.first)
	if err != nil || p.waiter == nil {
		return err
	}
	defer p.end()
	for p.pause(rs) {
		if err := apart(rs, p.again); err != nil || p.wait == nil {
			return err
		}
	}
	rs.closed = rs.gone()
	response, err := rendered(p.wait.Empty)
	if err != nil {
		return err
	}
	return send(rs, response)
}

// apart runs next on a new goroutine, whose grown stack is freed when next returns.
func apart(rs *reqState, next handler) error {
	served := make(chan error, 1)
	go func() { served <- fault.Caught(func() error { return next(rs) }) }()
	return <-served
}

// poll is one long-polling request.
type poll struct {
	units  *units
	next   handler
	wait   *pending.Wait // what the last run waits for; nil when it has sent its response
	waiter *delivery.Waiter
	timer  *time.Timer // ends the wait
}

// first runs the operation once and begins to wait if it has no response yet.
func (p *poll) first(rs *reqState) error {
	if err := p.run(rs); err != nil || p.wait == nil {
		return err
	}
	extendDeadlines(rs, p.wait.For)
	rs.value = nil
	p.waiter, p.timer = p.wait.Begin(), time.NewTimer(time.Until(rs.came.Add(p.wait.For)))
	return nil
}

func (p *poll) end() {
	p.timer.Stop()
	p.waiter.End()
}

// again runs the operation once more. The run has as much time as a new request.
func (p *poll) again(rs *reqState) error {
	db.EndBy(rs.ctx, time.Now().Add(workTimeout)) //nolint:forbidigo // a stretch of time, not an instant that anything keeps
	if err := p.units.reauthenticate(rs); err != nil {
		return err
	}
	_ = validateBody(rs) // sets rs.value again; the body has passed validation before
	err := p.run(rs)
	rs.value = nil
	return err
}

// pause waits for a wake-up and reports whether one came before the wait was over.
func (p *poll) pause(rs *reqState) bool {
	began := time.Now() //nolint:forbidigo // a stretch of time, not an instant that anything keeps
	woken := p.waiter.Wait(rs.ctx, p.timer.C)
	rs.waited += time.Since(began)
	return woken
}

// run runs the operation in a transaction and sends its response if it has one. Otherwise wait
// says what the operation waits for.
func (p *poll) run(rs *reqState) error {
	var response idempotency.Response
	err := p.units.db.Do(rs.ctx, func(ctx context.Context, _ *db.Tx) (err error) {
		p.wait = nil // the transaction may run again
		response, err = capture(ctx, rs, p.next)
		if errors.As(err, &p.wait) {
			return nil // commits what the fetch has recorded
		}
		return err
	})
	if err != nil || p.wait != nil {
		return err
	}
	return send(rs, response)
}

// reauthenticate returns an error if the request's token has been revoked or has expired meanwhile.
func (u *units) reauthenticate(rs *reqState) error {
	bearer, err := auth.FromHeader(rs.Request().Header)
	if err == nil {
		_, err = u.login.Authenticate(rs.ctx, bearer, rs.from)
	}
	return err
}

// extendDeadlines moves the connection's deadlines beyond the wait. With the server's own
// deadlines, a caller that waits would look as if it had gone.
func extendDeadlines(rs *reqState, wait time.Duration) {
	c, at := http.NewResponseController(rs.Response()), rs.came.Add(wait+answerTimeout)
	_ = c.SetReadDeadline(at) // an error means that the connection has no deadlines
	_ = c.SetWriteDeadline(at)
}
