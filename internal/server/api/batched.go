package api

import (
	"errors"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/batcher"
)

// batched runs the operation outside a transaction. The operation returns once the batch with its
// change has committed, including the idempotency key if there is one. A change that falls back
// runs in a transaction of its own, while later changes of the same rows wait.
func (u *units) batched(rs *reqState, key *idempotency.Request, next handler) error {
	ctx := rs.ctx
	if key != nil {
		ctx = idempotency.With(ctx, *key)
	}
	rs.SetRequest(rs.Request().WithContext(ctx))
	err := next(rs)
	if fallback, ok := errors.AsType[*batcher.Fallback](err); ok {
		defer fallback.Release()
		return u.write(rs, key, next)
	}
	return err
}
