package api

import (
	"net/netip"

	"github.com/labstack/echo/v4"

	"guildhall/internal/auth"
	"guildhall/internal/fault"
)

const addressKey = "address"

var errPlain = fault.New(fault.Forbidden, "https_required", "This API answers over HTTPS only. A token sent in clear should be revoked.")

// secure refuses what did not arrive over TLS, before the token is looked at,
// and finds out the client's address. Both believe forwarding headers from the
// configured proxies alone.
func secure(trusted []netip.Prefix) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			req := c.Request()
			if c.Scheme() != "https" {
				return errPlain
			}
			c.Set(addressKey, auth.ClientIP(req.RemoteAddr, req.Header.Values("X-Forwarded-For"), trusted))
			return next(c)
		}
	}
}

// address returns the client's address; the zero one when it cannot be known.
func address(c echo.Context) netip.Addr {
	a, _ := c.Get(addressKey).(netip.Addr)
	return a
}
