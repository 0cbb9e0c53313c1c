// Package connlimit limits the connections to the public listeners: their total, their number by
// address, and the memory that the kernel uses for them.
package connlimit

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The limits. The connections of one address must not use up what other addresses need, whether
// they are open or only hold data that their client does not read. That includes the kernel's
// memory, which no metric of this process shows.
const (
	maxConnections           = 8192
	maxConnectionsPerAddress = 256
	MaxStreams               = 64               // streams of one HTTP/2 connection
	SendBuffer               = 64 << 10         // the kernel's send buffer of one connection
	unreadTimeout            = 30 * time.Second // how long the kernel keeps data that a client does not read
)

// boundedListener closes new connections that exceed the limits.
type boundedListener struct {
	net.Listener
	connections *Connections
}

// Connections counts the open connections of all public listeners.
type Connections struct {
	proxies []netip.Prefix // trusted proxies, which bring connections of many clients
	refused *prometheus.CounterVec

	mu   sync.Mutex // guards the fields below
	all  int
	from map[netip.Prefix]int
}

// New returns a Connections. Connections from proxies count towards the total only.
func New(proxies []netip.Prefix, r prometheus.Registerer) *Connections {
	c := &Connections{
		proxies: proxies, from: map[netip.Prefix]int{},
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "guildhall_connections_refused_total", Help: "Connections closed as they arrived, by what was full: all, or address.",
		}, []string{"full"}),
	}
	r.MustRegister(c.refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "guildhall_connections", Help: "Connections to the public listeners.",
	}, func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return float64(c.all)
	}))
	return c
}

// Bound returns a listener that counts the connections of l and closes those that exceed the
// limits.
func (c *Connections) Bound(l net.Listener) net.Listener { return boundedListener{l, c} }

// Accept waits for the next connection within the limits.
func (l boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := c.(*net.TCPConn)
		if !ok {
			return c, nil
		}
		whose, ok := l.connections.enter(tcp.RemoteAddr())
		if !ok {
			drop(tcp)
			continue
		}
		_ = tcp.SetWriteBuffer(SendBuffer) // otherwise the kernel would let the buffer grow to megabytes
		return &boundedConn{TCPConn: tcp, release: sync.OnceFunc(func() { l.connections.exit(whose) })}, nil
	}
}

// enter counts a new connection, unless a limit is reached. whose is the zero prefix for a trusted
// proxy.
func (c *Connections) enter(a net.Addr) (whose netip.Prefix, ok bool) {
	ap, err := netip.ParseAddrPort(a.String())
	if err == nil {
		whose = c.counted(ap.Addr().Unmap().WithZone(""))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.all >= maxConnections:
		c.refused.WithLabelValues("all").Inc()
		return whose, false
	case whose.IsValid() && c.from[whose] >= maxConnectionsPerAddress:
		c.refused.WithLabelValues("address").Inc()
		return whose, false
	}
	c.all++
	if whose.IsValid() {
		c.from[whose]++
	}
	return whose, true
}

// counted returns the prefix under which an address is counted: the address itself, or its IPv6
// /64, which belongs to one customer.
func (c *Connections) counted(a netip.Addr) netip.Prefix {
	if slices.ContainsFunc(c.proxies, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return netip.Prefix{}
	}
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(a, bits).Masked()
}

func (c *Connections) exit(whose netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if whose.IsValid() {
		if c.from[whose]--; c.from[whose] == 0 {
			delete(c.from, whose)
		}
	}
}

// boundedConn is a counted connection.
type boundedConn struct {
	*net.TCPConn
	release func()
}

// Write writes to the connection. If a client reads too slowly and the write fails, closing the
// connection also discards the unsent data, so that the kernel does not keep it.
func (c *boundedConn) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = c.SetLinger(0)
	}
	return n, err
}

// Close closes the connection and subtracts it from the counts.
func (c *boundedConn) Close() error {
	defer c.release()
	return c.TCPConn.Close()
}

// drop resets a connection, so that the kernel keeps nothing of it.
func drop(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
