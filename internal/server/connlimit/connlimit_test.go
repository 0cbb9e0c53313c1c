package connlimit

import (
	"net"
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// RELIABILITY.md, Overload.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	at := func(s string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s)) }
	c := New([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, prometheus.NewRegistry())
	enter := func(addr string, times int) (entered int) {
		for range times {
			if _, ok := c.enter(at(addr)); ok {
				entered++
			}
		}
		return entered
	}
	if n := enter("192.0.2.1:1", 300); n != maxConnectionsPerAddress {
		t.Errorf("one address holds %d", n)
	}
	if n := enter("192.0.2.2:1", 1); n != 1 {
		t.Error("its neighbour is refused")
	}
	if n := enter("[2001:db8::1]:1", 200) + enter("[2001:db8::2]:1", 200); n != maxConnectionsPerAddress {
		t.Errorf("one /64 holds %d", n)
	}
	if n := enter("[::ffff:192.0.2.1]:1", 1); n != 0 {
		t.Error("an address in its other form is another")
	}
	if n := enter("10.1.1.1:1", 1000); n != 1000 {
		t.Errorf("a trusted proxy holds %d", n)
	}
	if n := enter("10.1.1.1:1", maxConnections); c.all != maxConnections || n == maxConnections {
		t.Errorf("all hold %d", c.all)
	}
	if n := enter("192.0.2.3:1", 1); n != 0 {
		t.Error("one more than all is taken")
	}
	whose := c.counted(netip.MustParseAddr("192.0.2.1"))
	for range maxConnectionsPerAddress {
		c.exit(whose)
	}
	if _, kept := c.from[whose]; kept || enter("192.0.2.1:1", 1) != 1 {
		t.Error("who has left is still counted")
	}
}
