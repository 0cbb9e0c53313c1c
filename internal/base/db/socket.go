package db

import (
	"context"
	"net"
	"time"
)

// grace is added to a context's deadline to get the deadline of the connection's socket. Without a
// deadline the driver would wait for ever on a dead network link, whatever its context says. In the
// added time the driver can cancel the statement and keep the connection.
const grace = time.Second

// socket is the network connection of one database connection.
type socket struct {
	net.Conn
	connectBy time.Time // the latest deadline allowed while connecting; zero: any
	until     time.Time // the deadline once connected; zero: none
}

// SetDeadline is called by the driver to bound the handshake. The deadline is limited to that of
// the caller that waits for the connection.
func (s *socket) SetDeadline(t time.Time) error {
	if !s.connectBy.IsZero() && (t.IsZero() || t.After(s.connectBy)) {
		t = s.connectBy
	}
	return s.Conn.SetDeadline(t)
}

// connected ends the handshake and removes its deadline.
func (s *socket) connected() error {
	s.connectBy = time.Time{}
	return s.SetDeadline(time.Time{})
}

// workFor sets the socket's deadline from ctx.
func (s *socket) workFor(ctx context.Context) {
	until, ok := ctx.Deadline()
	if ok {
		until = until.Add(grace)
	}
	// Deadlines of successive requests differ by little, and setting one costs work in the
	// runtime's timers. A deadline that is early by less than half the grace still leaves the
	// driver its time, so it is kept.
	if early := until.Sub(s.until); early < 0 || early >= grace/2 {
		// An error means that the socket is broken, which its next use reports.
		_ = s.SetDeadline(until)
		s.until = until
	}
}

// sayGoodbye gives the driver time to close a connection whose last deadline may have passed long
// ago.
func (s *socket) sayGoodbye() { _ = s.SetDeadline(time.Now().Add(grace)) }

type socketKey struct{}

// dialer opens the socket for a new connection and hands it to the connection through the context.
// To cancel a statement, the driver dials with a context that contains no connection.
type dialer struct{ net.Dialer }

func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.Dialer.DialContext(ctx, network, address)
	s, ok := ctx.Value(socketKey{}).(*socket)
	if err != nil || !ok {
		return c, err
	}
	s.Conn = c
	return s, nil
}

// DialTimeout is required by the driver's interface, which prefers DialContext.
func (d *dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.DialContext(ctx, network, address)
}
