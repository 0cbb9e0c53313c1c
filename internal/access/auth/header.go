package auth

import (
	"net/http"
	"strings"

	"guildhall/internal/base/fault"
)

var (
	errMissing     = fault.New(fault.Unauthenticated, "missing_token", "Send the token once, as Authorization: Bearer <token>.")
	errInvalid     = fault.New(fault.Unauthenticated, "invalid_token", "The token is unknown, revoked or expired.")
	errAddress     = fault.New(fault.Forbidden, "ip_not_allowed", "This token may not be used from this address.")
	errUnavailable = fault.New(fault.Unavailable, "service_unavailable", "The token cannot be checked right now.")
)

// FromHeader returns the bearer token of a request's only Authorization header. It returns
// missing_token if there is no such header, several, another scheme or an empty token. The result
// need not have the form of a token.
func FromHeader(h http.Header) (string, error) {
	lines := h["Authorization"]
	if len(lines) != 1 {
		return "", errMissing
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	if !strings.EqualFold(scheme, "bearer") {
		return "", errMissing
	}
	token = strings.Trim(token, " \t")
	if token == "" {
		return "", errMissing
	}
	return token, nil
}
