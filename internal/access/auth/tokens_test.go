package auth

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
)

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	plain := s.token(t)
	limited := s.token(t, func(n *New) { n.AllowIP = []string{"198.51.100.0/24, 2001:db8::/32", "203.0.113.9"} })
	live := s.token(t, func(n *New) { n.Env = "live" })
	revoked := s.token(t)
	if err := Revoke(t.Context(), s.DB, guild, revoked.ID); err != nil {
		t.Fatal(err)
	}
	expired := s.token(t, func(n *New) { n.ExpiresIn = time.Hour })
	dbtest.Exec(t, s.DB, `UPDATE api_tokens SET expires_at = now() WHERE id = $1`, expired.ID)
	broken := s.token(t)
	dbtest.Exec(t, s.DB, `UPDATE api_tokens SET ip_allowlist = '{not an address}' WHERE id = $1`, broken.ID)

	at := netip.MustParseAddr
	alone, cached := s.tokens(t), s.tokens(t)
	run(t, cached)
	for name, n := range map[string]*Tokens{"alone": alone, "with a cache": cached} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 2 { // the second time from the cache, if the cache is in use
				wantCode(t, n, plain.Secret, "")
				wantCode(t, n, plain.Secret, "", netip.Addr{})
				wantCode(t, n, mint(tokenBrand, "test"), "invalid_token")
				wantCode(t, n, live.Secret, "invalid_token")
				wantCode(t, n, revoked.Secret, "invalid_token")
				wantCode(t, n, expired.Secret, "invalid_token")
				wantCode(t, n, strings.ToUpper(plain.Secret), "invalid_token")
				wantCode(t, n, plain.Secret+"\x00", "invalid_token")
				wantCode(t, n, limited.Secret, "", at("198.51.100.255"))
				wantCode(t, n, limited.Secret, "", at("::ffff:198.51.100.1"))
				wantCode(t, n, limited.Secret, "", at("203.0.113.9"))
				wantCode(t, n, limited.Secret, "", at("2001:db8:ffff::1"))
				wantCode(t, n, limited.Secret, "ip_not_allowed", at("198.51.101.0"))
				wantCode(t, n, limited.Secret, "ip_not_allowed", at("::ffff:203.0.113.8"))
				wantCode(t, n, limited.Secret, "ip_not_allowed", at("::c633:6401"))
				wantCode(t, n, limited.Secret, "ip_not_allowed", netip.Addr{})
				wantCode(t, n, broken.Secret, "ip_not_allowed")
			}
			for secret, want := range map[string]string{revoked.Secret: revoked.ID, expired.Secret: expired.ID, mint(tokenBrand, "test"): ""} {
				switch p, err := n.Authenticate(t.Context(), secret, anywhere); {
				case err == nil:
					t.Errorf("token %q is accepted", want)
				case want == "" && p != nil, want != "" && (p == nil || p.ID != want || p.GuildID != guild):
					t.Errorf("the token that is refused is %+v, want %q", p, want)
				}
			}
			p, err := n.Authenticate(t.Context(), plain.Secret, anywhere)
			if err != nil {
				t.Fatal(err)
			}
			if p.ID != plain.ID || p.Name != "a token" || p.GuildID != guild || p.Preview != plain.Preview ||
				!slices.Equal(p.Scopes, []string{"cases:read", "economy:write"}) || p.ExpiresAt != nil ||
				!p.CreatedAt.Equal(plain.CreatedAt) || time.Since(p.LastUsedAt).Abs() > time.Minute {
				t.Errorf("principal %+v of token %v", p, plain)
			}
		})
	}
}

func TestWhatIsNoTokenCostsNoLookup(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	n := s.tokens(t)
	for _, bad := range []string{
		"", "abc", mint(tokenBrand, "live"), mint(tokenBrand, "test")[1:], mint(tokenBrand, "test") + "a", strings.Repeat("a", 16<<10),
	} {
		wantCode(t, n, bad, "invalid_token")
	}
	if reads := testutil.Sample(t, n.met.reads); reads != 0 {
		t.Errorf("%v lookups", reads)
	}
}

func TestCache(t *testing.T) {
	t.Parallel()

	t.Run("reads a token once, however many ask at once", func(t *testing.T) {
		t.Parallel()
		s := newTokenDB(t)
		tok, n := s.token(t), s.tokens(t)
		run(t, n)
		before := testutil.Sample(t, n.met.reads)
		var wg sync.WaitGroup
		var failed atomic.Int64
		for range 64 {
			wg.Go(func() {
				for range 20 {
					if authCode(n, tok.Secret) != "" {
						failed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if failed.Load() > 0 {
			t.Fatalf("%d of 1280 refused", failed.Load())
		}
		// A late heartbeat on a busy machine causes some reads of its own.
		if reads := testutil.Sample(t, n.met.reads) - before; reads > 1 && testutil.Sample(t, n.met.hits) < 1000 {
			t.Errorf("%v lookups for one token", reads)
		}
	})

	t.Run("remembers what is no token, until it becomes one", func(t *testing.T) {
		t.Parallel()
		s := newTokenDB(t)
		n := s.tokens(t)
		run(t, n)
		secret := mint(tokenBrand, "test")
		for range 50 {
			wantCode(t, n, secret, "invalid_token")
		}
		if hits := testutil.Sample(t, n.met.hits); hits < 30 {
			t.Errorf("only %v of 50 were remembered", hits)
		}
		hash, _ := recognise(secret, "test")
		if e, ok := otterCache(t, n.refused).GetEntryQuietly(hash); ok && e.ExpiresAfter() > 5*time.Second {
			t.Errorf("it is remembered for %v more", e.ExpiresAfter())
		}
		dbtest.Exec(t, s.DB, `
			INSERT INTO api_tokens (id, guild_id, name, preview, hash, scopes)
			VALUES ('t', $1, 'n', 'p', $2, '{cases:read}')`, guild, hash[:])
		testutil.Eventually(t, "the new token works", func() bool { return authCode(n, secret) == "" })
	})

	t.Run("hears of every writer of the table", func(t *testing.T) {
		t.Parallel()
		s := newTokenDB(t)
		n := s.tokens(t)
		run(t, n)
		for _, change := range []struct{ statement, code string }{
			{`UPDATE api_tokens SET revoked_at = now() WHERE id = $1`, "invalid_token"},
			{`UPDATE api_tokens SET expires_at = now() WHERE id = $1`, "invalid_token"},
			{`UPDATE api_tokens SET ip_allowlist = '{198.51.100.7}' WHERE id = $1`, "ip_not_allowed"},
			{`UPDATE api_tokens SET hash = sha256(id::bytea) WHERE id = $1`, "invalid_token"},
			{`DELETE FROM api_tokens WHERE id = $1`, "invalid_token"},
			{`DELETE FROM guilds WHERE id = (SELECT guild_id FROM api_tokens WHERE id = $1)`, "invalid_token"},
		} {
			if strings.Contains(change.statement, "guilds") {
				if dbtest.Coordinator(t) { // with distributed tables, api_tokens has no foreign key to guilds
					continue
				}
				dbtest.AddGuilds(t, s.DB, "2")
			}
			tok := s.token(t, func(n *New) {
				if strings.Contains(change.statement, "guilds") {
					n.GuildID = "2"
				}
			})
			cachedBy(t, n, tok.Secret)
			dbtest.Exec(t, s.DB, change.statement, tok.ID)
			testutil.Eventually(t, change.statement, func() bool { return authCode(n, tok.Secret) == change.code })
		}
		tok := s.token(t)
		cachedBy(t, n, tok.Secret)
		dbtest.Exec(t, s.DB, `TRUNCATE api_tokens CASCADE`)
		testutil.Eventually(t, "TRUNCATE", func() bool { return authCode(n, tok.Secret) == "invalid_token" })
	})

	t.Run("is not disturbed by mere use", func(t *testing.T) {
		t.Parallel()
		s := newTokenDB(t)
		tok, n := s.token(t), s.tokens(t)
		run(t, n)
		epoch := dbtest.Value[int64](t, s.DB, `SELECT epoch FROM auth_epoch`)
		wantCode(t, n, tok.Secret, "")
		testutil.Eventually(t, "the use is written", func() bool {
			return dbtest.Value[int](t, s.DB, `SELECT count(*) FROM api_token_uses`) == 1
		})
		if now := dbtest.Value[int64](t, s.DB, `SELECT epoch FROM auth_epoch`); now != epoch {
			t.Errorf("the epoch went from %d to %d", epoch, now)
		}
	})
}

func TestLastUse(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newTokenDB(t)
	tok := s.token(t)
	nodes := []*Tokens{s.tokens(t), s.tokens(t), s.tokens(t)}
	use := func() {
		t.Helper()
		for _, n := range nodes {
			for range 10 {
				wantCode(t, n, tok.Secret, "")
			}
			n.flushLastUsed(ctx)
		}
	}
	written := func() time.Time {
		return dbtest.Value[time.Time](t, s.DB, `SELECT last_used_at FROM api_token_uses WHERE token_id = $1`, tok.ID)
	}
	use()
	first := written()
	use()
	if again := written(); !again.Equal(first) {
		t.Errorf("written at %v and at %v", first, again)
	}
	dbtest.Exec(t, s.DB, `UPDATE api_token_uses SET last_used_at = now() - interval '61 seconds'`)
	use()
	if again := written(); again.Before(first) {
		t.Errorf("a use after a minute was not written: %v", again)
	}
	p, err := nodes[0].Authenticate(ctx, tok.Secret, anywhere)
	if err != nil || time.Since(p.LastUsedAt) > time.Minute {
		t.Errorf("last used at %v, %v", p.LastUsedAt, err)
	}

	// A token that was deleted before its use is written does not keep the other uses from being
	// written.
	other := s.token(t)
	wantCode(t, nodes[0], other.Secret, "")
	nodes[0].lastUsed.add(tok.ID)
	dbtest.Exec(t, s.DB, `DELETE FROM api_tokens WHERE id = $1`, tok.ID)
	nodes[0].flushLastUsed(ctx)
	if n := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM api_token_uses`); n != 1 {
		t.Errorf("%d uses are written, want that of the token that is left", n)
	}
}

// Expiry is decided by the database's clock, whatever the node's clock shows or however it jumps.
// RELIABILITY.md, Tokens.
func TestExpiryWithWrongClocks(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	var jump atomic.Int64
	skewed := func(by time.Duration) func(*Config) {
		return func(c *Config) {
			c.Clock = func() time.Time { return time.Now().Add(by + time.Duration(jump.Load())) }
		}
	}
	nodes := []*Tokens{s.tokens(t, skewed(0)), s.tokens(t, skewed(5*time.Minute)), s.tokens(t, skewed(-5*time.Minute))}
	run(t, nodes...)
	tok := s.token(t, func(n *New) { n.ExpiresIn = 4 * time.Second })
	for i := 0; ; i++ {
		// The database's time before and after the check; the test allows one second on either
		// side.
		before := dbtest.Value[time.Time](t, s.DB, `SELECT clock_timestamp()`)
		codes := []string{authCode(nodes[0], tok.Secret), authCode(nodes[1], tok.Secret), authCode(nodes[2], tok.Secret)}
		after := dbtest.Value[time.Time](t, s.DB, `SELECT clock_timestamp()`)
		for node, code := range codes {
			if code == "" && before.After(tok.ExpiresAt.Add(time.Second)) {
				t.Fatalf("node %d accepts the token %v after its end", node, before.Sub(*tok.ExpiresAt))
			}
			if code != "" && after.Before(tok.ExpiresAt.Add(-time.Second)) {
				t.Fatalf("node %d says %s %v before the token's end", node, code, tok.ExpiresAt.Sub(after))
			}
		}
		if before.After(tok.ExpiresAt.Add(1200 * time.Millisecond)) {
			return
		}
		switch i {
		case 20:
			jump.Store(int64(-5 * time.Minute))
		case 40:
			jump.Store(int64(5 * time.Minute))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestNarrowLane(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	bad, good := netip.MustParseAddr("203.0.113.66"), anywhere
	lane := dbtest.NewLink(t, s.URL)
	n := s.tokens(t, func(c *Config) {
		c.DB = open(t, lane.URL)
		c.Exhausted = func(_ context.Context, from netip.Addr) bool { return from == bad }
	})
	tok := s.token(t)
	wantCode(t, n, tok.Secret, "", bad) // a valid token still works

	lane.Slow(150 * time.Millisecond)
	codes := make(chan string, 40)
	for range cap(codes) {
		go func() { codes <- authCode(n, mint(tokenBrand, "test"), bad) }()
	}
	wantCode(t, n, tok.Secret, "", good) // other addresses do not have to wait
	got := map[string]int{}
	for range cap(codes) {
		got[<-codes]++
	}
	if got["rate_limited"] < 20 || got["rate_limited"]+got["invalid_token"] != cap(codes) {
		t.Errorf("forty guesses at once from one address: %v", got)
	}
}
