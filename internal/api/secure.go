package api

import (
	"net/netip"

	"guildhall/internal/auth"
	"guildhall/internal/fault"
)

var errPlain = fault.New(fault.Forbidden, "https_required", "This API answers over HTTPS only. A token sent in clear should be revoked.")

// strict tells browsers to come over HTTPS from now on. Over plain HTTP it would
// mean nothing.
var strict = []string{"max-age=31536000"}

// secure refuses what did not arrive over TLS, before the token is looked at,
// and finds out the client's address. Both believe forwarding headers from the
// configured proxies alone.
func secure(trusted []netip.Prefix) step {
	return func(next handler) handler {
		return func(x *exchange) error {
			if x.Scheme() != "https" {
				return errPlain
			}
			x.Response().Header()["Strict-Transport-Security"] = strict
			locateCaller(x, trusted)
			return next(x)
		}
	}
}

func locateCaller(x *exchange, trusted []netip.Prefix) {
	req := x.Request()
	x.from = auth.ClientIP(req.RemoteAddr, req.Header.Values("X-Forwarded-For"), trusted)
}
