package api

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/labstack/echo/v4"

	"guildhall/internal/auth"
	"guildhall/internal/db"
	"guildhall/internal/fault"
	"guildhall/internal/idempotency"
)

// units opens the unit of work of each write.
type units struct {
	db   *db.DB
	keys idempotency.Keys
	gate *idempotency.Gate
	wake func()
}

// unit makes a write request one transaction: the change, its events and its
// idempotency record commit together, and nothing is sent before they have.
// Reads get the read-only pool. An operation that is phased opens units of its
// own.
func (u *units) unit(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		op, req := operationOf(c), c.Request()
		key, _ := c.Get(keyKey).(string)
		switch {
		case op.ReadOnly:
			c.SetRequest(req.WithContext(u.db.Reading(req.Context())))
			return next(c)
		case op.Phased:
			return u.phased(c, key, next)
		}
		if key == "" {
			if err := broken(c); err != nil {
				return err
			}
			var answer idempotency.Answer
			err := u.db.Do(req.Context(), func(ctx context.Context, _ *db.Tx) (err error) {
				answer, err = capture(ctx, c, next)
				return err
			})
			if err != nil {
				return err
			}
			u.wake()
			return send(c, answer)
		}
		return u.keyed(c, request(c, key), next)
	}
}

func request(c echo.Context, key string) idempotency.Request {
	req := c.Request()
	body, _ := c.Get(bodyKey).([]byte)
	return idempotency.Request{
		TokenID:     auth.From(req.Context()).TokenID,
		Key:         key,
		Fingerprint: idempotency.Fingerprint(req.Method, req.URL.EscapedPath(), body),
	}
}

// keyed runs the operation at most once for its key. A refusal that the
// contract keeps rolls everything back and is then stored alone; should a twin
// have run in between, its answer counts.
func (u *units) keyed(c echo.Context, r idempotency.Request, next echo.HandlerFunc) error {
	leave, err := u.gate.Enter(c.Request().Context(), r.TokenID, r.Key)
	if err != nil {
		return err
	}
	defer leave()
	answer, err := u.claim(c, r, func(ctx context.Context) (idempotency.Answer, error) {
		return attempt(ctx, c, next)
	})
	if kept(err) {
		refusal := err
		answer, err = u.claim(c, r, func(ctx context.Context) (idempotency.Answer, error) {
			return refuse(ctx, c, refusal)
		})
	}
	if err != nil {
		return err
	}
	if !answer.Replayed {
		u.wake()
	}
	return send(c, answer)
}

// claim runs work in a unit that holds the key and keeps its answer, or
// returns the answer the key has already.
func (u *units) claim(c echo.Context, r idempotency.Request, work func(context.Context) (idempotency.Answer, error)) (idempotency.Answer, error) {
	var answer idempotency.Answer
	err := u.db.Do(c.Request().Context(), func(ctx context.Context, tx *db.Tx) error {
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
func attempt(ctx context.Context, c echo.Context, next echo.HandlerFunc) (idempotency.Answer, error) {
	if err := broken(c); err != nil {
		return idempotency.Answer{}, err
	}
	return capture(ctx, c, next)
}

// refuse is the answer of a refusal that is kept under the key.
func refuse(ctx context.Context, c echo.Context, refusal error) (idempotency.Answer, error) {
	note(c, refusal)
	return capture(ctx, c, func(c echo.Context) error {
		f, _ := fault.As(refusal)
		writeError(c, f)
		return nil
	})
}

// capture runs next with ctx and returns the answer it wrote instead of
// sending it. It rewinds the body, since a unit may run again.
func capture(ctx context.Context, c echo.Context, next echo.HandlerFunc) (idempotency.Answer, error) {
	client, req := c.Response(), c.Request()
	buf := &buffer{header: http.Header{}}
	again := req.WithContext(ctx)
	if body, ok := c.Get(bodyKey).([]byte); ok && req.Body != http.NoBody {
		again.Body = io.NopCloser(bytes.NewReader(body))
	}
	c.SetRequest(again)
	c.SetResponse(echo.NewResponse(buf, c.Echo()))
	defer func() {
		c.SetRequest(req)
		c.SetResponse(client)
	}()
	if err := next(c); err != nil {
		return idempotency.Answer{}, err
	}
	return idempotency.Answer{
		Status: buf.status, Location: buf.header.Get(echo.HeaderLocation),
		RetryAfter: buf.header.Get(echo.HeaderRetryAfter), Body: buf.body.Bytes(),
	}, nil
}

// send writes an answer to the client. It is committed by now, so a client
// that is gone changes nothing.
func send(c echo.Context, a idempotency.Answer) error {
	h := c.Response().Header()
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
	c.Response().WriteHeader(a.Status)
	if len(a.Body) > 0 {
		_, _ = c.Response().Write(a.Body)
	}
	return nil
}

// buffer is a response nobody has seen yet.
type buffer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (b *buffer) Header() http.Header { return b.header }

func (b *buffer) WriteHeader(status int) { b.status = status }

func (b *buffer) Write(p []byte) (int, error) {
	if b.status == 0 {
		b.status = http.StatusOK
	}
	return b.body.Write(p)
}
