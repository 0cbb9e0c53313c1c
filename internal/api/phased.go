package api

import (
	"context"

	"guildhall/internal/db"
	"guildhall/internal/idempotency"
)

// phased serves the operation that may call out between two commits. Its first
// unit is like that of any write, and often the only one: replays, refusals and
// answers that need nobody else end there. When the operation defers the rest,
// the key is left under a lease and the rest runs after the commit, whether or
// not the client is still there.
func (u *units) phased(x *exchange, next handler) error {
	var r *idempotency.Request
	if x.key != "" {
		keyed := request(x)
		leave, err := u.gate.Enter(x.ctx, keyed.TokenID, keyed.Key)
		if err != nil {
			return err
		}
		defer leave()
		r = &keyed
	}
	answer, later, err := u.first(x, r, func(ctx context.Context) (idempotency.Answer, error) {
		return attempt(ctx, x, next)
	})
	if r != nil && kept(err) {
		refusal := err
		answer, later, err = u.first(x, r, func(ctx context.Context) (idempotency.Answer, error) {
			return refuse(ctx, x, refusal)
		})
	}
	if err == nil && later != nil {
		answer, err = later(context.WithoutCancel(x.ctx))
	}
	if err != nil {
		return err
	}
	if !answer.Replayed {
		u.wake()
	}
	return send(x, answer)
}

// first runs work in the first unit and keeps its answer under the key, if there
// is one, or leases the key for what work has deferred.
func (u *units) first(x *exchange, r *idempotency.Request, work func(context.Context) (idempotency.Answer, error)) (idempotency.Answer, idempotency.Later, error) {
	var answer idempotency.Answer
	var later idempotency.Later
	err := u.db.Do(x.ctx, func(ctx context.Context, tx *db.Tx) error {
		answer, later = idempotency.Answer{}, nil
		if r != nil {
			replay, err := u.keys.ClaimLeased(ctx, tx, *r)
			if err != nil {
				return err
			}
			if replay != nil {
				answer = *replay
				return nil
			}
			ctx = idempotency.With(ctx, *r)
		}
		ctx, deferred := idempotency.Phased(ctx)
		var err error
		if answer, err = work(ctx); err != nil {
			return err
		}
		later = deferred()
		switch {
		case r == nil:
			return nil
		case later != nil:
			return u.keys.Lease(ctx, tx, *r)
		}
		return u.keys.Keep(ctx, tx, *r, answer)
	})
	return answer, later, err
}
