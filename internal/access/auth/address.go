package auth

import (
	"net"
	"net/netip"
	"strings"

	"guildhall/internal/base/fault"
)

// ParsePrefixes parses addresses and CIDR ranges; each string may contain several, separated by
// commas or white space. An address becomes the range that contains only it, and an IPv4 address
// written as IPv6 becomes the IPv4 address. Each range is returned once, without host bits, in the
// given order.
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
		// A shorter prefix would cover more than the IPv4 addresses.
		if bits < 96 {
			return netip.Prefix{}, false
		}
		a, bits = a.Unmap(), bits-96
	}
	return netip.PrefixFrom(a, bits).Masked(), true
}

// parseAddr parses an address without a zone: a zone has a meaning on one host only.
func parseAddr(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}

// parseForwarded parses an entry of X-Forwarded-For: an address, or an address with a port, as
// Azure's gateways send it.
func parseForwarded(entry string) (netip.Addr, bool) {
	if ap, err := netip.ParseAddrPort(entry); err == nil && ap.Addr().Zone() == "" {
		return ap.Addr().Unmap(), true
	}
	return parseAddr(entry)
}

// Peer returns the address of a connection's remote end, as ClientIP and IsHTTPS take it, or the
// zero address if there is none.
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

// ClientIP returns the address that a request came from. It is the peer's address, unless the peer
// is a trusted proxy. Then it is the rightmost address of X-Forwarded-For that is not a trusted
// proxy, or the leftmost if all are trusted. Several header lines count as one list, and an entry
// may have a port. If an entry that has to be read is not an address, the caller is unknown:
// ClientIP returns the zero address, which no allowlist contains.
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

// Within reports whether one of the ranges contains a.
func Within(list []netip.Prefix, a netip.Addr) bool {
	a = a.Unmap()
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// IsHTTPS reports whether the client's request was sent over TLS: to this process, or to a trusted
// proxy that says so in X-Forwarded-Proto. A trusted proxy that says http is believed too. Every
// entry of the header must be https: each stands for one hop, and a hop without TLS has exposed the
// token.
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

// LoginKey returns the name of the rate-limit bucket for failed authentications from a. All
// addresses of an IPv6 /64 share a bucket: they belong to one customer and are too many to count
// each.
func LoginKey(a netip.Addr) string {
	a = a.Unmap()
	if a.Is6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return "login:" + p.String()
		}
	}
	return "login:" + a.String()
}
