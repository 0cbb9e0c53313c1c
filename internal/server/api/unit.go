package api

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/service/pending"
)

// idempotentReplay is the header of a response that repeats an earlier one: of the same key, or of
// the change that has used the reference.
const idempotentReplay = "Idempotent-Replay"

// units runs each operation in the transaction that it needs.
type units struct {
	db    *db.DB
	keys  idempotency.Keys
	mutex *idempotency.KeyedMutex
	wake  func(guild string)
	login Authenticator

	preparations map[string]preparation
}

// unit makes a write request one transaction: the change, its events and its idempotency
// record commit together, and nothing is sent before they have. Reads use the read-only
// pool. Three kinds of operation do more:
//   - a long poll runs in a new transaction each time it is woken,
//   - a batched operation shares a transaction with concurrent ones,
//   - a two-phase operation calls another system between two transactions.
func (u *units) unit(next handler) handler {
	return func(rs *reqState) error {
		switch {
		case rs.op.ReadOnly:
			return u.read(rs, next)
		case rs.op.LongPoll:
			return u.longPoll(rs, next)
		}
		return u.once(rs, func(key *idempotency.Request) error {
			if rs.op.Batched && rs.broken == nil {
				return u.batched(rs, key, next)
			}
			return u.write(rs, key, next)
		})
	}
}

// read serves a request that changes nothing. A request that needs a scope waits for a
// connection slot first. The others are answered from the token itself, and batched
// reads share the slot of their batch.
func (u *units) read(rs *reqState, next handler) error {
	if rs.op.Scope != "" && !rs.op.Batched {
		if err := u.db.Queue(rs.ctx); err != nil {
			return err
		}
		defer db.Unqueue(rs.ctx)
	}
	rs.SetRequest(rs.Request().WithContext(u.db.Reading(rs.ctx)))
	rs.Response().Writer = &whole{ResponseWriter: rs.Response().Writer, of: rs}
	return next(rs)
}

// whole is a ResponseWriter for a response that is written at once. It sets the Content-Length,
// which net/http sets for short responses only; a long one would be sent in chunks, with an
// additional packet at the end. It also records whether the caller is still connected.
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

// Unwrap gives http.ResponseController access to the underlying writer.
func (w *whole) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// write runs the operation in a transaction of its own, and once for its key, if it has
// one. A refusal that the contract keeps rolls the transaction back and is then stored
// under the key alone; if a duplicate has run in between, the duplicate's response counts.
func (u *units) write(rs *reqState, key *idempotency.Request, next handler) error {
	if u.prepare(rs); rs.broken != nil && key == nil {
		return rs.broken
	}
	response, call, err := u.transact(rs, key, func(ctx context.Context) (idempotency.Response, error) {
		if rs.broken != nil {
			return idempotency.Response{}, rs.broken
		}
		return capture(ctx, rs, next)
	})
	if call != nil {
		response, err = secondPhase(rs, call, err)
	}
	if key != nil && kept(err) {
		refusal := err
		response, _, err = u.transact(rs, key, func(ctx context.Context) (idempotency.Response, error) {
			return refuse(ctx, rs, refusal)
		})
	}
	if err != nil {
		return err
	}
	if key != nil && response.Replayed {
		return u.repeat(rs, response)
	}
	u.committed(rs)
	return send(rs, response)
}

// committed runs after the commit and before the response is sent. It wakes the deliverer. After a
// guild's removal it waits until every node has dropped the guild's tokens.
func (u *units) committed(rs *reqState) {
	u.wake(rs.by.GuildID)
	if rs.op.ID == "removeGuild" {
		// An error means that the caller has gone; the nodes drop the tokens all the same.
		_ = auth.Await(rs.ctx, u.db, "guild "+rs.by.GuildID+" is being removed")
	}
}

// once serves a request with the response that its key already has, or else with first,
// while its duplicates wait. The key of a request without one is nil.
func (u *units) once(rs *reqState, first func(key *idempotency.Request) error) error {
	if rs.key == "" {
		return first(nil)
	}
	key := keyedRequest(rs)
	unlock, replay, err := u.lock(rs, key)
	if err != nil {
		return err
	}
	if replay != nil {
		return u.repeat(rs, *replay)
	}
	defer unlock()
	return first(&key)
}

func keyedRequest(rs *reqState) idempotency.Request {
	req := rs.Request()
	return idempotency.Request{
		GuildID: rs.by.GuildID, TokenID: rs.by.ID, Key: rs.key,
		Fingerprint: idempotency.Fingerprint(req.Method, req.URL.EscapedPath(), rs.body),
	}
}

// lock waits until no duplicate of the request is running, or returns the response that its key
// already has; any number of repeats get it at once. The stored response is read first if the
// operation has a preparation, which a repeat must not run; otherwise only if a duplicate is
// running, since claiming the key finds it too.
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

// transact runs work in a transaction that claims the key, if there is one, and stores
// work's response under it. It returns the stored response if the key has one already. If
// work returns a pending.Call, the transaction commits and leaves the key leased.
func (u *units) transact(rs *reqState, key *idempotency.Request, work func(context.Context) (idempotency.Response, error)) (
	response idempotency.Response, call *pending.Call, err error,
) {
	err = u.db.Do(rs.ctx, func(ctx context.Context, tx *db.Tx) error {
		response, call = idempotency.Response{}, nil
		if key != nil {
			claim := u.keys.Claim
			if rs.op.TwoPhase {
				claim, ctx = u.keys.ClaimLeased, idempotency.With(ctx, *key)
			}
			replay, err := claim(ctx, tx, *key)
			if err != nil {
				return err
			}
			if replay != nil {
				response = *replay
				return nil
			}
		}
		var err error
		response, err = work(ctx)
		switch {
		case errors.As(err, &call) && key != nil:
			return u.keys.Lease(ctx, tx, *key)
		case call != nil:
			return nil //nolint:nilerr // err is the call that follows the transaction
		case err != nil || key == nil:
			return err
		}
		return u.keys.Keep(ctx, tx, *key, response)
	})
	return response, call, err
}

// refuse returns the response for a refusal that is stored under the key.
func refuse(ctx context.Context, rs *reqState, refusal error) (idempotency.Response, error) {
	rs.refusal = refusal
	return capture(ctx, rs, func(rs *reqState) error {
		f, _ := fault.As(refusal)
		writeError(rs, f)
		return nil
	})
}

// capture runs next with ctx and returns the response that next wrote, without sending it.
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

// send sends a response to the client. Its transaction has committed, so an error while sending
// changes nothing.
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

// buffer is a ResponseWriter that holds a response in memory.
type buffer struct {
	header http.Header
	status int
	body   bytes.Buffer
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
