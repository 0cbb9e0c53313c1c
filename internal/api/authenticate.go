package api

import (
	"context"
	"net/netip"

	"guildhall/internal/auth"
	"guildhall/internal/db"
	"guildhall/internal/fault"
	"guildhall/internal/ratelimit"
)

// Authenticator turns a bearer token into its principal. It fails with
// invalid_token, ip_not_allowed or service_unavailable. A principal beside a
// failure is whose token was refused.
type Authenticator interface {
	Authenticate(ctx context.Context, bearer string, from netip.Addr) (*auth.Principal, error)
}

// authenticated finds out whose request this is. Failures spend a bucket of
// their address, so guessing is slow; a valid token from such an address still
// passes.
func authenticated(tokens Authenticator, limits *ratelimit.Limiter, quota ratelimit.Quota) step {
	return func(next handler) handler {
		return func(x *exchange) error {
			if err := authenticate(x, tokens, limits, quota); err != nil {
				return err
			}
			return next(x)
		}
	}
}

func authenticate(x *exchange, tokens Authenticator, limits *ratelimit.Limiter, quota ratelimit.Quota) error {
	bearer, err := auth.FromHeader(x.Request().Header)
	if err == nil {
		x.by, err = tokens.Authenticate(x.ctx, bearer, x.from)
	}
	if err != nil {
		x.by, x.refused = nil, x.by
		if f, ok := fault.As(err); ok && (f.Kind == fault.Unauthenticated || f.Kind == fault.Forbidden) {
			if r := limits.Spend(x.ctx, auth.LoginKey(x.from), quota); !r.Allowed {
				return limited("Too many failed authentications from this address.", r).Because(err)
			}
		}
		return err
	}
	x.ctx = db.As(attributed(auth.With(x.ctx, x.by), x), db.Caller{Token: x.by.TokenID, Guild: x.by.GuildID})
	return nil
}

// scoped refuses a token that lacks the operation's scope.
func scoped(next handler) handler {
	return func(x *exchange) error {
		if need := x.op.Scope; need != "" && !x.by.Has(need) {
			return lacksScope(need)
		}
		return next(x)
	}
}

func lacksScope(need string) error {
	f := fault.New(fault.Forbidden, "insufficient_scope", "This operation needs a token with the scope %s.", need)
	f.RequiredScope = need
	return f
}
