package auth

import (
	"net"
	"net/netip"
	"strings"

	"guildhall/internal/base/fault"
)

// ParsePrefixes reads addresses and CIDR ranges, of which each string may hold
// several, separated by commas or white space. An address is the range of
// itself; an IPv4 address written as IPv6 is the IPv4 address. Each range is
// returned once, without host bits, in the order given.
func ParsePrefixes(lists ...string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	seen := map[netip.Prefix]bool{}
	for _, w := range splitList(lists) {
		p, ok := parsePrefix(w)
		if !ok {
			return nil, fault.New(fault.Invalid, "invalid_request", "%q is neither an IP address nor a CIDR range.", w)
		}
		if !seen[p] {
			seen[p] = true
			all = append(all, p)
		}
	}
	return all, nil
}

func parsePrefix(s string) (netip.Prefix, bool) {
	if !strings.Contains(s, "/") {
		a, ok := parseAddr(s)
		return netip.PrefixFrom(a, a.BitLen()), ok
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, false
	}
	a, bits := p.Addr(), p.Bits()
	if a.Is4In6() {
		// Fewer bits would reach beyond the IPv4 addresses.
		if bits < 96 {
			return netip.Prefix{}, false
		}
		a, bits = a.Unmap(), bits-96
	}
	return netip.PrefixFrom(a, bits).Masked(), true
}

// parseAddr reads one address without a zone: a zone means something to one
// host only.
func parseAddr(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}

// parseForwarded reads an entry of X-Forwarded-For: an address, or one with a port, as
// Azure's gateways send it.
func parseForwarded(entry string) (netip.Addr, bool) {
	if ap, err := netip.ParseAddrPort(entry); err == nil && ap.Addr().Zone() == "" {
		return ap.Addr().Unmap(), true
	}
	return parseAddr(entry)
}

// Peer is the address at the other end of a connection, of whose remote address
// ClientIP and IsHTTPS want it; the zero one when there is none to be read.
func Peer(remoteAddr string) netip.Addr {
	if ap, err := netip.ParseAddrPort(remoteAddr); err == nil {
		return ap.Addr().Unmap().WithZone("")
	}
	host, _, err := net.SplitHostPort(remoteAddr)
	if err != nil {
		host = remoteAddr
	}
	a, _ := parseAddr(host)
	return a
}

// ClientIP is the address a request came from: the peer's, or, when that is a
// trusted proxy, the last address of X-Forwarded-For, read from the right, that
// is no trusted proxy. Several header lines are one list. Where every address
// is a trusted proxy it is the first of them. An entry may have a port. A text that is no
// address ends the reading: the caller is unknown, and the zero address is returned, which no allowlist
// holds.
func ClientIP(peer netip.Addr, xff []string, trusted []netip.Prefix) netip.Addr {
	from := peer
	if !Within(trusted, from) {
		return from
	}
	for i := len(xff) - 1; i >= 0; i-- {
		for rest, more := xff[i], true; more; {
			var last string
			if cut := strings.LastIndexByte(rest, ','); cut >= 0 {
				rest, last = rest[:cut], rest[cut+1:]
			} else {
				last, more = rest, false
			}
			a, ok := parseForwarded(strings.Trim(last, " \t"))
			if !ok {
				return netip.Addr{}
			}
			if from = a; !Within(trusted, a) {
				return a
			}
		}
	}
	return from
}

// Within reports whether one of the ranges holds a.
func Within(list []netip.Prefix, a netip.Addr) bool {
	a = a.Unmap()
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// IsHTTPS reports whether the client's request travelled over TLS: to this
// process, or to a trusted proxy that says so. A trusted proxy is also believed
// when it says the opposite. Every entry of X-Forwarded-Proto has to be https:
// one of them was written by whoever is furthest away, and any hop in clear has
// shown the token.
func IsHTTPS(tls bool, peer netip.Addr, forwardedProto []string, trusted []netip.Prefix) bool {
	if len(forwardedProto) == 0 || !Within(trusted, peer) {
		return tls
	}
	for _, line := range forwardedProto {
		for said := range strings.SplitSeq(line, ",") {
			if !strings.EqualFold(strings.Trim(said, " \t"), "https") {
				return false
			}
		}
	}
	return true
}

// LoginKey names the bucket that failed authentications from a spend. The
// addresses of one IPv6 /64 share theirs: they belong to one customer, who has
// more of them than any limiter has memory.
func LoginKey(a netip.Addr) string {
	a = a.Unmap()
	if a.Is6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return "login:" + p.String()
		}
	}
	return "login:" + a.String()
}
