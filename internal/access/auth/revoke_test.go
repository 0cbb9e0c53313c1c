package auth

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/testutil"
)

func revokeNow(t testing.TB, s *tokenDB, id string) {
	t.Helper()
	if err := Revoke(context.Background(), s.DB, guild, id); err != nil {
		t.Errorf("Revoke: %v", err)
	}
}

// RELIABILITY.md, Tokens.
func TestRevoke(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	dbtest.AddGuilds(t, s.DB, "8")

	t.Run("knows no token that is not there", func(t *testing.T) {
		t.Parallel()
		for _, id := range []string{"", "nothing", "'", "\x00"} {
			if err := Revoke(t.Context(), s.DB, guild, id); err == nil {
				t.Errorf("Revoke(%q) succeeded", id)
			}
		}
	})
	t.Run("knows no token of another guild", func(t *testing.T) {
		t.Parallel()
		tok := s.token(t)
		if err := Revoke(t.Context(), s.DB, "1", tok.ID); !fault.Is(err, "not_found") {
			t.Errorf("got %v", err)
		}
		if n := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM api_tokens WHERE id = $1 AND revoked_at IS NULL`, tok.ID); n != 1 {
			t.Error("the token was revoked all the same")
		}
		if n := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM audit_log WHERE target_id = $1 AND action = 'token.revoked'`, tok.ID); n != 0 {
			t.Error("the audit log tells of a revocation that was refused")
		}
	})
	t.Run("is told by the audit log, once", func(t *testing.T) {
		t.Parallel()
		tok := s.token(t)
		revokeNow(t, s, tok.ID)
		revokeNow(t, s, tok.ID)
		rows, err := audit.List(t.Context(), s.DB.Reader(), guild, audit.Filter{Target: tok.ID}, 10)
		if err != nil || len(rows) != 2 || rows[0].Action != audit.TokenRevoked || rows[1].Action != audit.TokenCreated {
			t.Fatalf("%v, %+v", err, rows)
		}
		for _, r := range rows {
			if text := fmt.Sprintf("%+v", r); strings.Contains(text, tok.Secret[9:30]) {
				t.Errorf("the audit log holds the secret: %s", text)
			}
		}
	})
	t.Run("is told with the token's limits", func(t *testing.T) {
		t.Parallel()
		one := s.token(t, func(n *New) { n.GuildID = "8" })
		two := s.token(t, func(n *New) { n.GuildID = "8" })
		dbtest.Exec(t, s.DB, `UPDATE api_tokens SET rate_read = '5/s' WHERE guild_id = '8'`)
		if err := Revoke(t.Context(), s.DB, "8", one.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := RevokeAll(t.Context(), s.DB, "8"); err != nil {
			t.Fatal(err)
		}
		if n := dbtest.Value[int](t, s.DB, `
			SELECT count(*)
			FROM audit_log
			WHERE action = 'token.revoked' AND target_id IN ($1, $2)
			  AND before->>'rate_read' = '5/s' AND after->>'rate_read' = '5/s'`, one.ID, two.ID); n != 2 {
			t.Errorf("%d of 2 revocations say how the tokens were limited", n)
		}
	})
	t.Run("may be repeated, and keeps the first time", func(t *testing.T) {
		t.Parallel()
		tok := s.token(t)
		revokeNow(t, s, tok.ID)
		first := dbtest.Value[time.Time](t, s.DB, `SELECT revoked_at FROM api_tokens WHERE id = $1`, tok.ID)
		revokeNow(t, s, tok.ID)
		if again := dbtest.Value[time.Time](t, s.DB, `SELECT revoked_at FROM api_tokens WHERE id = $1`, tok.ID); !again.Equal(first) {
			t.Errorf("revoked at %v and at %v", first, again)
		}
		list, err := List(t.Context(), s.DB, guild)
		if i := slices.IndexFunc(list, func(l Token) bool { return l.ID == tok.ID }); err != nil || i < 0 || list[i].RevokedAt == nil ||
			list[i].Secret != "" {
			t.Errorf("listed %v, %v", list, err)
		}
	})
	t.Run("says when waiting was cut short", func(t *testing.T) {
		t.Parallel()
		s := newTokenDB(t)
		dbtest.Exec(t, s.DB, `INSERT INTO auth_nodes (id, epoch, seen_at) VALUES ('silent', 0, now())`)
		tok := s.token(t)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for dbtest.Value[int](t, s.DB, `SELECT count(*) FROM api_tokens WHERE revoked_at IS NOT NULL`) == 0 {
				time.Sleep(5 * time.Millisecond)
			}
			cancel()
		}()
		if err := Revoke(ctx, s.DB, guild, tok.ID); err == nil || !strings.Contains(err.Error(), "is revoked, but") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("waits for a node that has not heard", func(t *testing.T) {
		t.Parallel()
		s := newTokenDB(t)
		tok := s.token(t)
		dbtest.Exec(t, s.DB, `INSERT INTO auth_nodes (id, epoch, seen_at) VALUES ('silent', 0, now())`)
		start := time.Now()
		revokeNow(t, s, tok.ID)
		if took := time.Since(start); took < trust {
			t.Errorf("waited %v for a node that may trust its cache for %v", took, trust)
		}
	})
}

// Three nodes authenticate from their caches as fast as they can while one token after the other is
// revoked. No request that starts after a revocation has returned may be accepted on any node.
// RELIABILITY.md, Tokens.
func TestRevocationUnderLoad(t *testing.T) {
	t.Parallel()
	const revocations, lanes = 500, 4
	s := newTokenDB(t)
	nodes := []*Tokens{s.tokens(t), s.tokens(t), s.tokens(t)}
	run(t, nodes...)
	var stale, accepted atomic.Int64
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	for range lanes {
		wg.Go(func() {
			for range revocations / lanes {
				tok := s.token(t)
				var revoked atomic.Bool
				ctx, cancel := context.WithCancel(context.Background())
				var load sync.WaitGroup
				for _, n := range nodes {
					load.Go(func() {
						for ctx.Err() == nil {
							late := revoked.Load()
							if authCode(n, tok.Secret) == "" {
								accepted.Add(1)
								if late {
									stale.Add(1)
								}
							}
							time.Sleep(200 * time.Microsecond)
						}
					})
				}
				time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
				start := time.Now()
				revokeNow(t, s, tok.ID)
				d := time.Since(start)
				revoked.Store(true)
				for _, n := range nodes {
					if authCode(n, tok.Secret) != "invalid_token" {
						stale.Add(1)
					}
				}
				cancel()
				load.Wait()
				mu.Lock()
				took = append(took, d)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(took)
	hits := 0.0
	for _, n := range nodes {
		hits += testutil.Sample(t, n.met.hits)
	}
	t.Logf("%d revocations, median %v, p99 %v; %d requests accepted before, %.0f from memory",
		len(took), took[len(took)/2], took[len(took)*99/100], accepted.Load(), hits)
	if stale.Load() > 0 {
		t.Fatalf("%d requests were accepted after their token's revocation had returned", stale.Load())
	}
	if hits < revocations {
		t.Fatalf("only %.0f answers came from memory: this has shown nothing", hits)
	}
}

// A lookup has read the old row when the token is revoked and the node receives the announcement.
// The row may still serve the request that started the lookup, but no later request.
// RELIABILITY.md, Tokens.
func TestSlowReadDoesNotBringATokenBack(t *testing.T) {
	t.Parallel()
	const rounds = 100
	s := newTokenDB(t)
	slow := dbtest.NewLink(t, s.URL)
	n := s.tokens(t, func(c *Config) { c.DB = open(t, slow.URL) })
	run(t, n)
	warm := s.token(t)
	for range 8 { // opens connections and prepares statements
		wantCode(t, n, warm.Secret, "")
		n.gens.all.Add(1)
	}
	slow.Slow(20 * time.Millisecond)
	var wg sync.WaitGroup
	var late atomic.Int64
	for range 4 {
		wg.Go(func() {
			for range rounds / 4 {
				tok := s.token(t)
				var asking sync.WaitGroup
				for range 3 {
					asking.Go(func() {
						time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
						authCode(n, tok.Secret)
					})
				}
				time.Sleep(time.Duration(5+rand.IntN(10)) * time.Millisecond)
				revokeNow(t, s, tok.ID)
				// This request must not join the running lookup.
				if authCode(n, tok.Secret) == "" {
					late.Add(1)
				}
				asking.Wait()
				if authCode(n, tok.Secret) == "" {
					late.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if late.Load() > 0 {
		t.Fatalf("%d of %d stale answers were believed", late.Load(), rounds)
	}
}

// RevokeAll revokes all tokens of a guild on every node, with one change of the epoch and a row in
// the audit log for each token. Tokens of another guild stay active.
func TestRevokeAll(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	dbtest.AddGuilds(t, s.DB, "2")
	a, b := s.tokens(t), s.tokens(t)
	run(t, a, b)
	var mine []Token
	for range 20 {
		mine = append(mine, s.token(t))
	}
	other := s.token(t, func(n *New) { n.GuildID = "2" })
	revokeNow(t, s, mine[0].ID)
	for _, tok := range append(mine[1:], other) { // fills the caches
		for _, node := range []*Tokens{a, b} {
			if code := authCode(node, tok.Secret); code != "" {
				t.Fatalf("a fresh token is %s", code)
			}
		}
	}
	before := dbtest.Value[int64](t, s.DB, `SELECT epoch FROM auth_epoch`)

	n, err := RevokeAll(t.Context(), s.DB, guild)
	if err != nil || n != 19 {
		t.Fatalf("revoked %d: %v", n, err)
	}
	for i, tok := range mine {
		for _, node := range []*Tokens{a, b} {
			if code := authCode(node, tok.Secret); code != "invalid_token" {
				t.Errorf("token %d is answered with %q", i, code)
			}
		}
	}
	if code := authCode(a, other.Secret); code != "" {
		t.Errorf("another guild's token is %s", code)
	}
	if after := dbtest.Value[int64](t, s.DB, `SELECT epoch FROM auth_epoch`); after != before+1 {
		t.Errorf("the epoch went from %d to %d", before, after)
	}
	if n := dbtest.Value[int](t, s.DB, `
		SELECT count(*)
		FROM audit_log
		WHERE action = 'token.revoked' AND guild_id = $1 AND after->>'revoked_at' IS NOT NULL
		AND before->>'revoked_at' IS NULL`, guild); n != 20 {
		t.Errorf("%d lines in the audit log", n)
	}

	// A second call finds nothing to do and announces nothing.
	if n, err := RevokeAll(t.Context(), s.DB, guild); err != nil || n != 0 {
		t.Errorf("once more: %d, %v", n, err)
	}
	if after := dbtest.Value[int64](t, s.DB, `SELECT epoch FROM auth_epoch`); after != before+1 {
		t.Errorf("nothing was changed, and the epoch is %d", after)
	}
	if _, err := RevokeAll(t.Context(), s.DB, "404"); !fault.Is(err, "not_found") {
		t.Errorf("of a guild that is none: %v", err)
	}
	if n, err := RevokeAll(t.Context(), s.DB, ""); err != nil || n != 1 {
		t.Errorf("of every guild: %d, %v", n, err)
	}
	if code := authCode(b, other.Secret); code != "invalid_token" {
		t.Errorf("afterwards the other guild's token is %q", code)
	}
}

// Every write of the token table is announced, whichever program makes it: a change of one token by
// the token's hash; a change of several tokens, or of a hash, as a change of everything. A row that
// is written unchanged is not announced.
func TestAnnouncements(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	tokens := []Token{s.token(t), s.token(t)}
	node := s.tokens(t)
	run(t, node)
	for _, tt := range []struct {
		statement string
		steps     int64
	}{
		{`UPDATE api_tokens SET name = 'x'`, 1},
		{`UPDATE api_tokens SET name = 'x'`, 0},
		{`UPDATE api_tokens SET name = 'y' WHERE false`, 0},
		{`UPDATE api_tokens SET hash = sha256(hash) WHERE id = $1`, 1},
		{`UPDATE api_tokens SET expires_at = now() WHERE id = $1`, 1},
	} {
		for _, tok := range tokens {
			authCode(node, tok.Secret)
		}
		before := dbtest.Value[int64](t, s.DB, `SELECT epoch FROM auth_epoch`)
		if strings.Contains(tt.statement, "$1") {
			dbtest.Exec(t, s.DB, tt.statement, tokens[0].ID)
		} else {
			dbtest.Exec(t, s.DB, tt.statement)
		}
		after := dbtest.Value[int64](t, s.DB, `SELECT epoch FROM auth_epoch`)
		if after != before+tt.steps {
			t.Errorf("%s: the epoch went from %d to %d", tt.statement, before, after)
		}
		testutil.Eventually(t, "the node knows the epoch", func() bool { return node.epoch.Load() == after || tt.steps == 0 })
	}
}

// A connection that is open but delivers nothing, as through a pooler, is logged once and shown by
// a metric.
func TestAListenerThatHearsNothingIsTold(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	node := s.tokens(t)
	conn, err := db.Listen(t.Context(), s.URL, "guildhall-test", "another_channel")
	if err != nil {
		t.Fatal(err)
	}
	here := &listener{t: node, conn: conn, sent: map[uint64]time.Time{}}
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		_ = here.receive() // returns when the connection ends
	}()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- here.sendHeartbeats(ctx, lost) }()
	testutil.Eventually(t, "the node says so", func() bool { return node.silent.Load() })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	conn.Close()
	<-lost
	if n := strings.Count(s.log.String(), "GUILDHALL_LISTEN_URL"); n != 1 {
		t.Errorf("said %d times: %s", n, s.log.String())
	}

	run(t, node) // with a connection that delivers notifications
	testutil.Eventually(t, "the node hears again", func() bool { return !node.silent.Load() })
}

// RevokeAll reads the guilds in batches and reaches the last one.
func TestRevokeAllReachesEveryGuild(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	const guilds = 201
	dbtest.Exec(t, s.DB, `INSERT INTO guilds (id, name, owner_id) SELECT 'g' || i, 'a guild', '1' FROM generate_series(1, $1::int) i`, guilds)
	dbtest.Exec(t, s.DB, `
		INSERT INTO api_tokens (id, guild_id, name, preview, hash, scopes)
		SELECT 't' || i, 'g' || i, 'n', 'p', sha256(i::text::bytea), '{cases:read}' FROM generate_series(1, $1::int) i`, guilds)
	if n, err := RevokeAll(t.Context(), s.DB, ""); err != nil || n != guilds {
		t.Errorf("%d tokens of %d guilds were revoked, %v", n, guilds, err)
	}
}
