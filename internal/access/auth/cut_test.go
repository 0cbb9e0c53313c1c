package auth

import (
	"context"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/testutil"
)

// The listener's connection breaks again and again, each time with a revocation just before or
// after. RELIABILITY.md, Tokens.
func TestLineBreaks(t *testing.T) {
	t.Parallel()
	const cuts = 50
	s := newTokenDB(t)
	l := dbtest.NewLink(t, s.URL)
	n := s.tokens(t, func(c *Config) { c.URL = l.URL })
	run(t, n)
	kept := s.token(t)
	for i := range cuts {
		tok := s.token(t)
		cachedBy(t, n, tok.Secret)
		cachedBy(t, n, kept.Secret)
		generation := n.gens.all.Load()
		reads := testutil.Sample(t, n.met.reads)
		if i%2 == 0 {
			l.Cut()
			revokeNow(t, s, tok.ID)
		} else {
			done := make(chan struct{})
			go func() { defer close(done); revokeNow(t, s, tok.ID) }()
			l.Cut()
			<-done
		}
		wantCode(t, n, tok.Secret, "invalid_token")
		testutil.Eventually(t, "the line is back", func() bool { return n.gens.all.Load() > generation && n.trusted(n.clock()) })
		wantCode(t, n, tok.Secret, "invalid_token")
		wantCode(t, n, kept.Secret, "")
		if testutil.Sample(t, n.met.reads) == reads {
			t.Fatalf("cut %d: the cache was not emptied", i)
		}
	}
	if lost := testutil.Sample(t, n.met.lost); lost < cuts {
		t.Fatalf("%v of %d cuts were noticed", lost, cuts)
	}
}

// RELIABILITY.md, Operation.
func TestRunDeregisters(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	a, b := s.tokens(t), s.tokens(t, func(c *Config) { c.NodeID = "o'brien" })
	stopA := run(t, a)
	run(t, b)
	tok := s.token(t)
	cachedBy(t, a, tok.Secret)
	cachedBy(t, b, tok.Secret)
	if n := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM auth_nodes`); n != 2 {
		t.Fatalf("%d nodes are registered, want 2", n)
	}
	stopA()
	if n := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM auth_nodes WHERE id = 'o''brien'`); n != 1 {
		t.Fatalf("the node that runs on is not registered")
	}
	if n := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM auth_nodes`); n != 1 {
		t.Fatalf("%d nodes are registered, want 1", n)
	}
	if n := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM api_token_uses`); n != 1 {
		t.Error("the last use was not written at the end")
	}
	// The node still authenticates, but reads the database each time.
	wantCode(t, a, tok.Secret, "")
	revokeNow(t, s, tok.ID)
	wantCode(t, a, tok.Secret, "invalid_token")
	wantCode(t, b, tok.Secret, "invalid_token")
}

// RELIABILITY.md, Tokens.
func TestRunWithoutADatabase(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	l := dbtest.NewLink(t, s.URL)
	l.Down()
	tok := s.token(t)
	n := s.tokens(t, func(c *Config) { c.URL, c.DB = l.URL, open(t, l.URL) })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	_, err := n.Authenticate(t.Context(), tok.Secret, anywhere)
	if f, ok := fault.As(err); !ok || f.Code != "service_unavailable" || f.RetryAfter != 5*time.Second {
		t.Errorf("without a database: %v", err)
	}
	wantCode(t, n, "svc_test_no", "invalid_token")
	testutil.Eventually(t, "the node has tried again", func() bool { return testutil.Sample(t, n.met.lost) >= 4 })
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if text := s.log.String(); strings.Count(text, "line that announces revocations was lost") != 1 || strings.Contains(text, tok.Secret) {
		t.Errorf("logged: %s", text)
	}
}

// A failover or a restored backup sets the epoch back. A node that kept the higher epoch would
// acknowledge revocations that it has not received yet. RELIABILITY.md, Tokens.
func TestRevocationAfterTheEpochWasSetBack(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	l := dbtest.NewLink(t, s.URL)
	n := s.tokens(t, func(c *Config) { c.URL = l.URL })
	run(t, n)
	for range 15 {
		s.token(t)
	}
	high := dbtest.Value[int64](t, s.DB, `SELECT epoch FROM auth_epoch`)
	testutil.Eventually(t, "the node has heard of all changes", func() bool { return n.epoch.Load() == high })
	tok := s.token(t)
	dbtest.Exec(t, s.DB, `UPDATE auth_epoch SET epoch = epoch - 15`)
	dbtest.Exec(t, s.DB, `UPDATE auth_nodes SET epoch = 0`)
	before := n.gens.all.Load()
	l.Cut()
	testutil.Eventually(t, "the line is back", func() bool { return n.gens.all.Load() > before && n.trusted(n.clock()) })
	cachedBy(t, n, tok.Secret)
	// Wait until further heartbeats have written the node's epoch.
	seen := dbtest.Value[time.Time](t, s.DB, `SELECT max(seen_at) FROM auth_nodes`)
	testutil.Eventually(t, "another heartbeat", func() bool {
		return dbtest.Value[time.Time](t, s.DB, `SELECT max(seen_at) FROM auth_nodes`).After(seen)
	})
	cachedBy(t, n, tok.Secret)
	l.Freeze()
	defer l.Thaw()
	revokeNow(t, s, tok.ID)
	wantCode(t, n, tok.Secret, "invalid_token")
}

// Postgres executes a heartbeat of a connection that was cut after the node has registered over a
// new one. The node's epoch is that of the new connection.
func TestALateHeartbeatAcknowledgesNothing(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	n := s.tokens(t, func(c *Config) { c.NodeID = "here" })
	run(t, n)
	testutil.Eventually(t, "the node is registered", func() bool { return n.trusted(n.clock()) })
	before := s.tokens(t, func(c *Config) { c.NodeID = "here" })
	before.epoch.Store(99)
	conn, err := db.Listen(t.Context(), s.URL, "guildhall-auth", channel)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	late := &listener{t: before, conn: conn, sent: map[uint64]time.Time{}}
	for _, send := range []func(context.Context) error{late.sendHeartbeat, late.register} {
		if err := send(t.Context()); err != nil {
			t.Fatal(err)
		}
		if at := dbtest.Value[string](t, s.DB, `SELECT concat_ws(' ', connection, epoch) FROM auth_nodes WHERE id = 'here'`); at != "1 0" {
			t.Errorf("connection and epoch of the node are %s, want 1 0", at)
		}
	}
}
