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

// Listener is one connection that receives notifications in the order in which their transactions
// committed. It never reconnects: after the loss of the connection an unknown number of messages is
// missing, and the caller has to know that.
type Listener struct {
	conn          *pq.ListenerConn      // safe for concurrent use
	notifications chan *pq.Notification // filled and closed by conn's own goroutine, read by Next
}

// Listen opens a connection to the database at url and subscribes to channel. Every notification
// that is committed after Listen has returned arrives, while the connection lasts. The caller must
// keep calling Next; otherwise Exec cannot return.
func Listen(ctx context.Context, url, name, channel string) (*Listener, error) {
	dsn, err := withParams(url, map[string]string{
		"application_name":              name,
		"connect_timeout":               "2",
		"statement_timeout":             "2000",
		"lock_timeout":                  "2000",
		"default_transaction_read_only": "off", // a node writes its registration over this connection
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
			// The driver's goroutine ends when it has no notification left to deliver.
		}
		return nil, fault.Wrap(err, "listen to", channel)
	}
	return l, nil
}

// errListenerLost is the error for a connection that ended without giving a reason.
var errListenerLost = errors.New("db: the line to the database was lost")

// Next waits for a notification. It returns an error only once the connection is lost or closed. A
// caller that stops calling Next before that must call Close.
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

// Exec runs a statement without arguments over the connection and drops its result. If ctx ends
// first, Exec closes the connection, because it is unknown whether the statement ran.
func (l *Listener) Exec(ctx context.Context, statement string) error {
	stop := context.AfterFunc(ctx, l.Close)
	defer stop()
	if _, err := l.conn.ExecSimpleQuery(statement); err != nil {
		return errors.Join(err, ctx.Err())
	}
	return nil
}

// Close closes the connection.
func (l *Listener) Close() { _ = l.conn.Close() }

// Quote returns s as a literal for a statement of Exec, which takes no arguments.
func Quote(s string) string { return pq.QuoteLiteral(s) }
