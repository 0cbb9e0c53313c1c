package api

import (
	"context"
	"net/netip"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// Authenticator turns a bearer token into its principal. It fails with
// invalid_token, ip_not_allowed or service_unavailable. A principal beside a
// failure is whose token was refused.
type Authenticator interface {
	Authenticate(ctx context.Context, bearer string, from netip.Addr) (*auth.Principal, error)
	// Guild says whether a guild is there that a bot key names.
	Guild(ctx context.Context, id string) (auth.Presence, error)
}

// authenticateToken finds out whose request this is. Failures spend a bucket of
// their address, so guessing is slow; a valid token from such an address still
// passes.
func authenticateToken(tokens Authenticator, limits *ratelimit.Limiter, quota ratelimit.Quota) middleware {
	return func(next handler) handler {
		return func(rs *reqState) error {
			if err := authenticate(rs, tokens, limits, quota); err != nil {
				return err
			}
			return next(rs)
		}
	}
}

func authenticate(rs *reqState, tokens Authenticator, limits *ratelimit.Limiter, quota ratelimit.Quota) error {
	bearer, err := auth.FromHeader(rs.Request().Header)
	if err == nil {
		rs.by, err = tokens.Authenticate(rs.ctx, bearer, rs.from)
	}
	if err != nil {
		rs.by, rs.refused = nil, rs.by
		f, ok := fault.As(err)
		rs.ended = ok && rs.refused != nil && f.Kind == fault.Unauthenticated
		if ok && (f.Kind == fault.Unauthenticated || f.Kind == fault.Forbidden) {
			if r := limits.Spend(rs.ctx, auth.LoginKey(rs.from), quota); !r.Allowed {
				return limited("Too many failed authentications from this address.", r).Because(err)
			}
		}
		return err
	}
	if rs.op == nil || rs.op.OfGuild { // the others ignore the header
		rs.by, rs.noGuild = chooseGuild(rs.ctx, tokens, rs.by, rs.Request().Header[guildHeader])
	}
	rs.onAccount(attributed(auth.With(rs.ctx, rs.by), rs))
	db.Charge(rs.ctx, time.Since(rs.came)) // so that a refusal comes two seconds after the request
	return nil
}

// onAccount has the database work on the caller's account from now on, as long as a
// request may take.
func (rs *reqState) onAccount(ctx context.Context) {
	rs.ctx = db.As(ctx, db.Caller{Token: rs.by.ID, Guild: rs.by.GuildID})
	db.EndBy(rs.ctx, rs.came.Add(workTimeout))
}

// requireScope refuses a token that lacks the operation's scope.
func requireScope(next handler) handler {
	return func(rs *reqState) error {
		if need := rs.op.Scope; need != "" && !rs.by.Has(need) {
			return lacksScope(need)
		}
		return next(rs)
	}
}

func lacksScope(need string) error {
	f := fault.New(fault.Forbidden, "insufficient_scope", "This operation needs a token with the scope %s.", need)
	if need == auth.ScopeBot {
		f = fault.New(fault.Forbidden, "insufficient_scope", "This operation is for the bot: it needs a bot key, for no token has the scope bot.")
	}
	f.RequiredScope = need
	return f
}
