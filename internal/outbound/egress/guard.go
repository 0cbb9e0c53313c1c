// Package egress makes HTTP requests to URLs that integrators choose. It decides which URLs and
// addresses may be called, and contains the HTTP client. Receivers are not trusted: no URL and no
// response may lead into our own network or make a request last longer than its timeout.
package egress

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

	"guildhall/internal/base/wire"
)

// The errors of Guard.Check. ErrNotAllowed has the same text for every address, so that the
// response does not reveal what is behind it.
var (
	ErrNotAllowed = errors.New("the URL must lead to a public address")
	ErrNoSuchHost = errors.New("the URL's host name does not exist")
	ErrLookup     = errors.New("the URL's host name cannot be resolved now")
)

// lookupTimeout bounds a DNS lookup by Guard.Check.
const lookupTimeout = 2 * time.Second

// unroutable lists ranges that no receiver uses and that package ssrf does not refuse.
var unroutable = []netip.Prefix{
	netip.MustParsePrefix("168.63.129.16/32"), // Azure's metadata and DNS address, reachable from every virtual machine
	netip.MustParsePrefix("3ffe::/16"),        // the former 6bone range
}

// Guard decides which addresses webhooks may be sent to: public ones, and those on the operator's
// list. It checks the name when an endpoint is registered, and the address each time a socket is
// about to connect. Only the second check protects, since a name's addresses can change.
type Guard struct {
	public   *ssrf.Guardian
	allow    []netip.Prefix
	resolver *net.Resolver
	own      func() []netip.Addr
	// permitted is called with each address that a socket is about to connect to and may refuse it.
	// Tests set it.
	permitted func(netip.AddrPort) error
}

// NewGuard returns a Guard that also permits the prefixes of allow. A nil resolver stands for Go's
// own resolver, because the C library's parses unusual hosts ("0x7f.1") differently.
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

// ParseAllow parses a list of prefixes or single addresses, separated by commas or white space.
func ParseAllow(s string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, part := range wire.Items(s) {
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

// Check resolves the host of a URL that ParseURL has accepted, within lookupTimeout. It returns
// ErrNotAllowed if any of the addresses is not permitted, ErrNoSuchHost if the name does not exist
// or has no address, and ErrLookup if the lookup fails. It does not connect to the receiver. An
// http URL without TLS passes if all its addresses are on the operator's list.
func (g *Guard) Check(ctx context.Context, u *url.URL) error {
	addrs, err := g.resolve(ctx, u.Hostname())
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if !g.permits(netip.AddrPortFrom(a, portOf(u)), u.Scheme == "http") {
			return ErrNotAllowed
		}
	}
	return nil
}

// AllowsPlain reports whether any http URL without TLS can be allowed.
func (g *Guard) AllowsPlain() bool { return len(g.allow) > 0 }

// IsName reports whether Check needs a DNS lookup for the URL's host.
func IsName(u *url.URL) bool {
	_, err := netip.ParseAddr(strings.TrimSuffix(u.Hostname(), "."))
	return err != nil && !ambiguous(u.Hostname())
}

// resolve returns the addresses of a host, which is an address in canonical form or a name. It
// returns at least one address, or one of Check's errors.
func (g *Guard) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(strings.TrimSuffix(host, ".")); err == nil {
		if a.Zone() != "" || a.Is4In6() && !g.listed(a) {
			return nil, ErrNotAllowed
		}
		return []netip.Addr{a}, nil
	}
	if ambiguous(host) {
		return nil, ErrNotAllowed
	}
	return g.lookup(ctx, host)
}

// lookup looks up IPv4 and IPv6 addresses concurrently. They are separate lookups because only then
// a family without addresses can be told from a failing DNS server; the name does not exist only if
// both say so.
func (g *Guard) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	var (
		wg    sync.WaitGroup
		addrs [2][]netip.Addr
		errs  [2]error
	)
	for i, family := range []string{"ip4", "ip6"} {
		wg.Go(func() { addrs[i], errs[i] = g.resolver.LookupNetIP(ctx, family, name) })
	}
	wg.Wait()
	found := append(addrs[0], addrs[1]...)
	switch {
	case len(found) > 0:
		return found, nil
	case missing(errs[0]) && missing(errs[1]):
		return nil, ErrNoSuchHost
	default:
		return nil, ErrLookup
	}
}

// missing reports whether a lookup found that there is no such record.
func missing(err error) bool {
	dns, ok := errors.AsType[*net.DNSError](err)
	return err == nil || ok && dns.IsNotFound
}

// control returns the dialer's last check before a socket connects.
func (g *Guard) control(plain bool) func(network, address string, c syscall.RawConn) error {
	return func(network, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil || network != "tcp4" && network != "tcp6" || !g.permits(to, plain) {
			return ErrNotAllowed
		}
		return g.permitted(to)
	}
}

// permits reports whether a connection to the address is permitted. Connections without TLS are
// permitted only to addresses on the operator's list. Ports below 1024, except 443, belong to
// services that are no webhook receivers.
func (g *Guard) permits(to netip.AddrPort, plain bool) bool {
	a := to.Addr().Unmap()
	if g.listed(a) {
		return true
	}
	if plain || a.Zone() != "" || to.Port() < 1024 && to.Port() != 443 {
		return false
	}
	for _, p := range unroutable {
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

// listed reports whether the address is on the operator's list.
func (g *Guard) listed(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	for _, p := range g.allow {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// isatap reports whether an address contains an IPv4 address in its interface identifier, as ISATAP
// tunnels (RFC 5214) have under any prefix.
func isatap(a netip.Addr) bool {
	if !a.Is6() {
		return false
	}
	b := a.As16()
	return b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// ownAddresses returns a function that lists this machine's addresses and refreshes the list after
// a while. The machine's public address looks public but leads to our own services.
func ownAddresses() func() []netip.Addr {
	var (
		mu    sync.Mutex // guards the fields below
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
