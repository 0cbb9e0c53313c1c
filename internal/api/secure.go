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

// requireHTTPS refuses what did not arrive over TLS, before the token is looked at,
// and finds out the client's address. Both believe forwarding headers from the
// configured proxies alone.
func requireHTTPS(trusted []netip.Prefix) middleware {
	return func(next handler) handler {
		return func(rs *reqState) error {
			if rs.Scheme() != "https" {
				return errPlain
			}
			rs.Response().Header()["Strict-Transport-Security"] = strict
			locateCaller(rs, trusted)
			return next(rs)
		}
	}
}

func locateCaller(rs *reqState, trusted []netip.Prefix) {
	req := rs.Request()
	rs.from = auth.ClientIP(req.RemoteAddr, req.Header.Values("X-Forwarded-For"), trusted)
}
