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

	"guildhall/internal/db"
)

const (
	// channel carries the announcements of the token table and the heartbeats
	// of the nodes. Notifications arrive in the order in which their senders
	// committed, so a heartbeat that came back proves that everything announced
	// before it was sent has been heard.
	channel = "guildhall_tokens"
	// heartbeat is how often a node sends itself one.
	heartbeat = 500 * time.Millisecond
	// trust is how long, from the sending of a heartbeat that came back, the
	// cache may be used.
	trust = 1500 * time.Millisecond
	// barrier is how long a revocation waits for the nodes. It is longer than
	// trust: a node that has not heard of it by then asks the database.
	barrier = 2 * time.Second
	// silence is after how long an unheard node is no longer waited for. Its
	// trust has ended long before.
	silence = 10 * time.Second
	// deafAfter is after how long without a heartbeat that came back a line that
	// stands leads nowhere. A pooler takes LISTEN and forgets it.
	deafAfter = 5 * time.Second
	// beatLimit is how long a heartbeat may take before the line is given up.
	beatLimit = 3 * time.Second
)

// Run keeps the cache true until ctx ends, and then returns nil: it hears of
// every change to the token table over a line of its own, and writes when
// tokens were last used. It finds the database again by itself. Stop serving
// before Run ends.
func (t *Tokens) Run(ctx context.Context) error {
	var uses sync.WaitGroup
	uses.Go(func() { t.writeUses(ctx) })
	t.hearChanges(ctx)
	uses.Wait()
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

func (t *Tokens) hearChanges(ctx context.Context) {
	const shortest, longest = 50 * time.Millisecond, time.Second
	pause := shortest
	for {
		worked, err := t.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if worked {
			pause = shortest
		}
		t.met.lost.Inc()
		t.log.WarnContext(ctx, "tokens are read from the database on each request: the line that announces revocations was lost", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, longest)
	}
}

// session lives as long as one line, and reports whether that ever gave the
// cache its trust.
func (t *Tokens) session(ctx context.Context) (worked bool, err error) {
	line, err := db.Listen(ctx, t.url, "guildhall-auth", channel)
	if err != nil {
		return false, err
	}
	// What was announced before this line is unknown. From here on a row read
	// anew is either current or about to be announced.
	t.gens.all.Add(1)
	// What this node knows begins with what it registers. The epoch of an earlier
	// line may be one that a failover or a restored backup has never reached; with
	// it the node would say to know of changes yet to come.
	t.epoch.Store(0)
	s := &session{t: t, line: line, sent: map[uint64]time.Time{}}
	deaf := make(chan struct{})
	var lost error
	go func() {
		defer close(deaf)
		lost = s.hear()
	}()
	err = s.beatUntil(ctx, deaf)
	t.deaf.Store(false)
	worked = s.distrust()
	if ctx.Err() != nil {
		s.leave(ctx)
	}
	line.Close()
	<-deaf
	return worked, errors.Join(err, lost)
}

type session struct {
	t    *Tokens
	line *db.Line

	mu   sync.Mutex
	seq  uint64
	sent map[uint64]time.Time // heartbeats that have not come back; nil at the end
}

// distrust ends the use of the cache: no heartbeat that is still under way
// brings it back. It reports whether the cache was in use.
func (s *session) distrust() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = nil
	return s.t.lease.Swap(nil) != nil
}

// beatUntil registers the node and sends its heartbeats until ctx ends or the
// line is lost.
func (s *session) beatUntil(ctx context.Context, deaf <-chan struct{}) error {
	if err := s.exec(ctx, `
		WITH gone AS (
			DELETE FROM auth_nodes WHERE seen_at < now() - interval '1 minute'
		)
		INSERT INTO auth_nodes (id, epoch, seen_at, schema_version)
		SELECT `+db.Quote(s.t.node)+`, epoch, now(), `+programVersion()+` FROM auth_epoch
		ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch, seen_at = excluded.seen_at, schema_version = excluded.schema_version`); err != nil {
		return fmt.Errorf("register this node: %w", err)
	}
	// A heartbeat that a crash of the database forgets does no harm.
	if err := s.exec(ctx, `SET synchronous_commit = off`); err != nil {
		return err
	}
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	begun := s.t.clock()
	for {
		if err := s.beat(ctx); err != nil {
			return fmt.Errorf("send a heartbeat: %w", err)
		}
		s.noteDeafness(ctx, begun)
		select {
		case <-ctx.Done():
			return nil
		case <-deaf:
			return nil
		case <-tick.C:
		case <-s.t.acks:
		}
	}
}

// noteDeafness says, once, that heartbeats go out over a line that stands and none
// comes back. Whatever ends that takes it back: a heartbeat that is heard, or the
// end of the line, which is told of as such.
func (s *session) noteDeafness(ctx context.Context, begun time.Time) {
	heard := begun
	if sent := s.t.lease.Load(); sent != nil {
		heard = *sent
	}
	if s.t.clock().Sub(heard) < deafAfter {
		s.t.deaf.Store(false)
	} else if !s.t.deaf.Swap(true) {
		s.t.log.WarnContext(ctx, "tokens are read from the database on each request: notifications do not come through, because a pooler stands between; GUILDHALL_LISTEN_URL has to name the direct way")
	}
}

// beat says that this node lives and up to which epoch it has heard.
func (s *session) beat(ctx context.Context) error {
	epoch := s.t.epoch.Load()
	s.mu.Lock()
	s.seq++
	seq := s.seq
	s.sent[seq] = s.t.clock()
	s.mu.Unlock()
	return s.exec(ctx, fmt.Sprintf(`
		WITH seen AS (
			INSERT INTO auth_nodes AS n (id, epoch, seen_at, schema_version) VALUES (%s, %d, now(), %s)
			ON CONFLICT (id) DO UPDATE SET epoch = greatest(n.epoch, excluded.epoch), seen_at = excluded.seen_at
			RETURNING id
		)
		SELECT pg_notify('%s', 'beat ' || id || ' %d') FROM seen`, db.Quote(s.t.node), epoch, programVersion(), channel, seq))
}

// programVersion is what this node's program knows of the schema: a migration
// that takes away what an older program needs waits for nodes that say less.
func programVersion() string { return strconv.FormatInt(db.SchemaVersion(), 10) }

// leave takes this node out of the registry: it no longer uses its cache.
func (s *session) leave(ctx context.Context) {
	// That context has ended; this is the last thing done over the line.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := s.line.Exec(ctx, `DELETE FROM auth_nodes WHERE id = `+db.Quote(s.t.node)); err != nil {
		s.t.log.DebugContext(ctx, "this node stays registered until it has been silent for a while", "error", err)
	}
}

func (s *session) exec(ctx context.Context, statement string) error {
	// Ended by its own limit only: a cancelled statement would cost the line,
	// over which this node still has to leave.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), beatLimit)
	defer cancel()
	return s.line.Exec(ctx, statement)
}

// hear acts on notifications, in their order, until the line ends.
func (s *session) hear() error {
	nodes := map[string]time.Time{}
	for {
		n, err := s.line.Next()
		if err != nil {
			return err
		}
		if words := strings.Fields(n.Payload); len(words) == 3 && words[0] == "beat" {
			s.heardBeat(nodes, words[1], words[2])
		} else {
			s.t.heardChange(n.Payload)
		}
	}
}

func (s *session) heardBeat(nodes map[string]time.Time, node, number string) {
	now := s.t.clock()
	nodes[node] = now
	for id, seen := range nodes {
		if now.Sub(seen) > silence {
			delete(nodes, id)
		}
	}
	s.t.nodes.Store(int64(len(nodes)))
	if node != s.t.node {
		return
	}
	seq, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sent, mine := s.sent[seq]
	for i := range s.sent {
		if i <= seq {
			delete(s.sent, i)
		}
	}
	if mine {
		s.t.lease.Store(&sent)
	}
}

// heardChange forgets what the announcement names, and everything when it
// cannot be read.
func (t *Tokens) heardChange(payload string) {
	number, name, _ := strings.Cut(payload, " ")
	var hash digest
	if n, err := hex.Decode(hash[:], []byte(name)); len(name) == 2*len(hash) && err == nil && n == len(hash) {
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
