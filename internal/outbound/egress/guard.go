// Package egress is the way out to receivers that integrators name: which URLs
// and addresses may be called, and the HTTP client that calls them. A receiver
// is a stranger; nothing it says or is called may lead into our own network, or
// keep an attempt for longer than its time.
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

// The ways in which Guard.Check refuses a URL. ErrNotAllowed has one text for
// every address, so that a response does not tell what lies behind it.
var (
	ErrNotAllowed = errors.New("the URL must lead to a public address")
	ErrNoSuchHost = errors.New("the URL's host name does not exist")
	ErrLookup     = errors.New("the URL's host name cannot be resolved now")
)

// lookupTimeout bounds the resolution of a name by Guard.Check.
const lookupTimeout = 2 * time.Second

// unroutable are ranges that no receiver lives in and package ssrf lets through.
var unroutable = []netip.Prefix{
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

// Check resolves the host of a URL that ParseURL has passed, within
// lookupTimeout. It is ErrNotAllowed if any of its addresses is not permitted
// now, ErrNoSuchHost if the name does not exist or has no address, ErrLookup if
// that cannot be found out now. It opens no connection to the receiver. A plain
// http URL passes if all its addresses are on the operator's list.
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

// AllowsPlain reports whether a URL of plain http may pass at all.
func (g *Guard) AllowsPlain() bool { return len(g.allow) > 0 }

// IsName reports whether Check has to ask name servers about the URL's host.
func IsName(u *url.URL) bool {
	_, err := netip.ParseAddr(strings.TrimSuffix(u.Hostname(), "."))
	return err != nil && !ambiguous(u.Hostname())
}

// resolve reads a host as an address, in its one canonical form, or as a name.
// It returns at least one address or an error of Check's.
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

// lookup asks for the addresses of both families at the same time. They are
// asked for apart, because only then a family that does not exist can be told
// from one whose server has failed: the name is missing only if both are.
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

// missing reports whether a lookup has found out that there is no such record.
func missing(err error) bool {
	dns, ok := errors.AsType[*net.DNSError](err)
	return err == nil || ok && dns.IsNotFound
}

// control is the dialer's last word before a socket connects.
func (g *Guard) control(plain bool) func(network, address string, c syscall.RawConn) error {
	return func(network, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil || network != "tcp4" && network != "tcp6" || !g.permits(to, plain) {
			return ErrNotAllowed
		}
		return g.permitted(to)
	}
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

// isatap reports whether an address carries an IPv4 address in its interface
// identifier, as RFC 5214 tunnels do under any prefix.
func isatap(a netip.Addr) bool {
	if !a.Is6() {
		return false
	}
	b := a.As16()
	return b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// ownAddresses lists this machine's addresses, looked up again after a while: a
// machine's public address is public, but it leads inside.
func ownAddresses() func() []netip.Addr {
	var (
		mu    sync.Mutex // guards what follows
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
