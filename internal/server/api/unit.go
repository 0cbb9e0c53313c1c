package api

import (
	"bytes"
	"context"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/delivery"
)

// idempotentReplay is the header of a response that was given before: under the same
// key, or to the change that has used the reference.
const idempotentReplay = "Idempotent-Replay"

// units opens the unit of work of each write.
type units struct {
	db    *db.DB
	keys  idempotency.Keys
	mutex *idempotency.KeyedMutex
	wake  func(guild string)
	login Authenticator

	preparations map[string]preparation
}

// unit makes a write request one transaction: the change, its events and its
// idempotency record commit together, and nothing is sent before they have.
// Reads get the read-only pool. An operation that is phased opens units of its
// own, one that waits a unit each time it looks, and one that is collected shares one
// with others.
func (u *units) unit(next handler) handler {
	return func(rs *reqState) error {
		switch {
		case rs.op.ReadOnly:
			return u.read(rs, next)
		case rs.op.Waits:
			return u.waiting(rs, next)
		case rs.op.Phased:
			return u.phased(rs, next)
		case rs.op.Collected:
			return u.collected(rs, next)
		case rs.key != "":
			return u.keyed(rs, next)
		}
		return u.write(rs, next)
	}
}

// read serves a request that changes nothing. One that needs a scope reads from
// the database; the others tell of the token itself and wait for nobody. One that is
// collected waits with the others of its kind.
func (u *units) read(rs *reqState, next handler) error {
	if rs.op.Scope != "" && !rs.op.Collected {
		if err := u.db.Queue(rs.ctx); err != nil {
			return err
		}
		defer db.Unqueue(rs.ctx)
	}
	rs.SetRequest(rs.Request().WithContext(u.db.Reading(rs.ctx)))
	rs.Response().Writer = &whole{ResponseWriter: rs.Response().Writer, of: rs}
	return next(rs)
}

// whole is a response that is written in one go. It says its length, which net/http
// finds out for short ones only: a long one would come in chunks, with a packet for
// the end of the last one. It notes whether the caller is still there to read it.
type whole struct {
	http.ResponseWriter
	of     *reqState
	status int
}

func (w *whole) WriteHeader(status int) { w.status = status }

func (w *whole) Write(body []byte) (int, error) {
	if w.status != 0 {
		w.of.closed = w.of.gone()
		w.Header().Set(echo.HeaderContentLength, strconv.Itoa(len(body)))
		w.ResponseWriter.WriteHeader(w.status)
		w.status = 0
	}
	return w.ResponseWriter.Write(body)
}

// Unwrap lets net/http's controls through.
func (w *whole) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// write serves a request without a key.
func (u *units) write(rs *reqState, next handler) error {
	response, err := u.own(rs, next)
	if err != nil {
		return err
	}
	u.settle(rs)
	return send(rs, response)
}

// own runs the operation in a unit of its own.
func (u *units) own(rs *reqState, next handler) (response idempotency.Response, err error) {
	if u.prepare(rs); rs.broken != nil {
		return response, rs.broken
	}
	err = u.db.Do(rs.ctx, func(ctx context.Context, _ *db.Tx) (err error) {
		response, err = capture(ctx, rs, next)
		return err
	})
	return response, err
}

// keyed runs the operation at most once for its key.
func (u *units) keyed(rs *reqState, next handler) error {
	return u.once(rs, func(r idempotency.Request) error { return u.underKey(rs, r, next) })
}

func (u *units) underKey(rs *reqState, r idempotency.Request, next handler) error {
	response, err := u.claimed(rs, r, next)
	if err != nil {
		return err
	}
	if response.Replayed {
		return u.repeat(rs, response)
	}
	u.settle(rs)
	return send(rs, response)
}

// settle is done after the commit and before the answer: the deliverer is woken, and
// when a guild has been removed, every node has forgotten its tokens and that it is there.
func (u *units) settle(rs *reqState) {
	u.wake(rs.by.GuildID)
	if rs.op.ID == "removeGuild" {
		// Only a caller who has gone ends this early; the nodes learn of it all the same.
		_ = auth.Await(rs.ctx, u.db, "guild "+rs.by.GuildID+" is being removed")
	}
}

// once serves a request with a key: with the response that its key has already, or
// else with first, while its duplicates wait.
func (u *units) once(rs *reqState, first func(idempotency.Request) error) error {
	r := keyedRequest(rs)
	unlock, replay, err := u.lock(rs, r)
	if err != nil {
		return err
	}
	if replay != nil {
		return u.repeat(rs, *replay)
	}
	defer unlock()
	return first(r)
}

func keyedRequest(rs *reqState) idempotency.Request {
	req := rs.Request()
	return idempotency.Request{
		GuildID: rs.by.GuildID, TokenID: rs.by.ID, Key: rs.key,
		Fingerprint: idempotency.Fingerprint(req.Method, req.URL.EscapedPath(), rs.body),
	}
}

// claimed runs the operation in a unit of its own that holds the key. A refusal
// that the contract keeps rolls everything back and is then stored alone; should a
// duplicate have run in between, its response counts.
func (u *units) claimed(rs *reqState, r idempotency.Request, next handler) (idempotency.Response, error) {
	u.prepare(rs)
	response, err := u.claim(rs, r, func(ctx context.Context) (idempotency.Response, error) {
		return attempt(ctx, rs, next)
	})
	if kept(err) {
		refusal := err
		response, err = u.claim(rs, r, func(ctx context.Context) (idempotency.Response, error) {
			return refuse(ctx, rs, refusal)
		})
	}
	return response, err
}

// lock waits for the duplicates of a request, or returns the response that its key
// has already: any number of repeats get it at once. Where others would be asked
// before the unit opens, it is looked for first; elsewhere only when there is
// something to wait for, since claiming the key finds it too.
func (u *units) lock(rs *reqState, r idempotency.Request) (unlock func(), replay *idempotency.Response, err error) {
	stored := func(ctx context.Context, r idempotency.Request) (*idempotency.Response, error) {
		return u.keys.Replay(ctx, u.db.Reader(), r)
	}
	if u.preparations[rs.op.ID] != nil {
		if replay, err = stored(rs.ctx, r); replay != nil || err != nil {
			return nil, replay, err
		}
	}
	return u.mutex.Lock(rs.ctx, r, stored)
}

// claim runs work in a unit that holds the key and keeps its response, or
// returns the response the key has already.
func (u *units) claim(rs *reqState, r idempotency.Request, work func(context.Context) (idempotency.Response, error)) (idempotency.Response, error) {
	var response idempotency.Response
	err := u.db.Do(rs.ctx, func(ctx context.Context, tx *db.Tx) error {
		replay, err := u.keys.Claim(ctx, tx, r)
		if err != nil {
			return err
		}
		if replay != nil {
			response = *replay
			return nil
		}
		if response, err = work(ctx); err != nil {
			return err
		}
		return u.keys.Keep(ctx, tx, r, response)
	})
	return response, err
}

// attempt runs the operation, unless validation has found its request broken.
func attempt(ctx context.Context, rs *reqState, next handler) (idempotency.Response, error) {
	if rs.broken != nil {
		return idempotency.Response{}, rs.broken
	}
	return capture(ctx, rs, next)
}

// refuse is the response of a refusal that is kept under the key.
func refuse(ctx context.Context, rs *reqState, refusal error) (idempotency.Response, error) {
	rs.refusal = refusal
	return capture(ctx, rs, func(rs *reqState) error {
		f, _ := fault.As(refusal)
		writeError(rs, f)
		return nil
	})
}

// capture runs next with ctx and returns the response it wrote instead of
// sending it.
func capture(ctx context.Context, rs *reqState, next handler) (idempotency.Response, error) {
	client, req := rs.Response(), rs.Request()
	buf := &buffer{header: http.Header{}}
	rs.SetRequest(req.WithContext(ctx))
	rs.SetResponse(echo.NewResponse(buf, rs.Echo()))
	defer func() {
		rs.SetRequest(req)
		rs.SetResponse(client)
	}()
	if err := next(rs); err != nil {
		return idempotency.Response{}, err
	}
	return buf.response(), nil
}

// send writes a response to the client. It is committed by now, so a client
// that is gone changes nothing.
func send(rs *reqState, a idempotency.Response) error {
	h := rs.Response().Header()
	if a.Location != "" {
		h.Set(echo.HeaderLocation, a.Location)
	}
	if a.RetryAfter != "" {
		h.Set(echo.HeaderRetryAfter, a.RetryAfter)
	}
	if a.Replayed {
		h.Set(idempotentReplay, "true")
	}
	if len(a.Body) > 0 {
		h.Set(echo.HeaderContentType, contentType)
	}
	rs.Response().WriteHeader(a.Status)
	_, _ = rs.Response().Write(a.Body)
	return nil
}

// buffer is a response nobody has seen yet.
type buffer struct {
	header http.Header
	status int
	body   bytes.Buffer
	rest   *later         // what a phased operation has left to do
	wait   *delivery.Wait // what an operation waits for that has nothing to answer with yet
}

func (b *buffer) response() idempotency.Response {
	return idempotency.Response{
		Status: b.status, Location: b.header.Get(echo.HeaderLocation),
		RetryAfter: b.header.Get(echo.HeaderRetryAfter), Body: b.body.Bytes(),
		Replayed: b.header.Get(idempotentReplay) != "",
	}
}

func (b *buffer) Header() http.Header { return b.header }

func (b *buffer) WriteHeader(status int) { b.status = status }

func (b *buffer) Write(p []byte) (int, error) {
	if b.status == 0 {
		b.status = http.StatusOK
	}
	return b.body.Write(p)
}
