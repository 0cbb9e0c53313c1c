package api

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/labstack/echo/v4"

	"guildhall/internal/db"
	"guildhall/internal/fault"
	"guildhall/internal/idempotency"
)

// units opens the unit of work of each write.
type units struct {
	db   *db.DB
	keys idempotency.Keys
	gate *idempotency.Gate
	wake func(guild string)

	preparations map[string]preparation
	collectors   map[string]*together
}

// unit makes a write request one transaction: the change, its events and its
// idempotency record commit together, and nothing is sent before they have.
// Reads get the read-only pool. An operation that is phased opens units of its
// own, and one that is collected shares one with others.
func (u *units) unit(next handler) handler {
	return func(x *exchange) error {
		switch {
		case x.op.ReadOnly:
			return u.read(x, next)
		case x.op.Phased:
			return u.phased(x, next)
		case x.op.Collected:
			return u.collected(x, u.collectors[x.op.ID], next)
		case x.key != "":
			return u.keyed(x, next)
		}
		return u.write(x, next)
	}
}

// read serves a request that changes nothing. One that needs a scope reads from
// the database; the others tell of the token itself and wait for nobody.
func (u *units) read(x *exchange, next handler) error {
	if x.op.Scope != "" {
		if err := u.db.Queue(x.ctx); err != nil {
			return err
		}
		defer db.Leave(x.ctx)
	}
	x.SetRequest(x.Request().WithContext(u.db.Reading(x.ctx)))
	return next(x)
}

// write serves a request without a key.
func (u *units) write(x *exchange, next handler) error {
	answer, err := u.own(x, next)
	if err != nil {
		return err
	}
	u.wake(x.by.GuildID)
	return send(x, answer)
}

// own runs the operation in a unit of its own.
func (u *units) own(x *exchange, next handler) (answer idempotency.Answer, err error) {
	if u.prepare(x); x.broken != nil {
		return answer, x.broken
	}
	err = u.db.Do(x.ctx, func(ctx context.Context, _ *db.Tx) (err error) {
		answer, err = capture(ctx, x, next)
		return err
	})
	return answer, err
}

func request(x *exchange) idempotency.Request {
	req := x.Request()
	return idempotency.Request{
		GuildID: x.by.GuildID, TokenID: x.by.TokenID, Key: x.key,
		Fingerprint: idempotency.Fingerprint(req.Method, req.URL.EscapedPath(), x.body),
	}
}

// keyed runs the operation at most once for its key.
func (u *units) keyed(x *exchange, next handler) error {
	return u.once(x, func(r idempotency.Request) error {
		answer, err := u.claimed(x, r, next)
		if err != nil {
			return err
		}
		if !answer.Replayed {
			u.wake(x.by.GuildID)
		}
		return send(x, answer)
	})
}

// once serves a request with a key: with the answer that its key has already, or
// else with first, while its duplicates wait.
func (u *units) once(x *exchange, first func(idempotency.Request) error) error {
	r := request(x)
	leave, replay, err := u.enter(x, r)
	if err != nil {
		return err
	}
	if replay != nil {
		return send(x, *replay)
	}
	defer leave()
	return first(r)
}

// claimed runs the operation in a unit of its own that holds the key. A refusal
// that the contract keeps rolls everything back and is then stored alone; should a
// duplicate have run in between, its answer counts.
func (u *units) claimed(x *exchange, r idempotency.Request, next handler) (idempotency.Answer, error) {
	u.prepare(x)
	answer, err := u.claim(x, r, func(ctx context.Context) (idempotency.Answer, error) {
		return attempt(ctx, x, next)
	})
	if kept(err) {
		refusal := err
		answer, err = u.claim(x, r, func(ctx context.Context) (idempotency.Answer, error) {
			return refuse(ctx, x, refusal)
		})
	}
	return answer, err
}

// enter waits for the duplicates of a request, or returns the answer that its key
// has already: any number of repeats get it at once. Where others would be asked
// before the unit opens, it is looked for first; elsewhere only when there is
// something to wait for, since claiming the key finds it too.
func (u *units) enter(x *exchange, r idempotency.Request) (leave func(), replay *idempotency.Answer, err error) {
	stored := func(ctx context.Context, r idempotency.Request) (*idempotency.Answer, error) {
		return u.keys.Replay(ctx, u.db.Reader(), r)
	}
	if u.preparations[x.op.ID] != nil {
		if replay, err = stored(x.ctx, r); replay != nil || err != nil {
			return nil, replay, err
		}
	}
	return u.gate.Enter(x.ctx, r, stored)
}

// claim runs work in a unit that holds the key and keeps its answer, or
// returns the answer the key has already.
func (u *units) claim(x *exchange, r idempotency.Request, work func(context.Context) (idempotency.Answer, error)) (idempotency.Answer, error) {
	var answer idempotency.Answer
	err := u.db.Do(x.ctx, func(ctx context.Context, tx *db.Tx) error {
		replay, err := u.keys.Claim(ctx, tx, r)
		if err != nil {
			return err
		}
		if replay != nil {
			answer = *replay
			return nil
		}
		if answer, err = work(ctx); err != nil {
			return err
		}
		return u.keys.Keep(ctx, tx, r, answer)
	})
	return answer, err
}

// attempt runs the operation, unless validation has found its request broken.
func attempt(ctx context.Context, x *exchange, next handler) (idempotency.Answer, error) {
	if x.broken != nil {
		return idempotency.Answer{}, x.broken
	}
	return capture(ctx, x, next)
}

// refuse is the answer of a refusal that is kept under the key.
func refuse(ctx context.Context, x *exchange, refusal error) (idempotency.Answer, error) {
	x.refusal = refusal
	return capture(ctx, x, func(x *exchange) error {
		f, _ := fault.As(refusal)
		writeError(x, f)
		return nil
	})
}

// capture runs next with ctx and returns the answer it wrote instead of
// sending it. It rewinds the body, since a unit may run again.
func capture(ctx context.Context, x *exchange, next handler) (idempotency.Answer, error) {
	client, req := x.Response(), x.Request()
	buf := &buffer{header: http.Header{}}
	again := req.WithContext(ctx)
	if req.Body != http.NoBody {
		again.Body = io.NopCloser(bytes.NewReader(x.body))
	}
	x.SetRequest(again)
	x.SetResponse(echo.NewResponse(buf, x.Echo()))
	defer func() {
		x.SetRequest(req)
		x.SetResponse(client)
	}()
	if err := next(x); err != nil {
		return idempotency.Answer{}, err
	}
	return buf.answer(), nil
}

// send writes an answer to the client. It is committed by now, so a client
// that is gone changes nothing.
func send(x *exchange, a idempotency.Answer) error {
	h := x.Response().Header()
	if a.Location != "" {
		h.Set(echo.HeaderLocation, a.Location)
	}
	if a.RetryAfter != "" {
		h.Set(echo.HeaderRetryAfter, a.RetryAfter)
	}
	if a.Replayed {
		h.Set("Idempotent-Replay", "true")
	}
	if len(a.Body) > 0 {
		h.Set(echo.HeaderContentType, contentType)
	}
	x.Response().WriteHeader(a.Status)
	if len(a.Body) > 0 {
		_, _ = x.Response().Write(a.Body)
	}
	return nil
}

// buffer is a response nobody has seen yet.
type buffer struct {
	header http.Header
	status int
	body   bytes.Buffer
	rest   later // what a phased operation has left to do
}

func (b *buffer) answer() idempotency.Answer {
	return idempotency.Answer{
		Status: b.status, Location: b.header.Get(echo.HeaderLocation),
		RetryAfter: b.header.Get(echo.HeaderRetryAfter), Body: b.body.Bytes(),
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
