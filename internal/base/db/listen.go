package db

import (
	"context"
	"errors"
	"time"

	"github.com/lib/pq"

	"guildhall/internal/base/fault"
)

// Notification is one message on a channel.
type Notification struct{ Channel, Payload string }

// Listener is one connection that receives notifications, in the order in which their
// senders committed. It never reconnects: who loses one has missed an unknown
// number of messages, and has to know it.
type Listener struct {
	conn          *pq.ListenerConn      // safe for all
	notifications chan *pq.Notification // filled and closed by conn's own goroutine, read by Next
}

// Listen opens a connection to the database at url and subscribes to channel. All
// that is committed to the channel after Listen has returned arrives, as long
// as the connection holds. The caller must keep calling Next, or Exec cannot return.
func Listen(ctx context.Context, url, name, channel string) (*Listener, error) {
	dsn, err := withParams(url, map[string]string{
		"application_name":              name,
		"connect_timeout":               "2",
		"statement_timeout":             "2000",
		"lock_timeout":                  "2000",
		"default_transaction_read_only": "off", // a node registers over it
		"timezone":                      "UTC",
	})
	if err != nil {
		return nil, err
	}
	notifications := make(chan *pq.Notification, 1024)
	conn, err := pq.NewListenerConn(dsn, notifications)
	if err != nil {
		return nil, fault.Wrap(err, "open a line to the database")
	}
	l := &Listener{conn: conn, notifications: notifications}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := l.Exec(ctx, "LISTEN "+pq.QuoteIdentifier(channel)); err != nil {
		l.Close()
		for range notifications {
			// The driver ends once nothing is left to hand over.
		}
		return nil, fault.Wrap(err, "listen to", channel)
	}
	return l, nil
}

// errListenerLost is the end of a connection that gave no reason.
var errListenerLost = errors.New("db: the line to the database was lost")

// Next waits for a notification. It fails once the connection is lost or closed, and
// only then: a caller that ends without that error first has to Close.
func (l *Listener) Next() (Notification, error) {
	n, ok := <-l.notifications
	if !ok {
		if err := l.conn.Err(); err != nil {
			return Notification{}, err
		}
		return Notification{}, errListenerLost
	}
	return Notification{Channel: n.Channel, Payload: n.Extra}, nil
}

// Exec runs one statement without arguments over the connection; what it selects is
// dropped. When ctx ends first the connection is closed, because nobody can tell
// whether the statement ran.
func (l *Listener) Exec(ctx context.Context, statement string) error {
	stop := context.AfterFunc(ctx, l.Close)
	defer stop()
	if _, err := l.conn.ExecSimpleQuery(statement); err != nil {
		return errors.Join(err, ctx.Err())
	}
	return nil
}

// Close ends the connection.
func (l *Listener) Close() { _ = l.conn.Close() }

// Quote makes s a literal for a statement of Exec, which takes no arguments.
func Quote(s string) string { return pq.QuoteLiteral(s) }
