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

// Authenticator authenticates bearer tokens. Its errors are invalid_token, ip_not_allowed and
// service_unavailable. A principal that it returns with an error is the owner of the refused token.
type Authenticator interface {
	Authenticate(ctx context.Context, bearer string, from netip.Addr) (*auth.Principal, error)
	// Guild returns the state of a guild that a request with a bot key names.
	Guild(ctx context.Context, id string) (auth.Presence, error)
}

// authenticateToken authenticates the request. Failures count against the address's bucket, so
// guessing tokens is slow; a valid token from such an address still works.
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
	if rs.op == nil || rs.op.OfGuild { // other operations ignore the header
		rs.by, rs.noGuild = chooseGuild(rs.ctx, tokens, rs.by, rs.Request().Header[guildHeader])
	}
	rs.onAccount(attributed(auth.With(rs.ctx, rs.by), rs))
	db.Charge(rs.ctx, time.Since(rs.came)) // counts the time since the request arrived as waiting, so that a refusal comes two seconds after arrival
	return nil
}

// onAccount counts the database work of the request for its caller from now on, and sets the work's
// deadline.
func (rs *reqState) onAccount(ctx context.Context) {
	rs.ctx = db.As(ctx, db.Caller{Token: rs.by.ID, Guild: rs.by.GuildID})
	db.EndBy(rs.ctx, rs.came.Add(workTimeout))
}

// requireScope refuses a token that lacks the operation's scope.
func requireScope(next handler) handler {
	return func(rs *reqState) error {
		if need := rs.op.Scope; need != "" && !rs.by.Has(need) {
			return LacksScope(need)
		}
		return next(rs)
	}
}

// LacksScope returns the refusal of a token without the scope.
func LacksScope(need string) *fault.Error {
	f := fault.New(fault.Forbidden, "insufficient_scope", "This operation needs a token with the scope %s.", need)
	if need == auth.ScopeBot {
		f = fault.New(fault.Forbidden, "insufficient_scope", "This operation is for the bot: it needs a bot key, for no token has the scope bot.")
	}
	f.RequiredScope = need
	return f
}
