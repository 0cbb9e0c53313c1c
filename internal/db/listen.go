package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lib/pq"
)

// Notification is one message on a channel.
type Notification struct{ Channel, Payload string }

// Line is one connection that hears notifications, in the order in which their
// senders committed. It never reconnects: who loses one has missed an unknown
// number of messages, and has to know it.
type Line struct {
	conn  *pq.ListenerConn
	heard chan *pq.Notification
}

// Listen opens a line to the database at url and subscribes to channel. All
// that is committed to the channel after Listen has returned is heard, as long
// as the line holds. Somebody must keep calling Next, or Exec cannot return.
func Listen(ctx context.Context, url, name, channel string) (*Line, error) {
	dsn, err := withParams(url, map[string]string{
		"application_name":  name,
		"connect_timeout":   "2",
		"statement_timeout": "2000",
		"lock_timeout":      "2000",
		"timezone":          "UTC",
	})
	if err != nil {
		return nil, err
	}
	heard := make(chan *pq.Notification, 1024)
	conn, err := pq.NewListenerConn(dsn, heard)
	if err != nil {
		return nil, fmt.Errorf("open a line to the database: %w", err)
	}
	l := &Line{conn: conn, heard: heard}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := l.Exec(ctx, "LISTEN "+pq.QuoteIdentifier(channel)); err != nil {
		l.Close()
		for range heard {
			// The driver ends once nothing is left to hand over.
		}
		return nil, fmt.Errorf("listen to %s: %w", channel, err)
	}
	return l, nil
}

// errLineLost is the end of a line that gave no reason.
var errLineLost = errors.New("db: the line to the database was lost")

// Next waits for a notification. It fails once the line is lost or closed, and
// only then: a caller that ends without that error first has to Close.
func (l *Line) Next() (Notification, error) {
	n, ok := <-l.heard
	if !ok {
		if err := l.conn.Err(); err != nil {
			return Notification{}, err
		}
		return Notification{}, errLineLost
	}
	return Notification{Channel: n.Channel, Payload: n.Extra}, nil
}

// Exec runs one statement without arguments over the line; what it selects is
// dropped. When ctx ends first the line is closed, because nobody can tell
// whether the statement ran.
func (l *Line) Exec(ctx context.Context, statement string) error {
	stop := context.AfterFunc(ctx, l.Close)
	defer stop()
	if _, err := l.conn.ExecSimpleQuery(statement); err != nil {
		return errors.Join(err, ctx.Err())
	}
	return nil
}

// Close ends the line.
func (l *Line) Close() { _ = l.conn.Close() }

// Quote makes s a literal for a statement of Exec, which takes no arguments.
func Quote(s string) string { return pq.QuoteLiteral(s) }
