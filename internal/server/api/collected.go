package api

import (
	"context"
	"errors"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/batcher"
)

// collected serves an operation that makes its change together with others, under the
// key, if there is one: it runs in no unit, and returns once its batch has committed. A
// change that a batch leaves, or that validation has refused, becomes a unit of its
// own.
func (u *units) collected(rs *reqState, next handler) error {
	if rs.key == "" {
		return u.together(rs.ctx, rs, next, func() error { return u.write(rs, next) })
	}
	return u.once(rs, func(r idempotency.Request) error {
		return u.together(idempotency.With(rs.ctx, r), rs, next, func() error { return u.underKey(rs, r, next) })
	})
}

// together runs the operation outside a unit. When its change falls back, alone makes it,
// and those of the same subject wait.
func (u *units) together(ctx context.Context, rs *reqState, next handler, alone func() error) error {
	if rs.broken != nil {
		return alone()
	}
	rs.SetRequest(rs.Request().WithContext(ctx))
	err := next(rs)
	if fallback, ok := errors.AsType[*batcher.Fallback](err); ok {
		defer fallback.Release()
		return alone()
	}
	return err
}
