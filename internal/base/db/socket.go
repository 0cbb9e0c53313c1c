package db

import (
	"context"
	"net"
	"time"
)

// A link that is dead without saying so leaves the driver waiting for an answer
// whatever its context says. So the socket of a connection gets the deadline of
// the context it is working for, and this much more, in which the driver can
// cancel the statement and keep the connection.
const grace = time.Second

// socket is the network side of one connection.
type socket struct {
	net.Conn
	connectBy time.Time // while connecting, the latest deadline there may be; zero: any
	until     time.Time // the deadline since; zero: none
}

// SetDeadline is the driver's way to bound the handshake, which may not take
// longer than whoever wants the connection has.
func (s *socket) SetDeadline(t time.Time) error {
	if !s.connectBy.IsZero() && (t.IsZero() || t.After(s.connectBy)) {
		t = s.connectBy
	}
	return s.Conn.SetDeadline(t)
}

// connected ends the handshake.
func (s *socket) connected() error {
	s.connectBy = time.Time{}
	return s.SetDeadline(time.Time{})
}

// workFor gives the socket the deadline of ctx.
func (s *socket) workFor(ctx context.Context) {
	until, ok := ctx.Deadline()
	if ok {
		until = until.Add(grace)
	}
	// Requests come with deadlines that differ by little, and setting one is work
	// for the runtime's timers. One that is early by less than half the grace
	// still leaves the driver its time.
	if early := until.Sub(s.until); early < 0 || early >= grace/2 {
		// A socket that refuses is broken; its next use says so.
		_ = s.SetDeadline(until)
		s.until = until
	}
}

// sayGoodbye leaves the time to end a connection, whose last deadline may be
// long past.
func (s *socket) sayGoodbye() { _ = s.SetDeadline(time.Now().Add(grace)) }

type socketKey struct{}

// dialer hands the sockets it opens to the connection they are for, which
// waits in the context. The driver dials without one to cancel a statement.
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

// DialTimeout is what the driver wants of a dialer besides; it prefers
// DialContext.
func (d *dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.DialContext(ctx, network, address)
}
