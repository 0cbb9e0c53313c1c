package egress

import (
	"errors"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// ErrNoAddress is ParseURL's error for brackets that hold no IPv6 address. The
// contract's pattern cannot tell, so it is no fault of form: there is no such
// receiver.
var ErrNoAddress = errors.New("has brackets without an IPv6 address in them")

// ParseURL checks the form of a receiver's URL: absolute, https or http, no
// credentials, no fragment, a port that exists. What it allows may still lead
// to an address that is not allowed. The error is a sentence for the caller.
func ParseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case !addressed(raw):
		return nil, ErrNoAddress
	case err != nil:
		return nil, errors.New("is not a URL")
	case strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }):
		return nil, errors.New("must not contain white space, control characters or backslashes")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("must start with https://")
	case u.Opaque != "" || u.Hostname() == "":
		return nil, errors.New("must name a host")
	case u.User != nil:
		return nil, errors.New("must not contain credentials")
	case strings.Contains(raw, "#"):
		return nil, errors.New("must not have a fragment")
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, errors.New("must have a port between 1 and 65535")
		}
	}
	return u, nil
}

// addressed reports whether what a URL has in brackets for its host, if it has,
// is an IPv6 address.
func addressed(raw string) bool {
	_, rest, _ := strings.Cut(raw, "://[")
	host, _, bracketed := strings.Cut(rest, "]")
	addr, err := netip.ParseAddr(host)
	return !bracketed || err == nil && addr.Is6()
}

// portOf is the port that a URL which ParseURL has passed leads to.
func portOf(u *url.URL) uint16 {
	if n, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
		return uint16(n)
	}
	if u.Scheme == "http" {
		return 80
	}
	return 443
}

// ambiguous reports whether only some programs would take the host for an
// address: 2130706433, 0x7f.1, 0177.0.0.1, full-width digits. As in browsers, a
// host whose last label is a number is an address or nothing.
func ambiguous(host string) bool {
	host = strings.TrimSuffix(host, ".")
	if _, err := netip.ParseAddr(host); err == nil {
		return false
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r >= 0x80 }) {
		return true
	}
	last := strings.ToLower(host[strings.LastIndexByte(host, '.')+1:])
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}
