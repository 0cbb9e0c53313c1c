package api

import (
	"errors"
	"net/netip"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/fault"
)

var (
	errPlain = fault.New(fault.Forbidden, "https_required", "This API answers over HTTPS only. A token sent in clear should be revoked.")

	// errNoProto is the error for a misconfigured proxy of the operator, which the caller cannot
	// correct.
	errNoProto = errPlain.With("The proxy in front of this API does not say whether the request came over HTTPS. " +
		"Its operator has to let it set X-Forwarded-Proto.").Because(errors.New("a trusted proxy sent no X-Forwarded-Proto"))
)

// strict is the Strict-Transport-Security header. It is only sent over HTTPS.
var strict = []string{"max-age=31536000"}

// requireHTTPS refuses requests that did not arrive over TLS, before their token is read, and
// determines the client's address. Both trust forwarding headers of the configured proxies only.
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
	peer, proto := auth.Peer(req.RemoteAddr), req.Header.Values("X-Forwarded-Proto")
	rs.from = auth.ClientIP(peer, req.Header.Values("X-Forwarded-For"), trusted)
	if !auth.IsHTTPS(req.TLS != nil, peer, proto, trusted) {
		if len(proto) == 0 && auth.Within(trusted, peer) {
			return errNoProto
		}
		return errPlain
	}
	rs.Response().Header()["Strict-Transport-Security"] = strict
	return nil
}
