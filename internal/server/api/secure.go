package api

import (
	"net/netip"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/fault"
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
			if err := overHTTPS(rs, trusted); err != nil {
				return err
			}
			return next(rs)
		}
	}
}

func overHTTPS(rs *reqState, trusted []netip.Prefix) error {
	req := rs.Request()
	peer := auth.Peer(req.RemoteAddr)
	if !auth.IsHTTPS(req.TLS != nil, peer, req.Header.Values("X-Forwarded-Proto"), trusted) {
		return errPlain
	}
	rs.Response().Header()["Strict-Transport-Security"] = strict
	rs.from = auth.ClientIP(peer, req.Header.Values("X-Forwarded-For"), trusted)
	return nil
}
