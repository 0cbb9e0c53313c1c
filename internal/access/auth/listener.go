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
	// channel carries announcements of changed tokens and the nodes' heartbeats. Notifications
	// arrive in the order in which their transactions committed. So a heartbeat that has come back
	// to its sender proves that the node has received every announcement that was committed before
	// the heartbeat was sent.
	channel = "guildhall_tokens"
	// heartbeatInterval is how often a node sends a heartbeat to itself.
	heartbeatInterval = 500 * time.Millisecond
	// trust is how long the cache may be used, counted from the sending of the newest heartbeat
	// that has come back.
	trust = 1500 * time.Millisecond
	// revocationTimeout is how long a revocation waits for the nodes. It is longer than trust: a
	// node that has not received the announcement by then reads the database.
	revocationTimeout = 2 * time.Second
	// nodeTimeout is the silence after which revocations no longer wait for a node. The node has
	// stopped trusting its cache long before.
	nodeTimeout = 10 * time.Second
	// notificationTimeout is how long no heartbeat may come back before the connection counts as
	// silent, although it is open: a pooler accepts LISTEN and forgets it.
	notificationTimeout = 5 * time.Second
	// heartbeatTimeout is how long sending a heartbeat may take before the connection is closed.
	heartbeatTimeout = 3 * time.Second
)

// Run keeps the cache current until ctx ends, then returns nil. It receives an announcement for
// every change of the token table over its own connection, which it reopens when it breaks, and
// writes when tokens were last used. Stop serving requests before Run ends.
func (t *Tokens) Run(ctx context.Context) error {
	var writer sync.WaitGroup
	writer.Go(func() { t.writeLastUsed(ctx) })
	t.listen(ctx)
	writer.Wait()
	return nil
}

// Nodes returns the number of nodes, this one included, whose heartbeats were received in the last
// ten seconds.
func (t *Tokens) Nodes() int { return int(max(1, t.nodes.Load())) }

// trusted reports whether the cache may be used at the time now.
func (t *Tokens) trusted(now time.Time) bool {
	sent := t.lease.Load()
	if sent == nil {
		return false
	}
	age, believable := passed(*sent, now)
	return believable && age < trust
}

// passed returns the time between two readings of the clock. It is believable when the monotonic
// clock, which stops while a machine is suspended, and the wall clock, which can be set, agree.
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

// listenOnce uses one connection until it breaks. It reports whether the cache was ever trusted
// meanwhile.
func (t *Tokens) listenOnce(ctx context.Context) (worked bool, err error) {
	conn, err := db.Listen(ctx, t.url, "guildhall-auth", channel)
	if err != nil {
		return false, err
	}
	// Announcements from before this connection may have been missed, so everything cached is
	// dropped. A row that is read from now on is current, or its change will be announced.
	t.gens.all.Add(1)
	// The node's epoch starts with the one that it registers. After a failover or a restored backup
	// the database's epoch may be lower than that of an earlier connection; with the old one, the
	// node would acknowledge changes that have not happened yet.
	t.epoch.Store(0)
	t.connections++
	l := &listener{t: t, conn: conn, number: t.connections, sent: map[uint64]time.Time{}}
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
	t      *Tokens
	conn   *db.Listener
	number int64 // counts the node's connections

	mu   sync.Mutex // guards the field below
	seq  uint64
	sent map[uint64]time.Time // heartbeats that have not come back, by number; nil once the connection has ended
}

// invalidate ends the use of the cache; a heartbeat that is still under way cannot bring it back.
// It reports whether the cache was in use.
func (l *listener) invalidate() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = nil
	return l.t.lease.Swap(nil) != nil
}

// sendHeartbeats registers the node and sends heartbeats until ctx ends or the connection breaks.
func (l *listener) sendHeartbeats(ctx context.Context, done <-chan struct{}) error {
	if err := l.register(ctx); err != nil {
		return fault.Wrap(err, "register this node")
	}
	// A heartbeat that is lost in a crash of the database does no harm.
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

// register writes the node's connection with the database's epoch, unless the node has opened a
// newer connection, and deletes nodes that have been silent for a minute.
func (l *listener) register(ctx context.Context) error {
	return l.exec(ctx, `
		WITH gone AS (
			DELETE FROM auth_nodes WHERE seen_at < now() - interval '1 minute'
		)
		INSERT INTO auth_nodes AS n (id, connection, epoch, seen_at, schema_version)
		SELECT `+db.Quote(l.t.node)+`, `+strconv.FormatInt(l.number, 10)+`, epoch, now(), `+programVersion()+` FROM auth_epoch
		ON CONFLICT (id) DO UPDATE
		SET connection = excluded.connection, epoch = excluded.epoch, seen_at = excluded.seen_at, schema_version = excluded.schema_version
		WHERE n.connection <= excluded.connection`)
}

// warnIfSilent logs once that heartbeats are sent over an open connection and none comes back. The
// warning ends when a heartbeat comes back, or when the connection ends, which is logged
// separately.
func (l *listener) warnIfSilent(ctx context.Context, begun time.Time) {
	heard := begun
	if sent := l.t.lease.Load(); sent != nil {
		heard = *sent
	}
	if l.t.clock().Sub(heard) < notificationTimeout {
		l.t.silent.Store(false)
	} else if !l.t.silent.Swap(true) {
		l.t.log.WarnContext(ctx, "tokens are read from the database on each request: notifications do not come through, because a pooler stands between; GUILDHALL_LISTEN_URL has to name a direct connection")
	}
}

// sendHeartbeat writes that this node is alive and which epoch it has reached, and notifies the
// channel. Postgres may execute a heartbeat of an earlier connection after the node has registered
// again. Such a heartbeat does not change the epoch: after a restored backup its epoch may be higher
// than the database's, and would acknowledge revocations that have not happened yet.
func (l *listener) sendHeartbeat(ctx context.Context) error {
	epoch := l.t.epoch.Load()
	seq := l.begin()
	return l.exec(ctx, fmt.Sprintf(`
		WITH seen AS (
			INSERT INTO auth_nodes AS n (id, connection, epoch, seen_at, schema_version) VALUES (%s, %d, %d, now(), %s)
			ON CONFLICT (id) DO UPDATE
			SET epoch = CASE WHEN n.connection <= excluded.connection THEN greatest(n.epoch, excluded.epoch) ELSE n.epoch END,
			    seen_at = excluded.seen_at
			RETURNING id
		)
		SELECT pg_notify('%s', 'beat ' || id || ' %d') FROM seen`, db.Quote(l.t.node), l.number, epoch, programVersion(), channel, seq))
}

// begin numbers a heartbeat and records when it is sent. Old heartbeats are forgotten, since behind
// a pooler none ever comes back.
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

// programVersion is the newest schema version that this program knows. A contracting migration
// waits while a node with a lower version runs.
func programVersion() string { return strconv.FormatInt(db.SchemaVersion(), 10) }

// deregister deletes this node from auth_nodes. The node no longer uses its cache.
func (l *listener) deregister(ctx context.Context) {
	// ctx has ended, but this last statement must still run.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := l.conn.Exec(ctx, `DELETE FROM auth_nodes WHERE id = `+db.Quote(l.t.node)); err != nil {
		l.t.log.DebugContext(ctx, "this node stays registered until it has been silent for a while", "error", err)
	}
}

func (l *listener) exec(ctx context.Context, statement string) error {
	// The statement has a timeout of its own: cancelling it would close the connection, over which
	// the node still has to deregister.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), heartbeatTimeout)
	defer cancel()
	return l.conn.Exec(ctx, statement)
}

// receive handles notifications in their order until the connection ends.
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

// onChange drops the cached token that the announcement names, or everything if the announcement
// names none or cannot be parsed.
func (t *Tokens) onChange(payload string) {
	number, name, _ := strings.Cut(payload, " ")
	var hash digest
	named := len(name) == hex.EncodedLen(len(hash)) // hex.Decode panics for a longer text
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
	// The node may acknowledge the epoch only after the cache has dropped the entries.
	if epoch, err := strconv.ParseInt(number, 10, 64); err == nil && epoch > t.epoch.Load() {
		t.epoch.Store(epoch)
	}
	select {
	case t.acks <- struct{}{}:
	default: // an earlier signal is still pending and will report this epoch too
	}
}
