package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"guildhall/internal/base/wire"
)

// ErrNoAddress is ParseURL's error for brackets that contain no IPv6 address. The contract's
// pattern cannot express that, so the error counts as an unknown host and not as a violation of the
// schema.
var ErrNoAddress = errors.New("has brackets without an IPv6 address in them")

// maxURL is how many characters a receiver's URL may have.
const maxURL = 2048

// form is the contract's pattern for a receiver's URL, extended by http without TLS, about which
// Guard.Check decides.
var form = regexp.MustCompile(`^https?://([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|\[[0-9A-Fa-f:.]+\])` +
	`(:(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3}))?` +
	`([/?]([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?$`)

// ParseURL checks the form of a receiver's URL as the contract does. The API, the command line and
// the dashboard use it. The URL's address may still be refused by Guard. The error continues a
// sentence that begins with the URL.
func ParseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case utf8.RuneCountInString(raw) > maxURL:
		return nil, fmt.Errorf("must have at most %d characters", maxURL)
	case !form.MatchString(raw):
		return nil, wire.WrongURL(raw)
	case !addressed(raw):
		return nil, ErrNoAddress
	case err != nil:
		return nil, wire.WrongURL(raw)
	}
	return u, nil
}

// addressed reports whether the text in brackets in a URL's host, if any, is an IPv6 address.
func addressed(raw string) bool {
	_, rest, _ := strings.Cut(raw, "://[")
	host, _, bracketed := strings.Cut(rest, "]")
	addr, err := netip.ParseAddr(host)
	return !bracketed || err == nil && addr.Is6()
}

// portOf returns the port of a URL that ParseURL has accepted.
func portOf(u *url.URL) uint16 {
	if n, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
		return uint16(n)
	}
	if u.Scheme == "http" {
		return 80
	}
	return 443
}

// ambiguous reports whether some programs but not all would read the host as an IP address:
// 2130706433, 0x7f.1, 0177.0.0.1, full-width digits. As in browsers, a host whose last label is a
// number must be an address.
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
