package webhooks

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// notAllowed is the one text for every refused address, so that an answer does
// not tell what lies behind it.
const notAllowed = "The URL must lead to a public address."

var errNotAllowed = errors.New("webhooks: address not allowed")

// lookupLimit bounds a name lookup at registration, which happens inside the
// request's transaction.
const lookupLimit = 2 * time.Second

// beyond are ranges that no receiver lives in and package ssrf lets through.
var beyond = []netip.Prefix{
	netip.MustParsePrefix("168.63.129.16/32"), // Azure's platform address: metadata and DNS, reachable from every guest
	netip.MustParsePrefix("3ffe::/16"),        // the returned 6bone range
}

// Guard decides which addresses webhooks may be sent to: public ones, and those
// of the operator's list. It is asked twice, by name when an endpoint is
// registered and by address each time a socket is about to connect; only the
// second is the protection, since names change.
type Guard struct {
	public   *ssrf.Guardian
	allow    []netip.Prefix
	resolver *net.Resolver
	own      func() []netip.Addr
	// permitted is told of each address a socket is about to connect to, and has
	// a last veto; tests watch and stop it there.
	permitted func(netip.AddrPort) error
}

// NewGuard makes a Guard that also permits the prefixes of allow. A nil
// resolver is the system's, without the C library, whose reading of odd hosts
// ("0x7f.1") differs.
func NewGuard(allow []netip.Prefix, resolver *net.Resolver) *Guard {
	if resolver == nil {
		resolver = &net.Resolver{PreferGo: true}
	}
	unmapped := make([]netip.Prefix, 0, len(allow))
	for _, p := range allow {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		unmapped = append(unmapped, p.Masked())
	}
	return &Guard{
		public: ssrf.New(ssrf.WithAnyPort()), allow: unmapped, resolver: resolver,
		own: ownAddresses(), permitted: func(netip.AddrPort) error { return nil },
	}
}

// ParseAllow reads a list of prefixes or single addresses, separated by commas
// or white space.
func ParseAllow(s string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, part := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) }) {
		if addr, err := netip.ParseAddr(part); err == nil && addr.Zone() == "" {
			out = append(out, netip.PrefixFrom(addr, addr.BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(part)
		if err != nil {
			return nil, errors.New("webhook allow: " + part + " is not an address or a CIDR")
		}
		out = append(out, p)
	}
	return out, nil
}

// listed reports whether the operator's list names the address.
func (g *Guard) listed(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	for _, p := range g.allow {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// permits reports whether a connection to the address may be made. A plain one,
// without TLS, only to addresses of the operator's list. Ports below 1024 other
// than https's belong to services that are no receivers.
func (g *Guard) permits(to netip.AddrPort, plain bool) bool {
	a := to.Addr().Unmap()
	if g.listed(a) {
		return true
	}
	if plain || a.Zone() != "" || to.Port() < 1024 && to.Port() != 443 {
		return false
	}
	for _, p := range beyond {
		if p.Contains(a) {
			return false
		}
	}
	for _, mine := range g.own() {
		if a == mine {
			return false
		}
	}
	return !isatap(a) && g.public.SafeAddr(a) == nil
}

// isatap reports whether an address carries an IPv4 address in its interface
// identifier, as RFC 5214 tunnels do under any prefix.
func isatap(a netip.Addr) bool {
	if !a.Is6() {
		return false
	}
	b := a.As16()
	return b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// control is the dialer's last word before a socket connects.
func (g *Guard) control(plain bool) func(network, address string, c syscall.RawConn) error {
	return func(network, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil || network != "tcp4" && network != "tcp6" || !g.permits(to, plain) {
			return errNotAllowed
		}
		return g.permitted(to)
	}
}

// check refuses a URL of which any address is not allowed now, or whose name
// does not resolve, with errNotAllowed. It opens no connection to the receiver.
// A plain http URL passes if all its addresses are on the operator's list.
func (g *Guard) check(ctx context.Context, u *url.URL) error {
	port, plain := uint16(443), u.Scheme == "http"
	if plain {
		port = 80
	}
	if p := u.Port(); p != "" {
		ap, err := netip.ParseAddrPort("127.0.0.1:" + p)
		if err != nil {
			return errNotAllowed
		}
		port = ap.Port()
	}
	addrs, err := g.resolve(ctx, u.Hostname())
	if err != nil || len(addrs) == 0 {
		return errNotAllowed
	}
	for _, a := range addrs {
		if !g.permits(netip.AddrPortFrom(a, port), plain) {
			return errNotAllowed
		}
	}
	return nil
}

// resolve reads a host as an address, in its one canonical form, or as a name.
func (g *Guard) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(strings.TrimSuffix(host, ".")); err == nil {
		if a.Zone() != "" || a.Is4In6() && !g.listed(a) {
			return nil, errNotAllowed
		}
		return []netip.Addr{a}, nil
	}
	if odd(host) {
		return nil, errNotAllowed
	}
	ctx, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	return g.resolver.LookupNetIP(ctx, "ip", host)
}

// odd reports whether only some programs would take the host for an address:
// 2130706433, 0x7f.1, 0177.0.0.1, full-width digits. As in browsers, a host whose
// last label is a number is an address or nothing.
func odd(host string) bool {
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
	return isDigits(last)
}

// ownAddresses lists this machine's addresses, looked up again after a while: a
// machine's public address is public, but it leads inside.
func ownAddresses() func() []netip.Addr {
	var (
		mu    sync.Mutex
		known []netip.Addr
		until time.Time
	)
	return func() []netip.Addr {
		mu.Lock()
		defer mu.Unlock()
		if time.Now().Before(until) {
			return known
		}
		addrs, err := net.InterfaceAddrs()
		if err != nil {
			return known
		}
		known = known[:0:0]
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok {
				if ip, ok := netip.AddrFromSlice(n.IP); ok {
					known = append(known, ip.Unmap())
				}
			}
		}
		until = time.Now().Add(time.Minute)
		return known
	}
}
