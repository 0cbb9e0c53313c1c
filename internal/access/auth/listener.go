package auth

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/logging"
)

const (
	// channel carries the announcements of the token table and the heartbeats
	// of the nodes. Notifications arrive in the order in which their senders
	// committed, so a heartbeat that came back proves that everything announced
	// before it was sent has been received.
	channel = "guildhall_tokens"
	// heartbeatInterval is how often a node sends itself one.
	heartbeatInterval = 500 * time.Millisecond
	// trust is how long, from the sending of a heartbeat that came back, the
	// cache may be used.
	trust = 1500 * time.Millisecond
	// revocationTimeout is how long a revocation waits for the nodes. It is longer than
	// trust: a node that has not been told of it by then asks the database.
	revocationTimeout = 2 * time.Second
	// nodeTimeout is after how long an unheard node is no longer waited for. Its
	// trust has ended long before.
	nodeTimeout = 10 * time.Second
	// notificationTimeout is after how long without a heartbeat that came back a connection that
	// stands leads nowhere. A pooler takes LISTEN and forgets it.
	notificationTimeout = 5 * time.Second
	// heartbeatTimeout is how long a heartbeat may take before the connection is given up.
	heartbeatTimeout = 3 * time.Second
)

// Run keeps the cache true until ctx ends, and then returns nil: it is notified of
// every change to the token table over a connection of its own, and writes when
// tokens were last used. It finds the database again by itself. Stop serving
// before Run ends.
func (t *Tokens) Run(ctx context.Context) error {
	var writer sync.WaitGroup
	writer.Go(func() { t.writeLastUsed(ctx) })
	t.listen(ctx)
	writer.Wait()
	return nil
}

// Nodes is the number of nodes heard from in the last ten seconds, at least
// one: this.
func (t *Tokens) Nodes() int { return int(max(1, t.nodes.Load())) }

// trusted reports whether the cache may be used at now.
func (t *Tokens) trusted(now time.Time) bool {
	sent := t.lease.Load()
	if sent == nil {
		return false
	}
	age, believable := passed(*sent, now)
	return believable && age < trust
}

// passed is the time between two readings of the clock. It is believable when
// the monotonic clock, which stands still while a machine is suspended, and the
// other one, which somebody can set, agree about it.
func passed(from, to time.Time) (d time.Duration, believable bool) {
	d = to.Sub(from)
	other := to.Round(0).Sub(from.Round(0))
	return d, d >= 0 && (other-d).Abs() < 250*time.Millisecond
}

func (t *Tokens) listen(ctx context.Context) {
	const shortest, longest = 50 * time.Millisecond, time.Second
	pause := shortest
	var quietly logging.Sometimes
	for {
		worked, err := t.listenOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if worked {
			pause = shortest
		}
		t.met.lost.Inc()
		if quietly.Due("line", time.Now(), logging.Interval) {
			t.log.WarnContext(ctx, "tokens are read from the database on each request: the line that announces revocations was lost", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, longest)
	}
}

// listenOnce lives as long as one connection, and reports whether that ever gave the
// cache its trust.
func (t *Tokens) listenOnce(ctx context.Context) (worked bool, err error) {
	conn, err := db.Listen(ctx, t.url, "guildhall-auth", channel)
	if err != nil {
		return false, err
	}
	// This node does not know what was announced before this connection. From here on a row
	// read anew is either current or about to be announced.
	t.gens.all.Add(1)
	// Its knowledge begins with what it registers. The epoch of an earlier connection may
	// be one that a failover or a restored backup has never reached; with it the node would
	// say to know of changes yet to come.
	t.epoch.Store(0)
	l := &listener{t: t, conn: conn, sent: map[uint64]time.Time{}}
	done := make(chan struct{})
	var lost error
	go func() {
		defer close(done)
		lost = l.receive()
	}()
	err = l.sendHeartbeats(ctx, done)
	t.silent.Store(false)
	worked = l.invalidate()
	if ctx.Err() != nil {
		l.deregister(ctx)
	}
	conn.Close()
	<-done
	return worked, errors.Join(err, lost)
}

type listener struct {
	t    *Tokens
	conn *db.Listener

	mu   sync.Mutex // guards what follows
	seq  uint64
	sent map[uint64]time.Time // heartbeats that have not come back; nil at the end
}

// invalidate ends the use of the cache: no heartbeat that is still under way
// brings it back. It reports whether the cache was in use.
func (l *listener) invalidate() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = nil
	return l.t.lease.Swap(nil) != nil
}

// sendHeartbeats registers the node and sends its heartbeats until ctx ends or the
// connection is lost.
func (l *listener) sendHeartbeats(ctx context.Context, done <-chan struct{}) error {
	if err := l.exec(ctx, `
		WITH gone AS (
			DELETE FROM auth_nodes WHERE seen_at < now() - interval '1 minute'
		)
		INSERT INTO auth_nodes (id, epoch, seen_at, schema_version)
		SELECT `+db.Quote(l.t.node)+`, epoch, now(), `+programVersion()+` FROM auth_epoch
		ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch, seen_at = excluded.seen_at, schema_version = excluded.schema_version`); err != nil {
		return fault.Wrap(err, "register this node")
	}
	// A heartbeat that a crash of the database forgets does no harm.
	if err := l.exec(ctx, `SET synchronous_commit = off`); err != nil {
		return err
	}
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	begun := l.t.clock()
	for {
		if err := l.sendHeartbeat(ctx); err != nil {
			return fault.Wrap(err, "send a heartbeat")
		}
		l.warnIfSilent(ctx, begun)
		select {
		case <-ctx.Done():
			return nil
		case <-done:
			return nil
		case <-tick.C:
		case <-l.t.acks:
		}
	}
}

// warnIfSilent says, once, that heartbeats go out over a connection that stands and none
// comes back. Whatever ends that takes it back: a heartbeat that came back, or the
// end of the connection, which is told of as such.
func (l *listener) warnIfSilent(ctx context.Context, begun time.Time) {
	heard := begun
	if sent := l.t.lease.Load(); sent != nil {
		heard = *sent
	}
	if l.t.clock().Sub(heard) < notificationTimeout {
		l.t.silent.Store(false)
	} else if !l.t.silent.Swap(true) {
		l.t.log.WarnContext(ctx, "tokens are read from the database on each request: notifications do not come through, because a pooler stands between; GUILDHALL_LISTEN_URL has to name the direct way")
	}
}

// sendHeartbeat says that this node lives and up to which epoch it knows.
func (l *listener) sendHeartbeat(ctx context.Context) error {
	epoch := l.t.epoch.Load()
	seq := l.begin()
	return l.exec(ctx, fmt.Sprintf(`
		WITH seen AS (
			INSERT INTO auth_nodes AS n (id, epoch, seen_at, schema_version) VALUES (%s, %d, now(), %s)
			ON CONFLICT (id) DO UPDATE SET epoch = greatest(n.epoch, excluded.epoch), seen_at = excluded.seen_at
			RETURNING id
		)
		SELECT pg_notify('%s', 'beat ' || id || ' %d') FROM seen`, db.Quote(l.t.node), epoch, programVersion(), channel, seq))
}

// begin numbers a heartbeat and notes when it is sent. Those that have been on their way
// for too long are forgotten: behind a pooler none ever comes back.
func (l *listener) begin() (seq uint64) {
	now := l.t.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, sent := range l.sent {
		if now.Sub(sent) > notificationTimeout {
			delete(l.sent, i)
		}
	}
	l.seq++
	l.sent[l.seq] = now
	return l.seq
}

// programVersion is what this node's program knows of the schema: a migration
// that takes away what an older program needs waits for nodes that say less.
func programVersion() string { return strconv.FormatInt(db.SchemaVersion(), 10) }

// deregister takes this node out of the registry: it no longer uses its cache.
func (l *listener) deregister(ctx context.Context) {
	// That context has ended; this is the last thing done over the connection.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := l.conn.Exec(ctx, `DELETE FROM auth_nodes WHERE id = `+db.Quote(l.t.node)); err != nil {
		l.t.log.DebugContext(ctx, "this node stays registered until it has been silent for a while", "error", err)
	}
}

func (l *listener) exec(ctx context.Context, statement string) error {
	// Ended by its own limit only: a cancelled statement would cost the connection,
	// over which this node still has to deregister.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), heartbeatTimeout)
	defer cancel()
	return l.conn.Exec(ctx, statement)
}

// receive acts on notifications, in their order, until the connection ends.
func (l *listener) receive() error {
	nodes := map[string]time.Time{}
	for {
		n, err := l.conn.Next()
		if err != nil {
			return err
		}
		if words := strings.Fields(n.Payload); len(words) == 3 && words[0] == "beat" {
			l.onHeartbeat(nodes, words[1], words[2])
		} else {
			l.t.onChange(n.Payload)
		}
	}
}

func (l *listener) onHeartbeat(nodes map[string]time.Time, node, number string) {
	now := l.t.clock()
	nodes[node] = now
	for id, seen := range nodes {
		if now.Sub(seen) > nodeTimeout {
			delete(nodes, id)
		}
	}
	l.t.nodes.Store(int64(len(nodes)))
	if node != l.t.node {
		return
	}
	seq, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	sent, mine := l.sent[seq]
	for i := range l.sent {
		if i <= seq {
			delete(l.sent, i)
		}
	}
	if mine {
		l.t.lease.Store(&sent)
	}
}

// onChange forgets what the announcement names, and everything when it
// cannot be read.
func (t *Tokens) onChange(payload string) {
	number, name, _ := strings.Cut(payload, " ")
	var hash digest
	named := len(name) == hex.EncodedLen(len(hash)) // Decode panics at what is longer
	if named {
		_, err := hex.Decode(hash[:], []byte(name))
		named = err == nil
	}
	if named {
		t.gens.slot(hash).Add(1)
		t.forget(hash)
	} else {
		t.gens.all.Add(1)
	}
	// Only after the cache has forgotten may the node say that it knows.
	if epoch, err := strconv.ParseInt(number, 10, 64); err == nil && epoch > t.epoch.Load() {
		t.epoch.Store(epoch)
	}
	select {
	case t.acks <- struct{}{}:
	default: // one is on its way already, and will say this epoch too
	}
}
