package api

import (
	"context"
	"net/netip"

	"github.com/labstack/echo/v4"

	"guildhall/internal/auth"
	"guildhall/internal/fault"
	"guildhall/internal/ratelimit"
)

// Authenticator turns a bearer token into its principal. It fails with
// invalid_token, ip_not_allowed or service_unavailable.
type Authenticator interface {
	Authenticate(ctx context.Context, bearer string, from netip.Addr) (*auth.Principal, error)
}

const principalKey = "principal"

// authenticated finds out whose request this is. Failures spend a bucket of
// their address, so guessing is slow; a valid token from such an address still
// passes.
func authenticated(tokens Authenticator, limits *ratelimit.Limiter, quota ratelimit.Quota) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			req := c.Request()
			bearer, err := auth.FromHeader(req.Header)
			var by *auth.Principal
			if err == nil {
				by, err = tokens.Authenticate(req.Context(), bearer, address(c))
			}
			if err != nil {
				if f, ok := fault.As(err); ok && (f.Kind == fault.Unauthenticated || f.Kind == fault.Forbidden) {
					if r := limits.Spend(req.Context(), auth.LoginKey(address(c)), quota); !r.Allowed {
						return limited("Too many failed authentications from this address.", r).Because(err)
					}
				}
				return err
			}
			c.Set(principalKey, by)
			c.SetRequest(req.WithContext(auth.With(req.Context(), by)))
			return next(c)
		}
	}
}

// scoped refuses a token that lacks the operation's scope.
func scoped(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		need := operationOf(c).Scope
		if need != "" && !auth.From(c.Request().Context()).Has(need) {
			f := fault.New(fault.Forbidden, "insufficient_scope", "This operation needs a token with the scope %s.", need)
			f.RequiredScope = need
			return f
		}
		return next(c)
	}
}
