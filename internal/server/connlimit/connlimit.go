// Package connlimit bounds the connections to the public listeners: how many are
// open, how many an address has, and what the kernel holds for them.
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

// The bounds. The connections of one address, open or unread, must not take what others
// need: the kernel's memory included, which no number of this process shows.
const (
	maxConnections           = 8192
	maxConnectionsPerAddress = 256
	MaxStreams               = 64               // MaxStreams is that of one HTTP/2 connection.
	SendBuffer               = 64 << 10         // SendBuffer is that of one connection, in the kernel.
	unreadTimeout            = 30 * time.Second // until what the other side does not take is dropped
)

// boundedListener closes connections beyond the bounds as they arrive.
type boundedListener struct {
	net.Listener
	connections *Connections
}

// Connections counts those that are open, over all public listeners.
type Connections struct {
	proxies []netip.Prefix // who bring many clients' connections
	refused *prometheus.CounterVec

	mu   sync.Mutex // guards what follows
	all  int
	from map[netip.Prefix]int
}

// New counts nothing yet. The connections of proxies count for all only.
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

// Bound returns l with the connections that it accepts counted in, and those
// beyond the bounds closed.
func (c *Connections) Bound(l net.Listener) net.Listener { return boundedListener{l, c} }

// Accept waits for the next connection within the bounds.
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
		_ = tcp.SetWriteBuffer(SendBuffer) // else the kernel lets it grow to megabytes
		return &boundedConn{TCPConn: tcp, release: sync.OnceFunc(func() { l.connections.exit(whose) })}, nil
	}
}

// enter counts a connection in, unless there are too many. The zero prefix is a
// trusted proxy's.
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

// counted is what the connections of an address are counted under: itself, or
// its /64, which belongs to one customer.
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

// boundedConn is a connection that was counted in.
type boundedConn struct {
	*net.TCPConn
	release func()
}

// Write makes a connection whose other side does not read take what it was not
// sent with it when it is closed, rather than leave that to the kernel.
func (c *boundedConn) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = c.SetLinger(0)
	}
	return n, err
}

// Close counts the connection out.
func (c *boundedConn) Close() error {
	defer c.release()
	return c.TCPConn.Close()
}

// drop closes a connection without a word and without a trace in the kernel.
func drop(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
