package api

import (
	"net/netip"

	"guildhall/internal/auth"
	"guildhall/internal/fault"
)

var errPlain = fault.New(fault.Forbidden, "https_required", "This API answers over HTTPS only. A token sent in clear should be revoked.")

// secure refuses what did not arrive over TLS, before the token is looked at,
// and finds out the client's address. Both believe forwarding headers from the
// configured proxies alone.
func secure(trusted []netip.Prefix) step {
	return func(next handler) handler {
		return func(x *exchange) error {
			req := x.Request()
			if x.Scheme() != "https" {
				return errPlain
			}
			x.from = auth.ClientIP(req.RemoteAddr, req.Header.Values("X-Forwarded-For"), trusted)
			return next(x)
		}
	}
}
