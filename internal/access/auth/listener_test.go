package auth

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
)

// offline returns Tokens with a fixed clock that must not read the database.
func offline(t *testing.T, at time.Time) *Tokens {
	t.Helper()
	n, err := NewTokens(Config{DB: &db.DB{}, URL: "none", Env: "test", NodeID: "here", Clock: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTrustLastsAsLongAsItSays(t *testing.T) {
	t.Parallel()
	now := time.Now()
	n := offline(t, now)
	if n.trusted(now) {
		t.Error("a node trusts its cache before a heartbeat has come back")
	}
	n.lease.Store(&now)
	for _, c := range []struct {
		after   time.Duration
		trusted bool
	}{
		{-1, false}, {0, true}, {time.Second, true}, {trust - 1, true}, {trust, false},
	} {
		if got := n.trusted(now.Add(c.after)); got != c.trusted {
			t.Errorf("%v after the heartbeat was sent: trusted %t", c.after, got)
		}
	}
	e := entry{readAt: now}
	if !e.datable(now.Add(tokenTTL)) || e.datable(now.Add(tokenTTL+1)) || e.datable(now.Add(-1)) {
		t.Errorf("the database's time can be told for %v after the row was read, no longer and not before", tokenTTL)
	}
}

// A row is found in the cache while the database's time can still be derived from it.
func TestARowIsFoundInMemoryForAMinute(t *testing.T) {
	t.Parallel()
	read := time.Now()
	n := offline(t, read)
	e := &entry{readAt: read}
	e.principal.Store(&Principal{})
	for _, after := range []time.Duration{0, tokenTTL, tokenTTL + 1} {
		n.remember(digest{1}, e)
		now := read.Add(after)
		n.lease.Store(&now)
		if found := n.recall(digest{1}, now) == e; found != (after <= tokenTTL) {
			t.Errorf("%v after it was read it is found: %t", after, found)
		}
	}
}

// A heartbeat that comes back also counts for those sent before it. A node counts as alive for
// nodeTimeout after its last heartbeat.
func TestHeartbeatsThatComeBack(t *testing.T) {
	t.Parallel()
	now := time.Now()
	n := offline(t, now)
	first, second, third := now.Add(-3*time.Second), now.Add(-2*time.Second), now.Add(-time.Second)
	l := &listener{t: n, seq: 3, sent: map[uint64]time.Time{1: first, 2: second, 3: third}}
	nodes := map[string]time.Time{"late": now.Add(-nodeTimeout), "gone": now.Add(-nodeTimeout - 1)}
	l.onHeartbeat(nodes, "here", "2")
	if lease := n.lease.Load(); lease == nil || !lease.Equal(second) {
		t.Errorf("the second came back: trust counts from %v, want %v", lease, second)
	}
	if _, waits := l.sent[3]; !waits || len(l.sent) != 1 {
		t.Errorf("still under way: %v, want the third", l.sent)
	}
	if n.Nodes() != 2 {
		t.Errorf("%d nodes live, want this one and the late one: %v", n.Nodes(), nodes)
	}
}

// An announcement with a token's hash drops that token from the cache; one without, or one that
// cannot be parsed, drops all.
func TestAnnouncementsSayWhatToForget(t *testing.T) {
	t.Parallel()
	n := offline(t, time.Now())
	named, other := digest{1}, digest{2}
	for _, c := range []struct {
		payload      string
		named, other uint64
	}{
		{"7 " + hex.EncodeToString(named[:]), 1, 0},
		{"8 " + hex.EncodeToString(named[:]) + "00", 1, 1},
		{"9", 1, 1},
		{"10 all", 1, 1},
	} {
		before, beside := n.gens.of(named), n.gens.of(other)
		n.onChange(c.payload)
		if n.gens.of(named) != before+c.named || n.gens.of(other) != beside+c.other {
			t.Errorf("%q: generations rise by %d and %d, want %d and %d", c.payload, n.gens.of(named)-before, n.gens.of(other)-beside,
				c.named, c.other)
		}
	}
	if got := n.epoch.Load(); got != 10 {
		t.Errorf("the node knows of epoch %d, want 10", got)
	}
}

// A notification whose payload cannot be parsed as a heartbeat or a revocation empties the whole
// token cache.
func TestWhatIsNoHeartbeatIsAnAnnouncement(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	n := s.tokens(t)
	run(t, n)
	for _, payload := range []string{"", "beat", "beat " + n.node, "7 of something"} {
		before := n.gens.all.Load()
		dbtest.Exec(t, s.DB, `SELECT pg_notify('`+channel+`', $1)`, payload)
		testutil.Eventually(t, fmt.Sprintf("%q is heard", payload), func() bool { return n.gens.all.Load() > before })
	}
}

// When the connection ends, the cache is no longer trusted, and listenOnce reports whether it was.
func TestTheEndOfALineEndsTrust(t *testing.T) {
	t.Parallel()
	now := time.Now()
	n := offline(t, now)
	l := &listener{t: n}
	if l.invalidate() {
		t.Error("a line over which no heartbeat came back says that it worked")
	}
	n.lease.Store(&now)
	if !l.invalidate() || n.trusted(now) {
		t.Error("a line that worked says that it did not, or leaves its trust behind")
	}
}

// A token's use is collected once per interval, and at most as many tokens as the cache holds.
func TestUsesAreNotedAndBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	n := offline(t, now)
	for _, c := range []struct {
		since time.Duration
		noted int
	}{{lastUsedInterval - 1, 0}, {lastUsedInterval, 1}} {
		e := &entry{readAt: now, now: now}
		e.principal.Store(&Principal{By: By{ID: "a"}, LastUsedAt: now.Add(-c.since)})
		if _, err := n.judge(e, anywhere, now); err != nil {
			t.Fatal(err)
		}
		if got := len(n.lastUsed.take()); got != c.noted {
			t.Errorf("used %v after it was last used: %d uses noted, want %d", c.since, got, c.noted)
		}
	}
	for i := range maxCached + 1 {
		n.lastUsed.add(fmt.Sprint(i))
	}
	if got := len(n.lastUsed.take()); got != maxCached {
		t.Errorf("%d uses are kept, want %d", got, maxCached)
	}
}

// A node whose database is down retries at growing intervals.
func TestReconnectingPauses(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	l := dbtest.NewLink(t, s.URL)
	l.Down()
	n := s.tokens(t, func(c *Config) { c.URL = l.URL })
	begun := time.Now()
	go n.listen(t.Context())
	testutil.Eventually(t, "five attempts", func() bool { return testutil.Sample(t, n.met.lost) >= 5 })
	if took := time.Since(begun); took < 750*time.Millisecond {
		t.Errorf("five attempts took %v, though the pauses between them are 50, 100, 200 and 400 ms", took)
	}
}

// The database time that is recorded with a row lies within the lookup that read the row.
func TestTokenReadAtPrecedesItsQuery(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	n := s.tokens(t)
	tok := s.token(t)
	hash, _ := recognise(tok.Secret, "test")
	begun := time.Now()
	e, err := n.lookups.find(t.Context(), hash)
	if err != nil {
		t.Fatal(err)
	}
	if ended := time.Now(); e.readAt.Before(begun) || e.readAt.After(ended) {
		t.Errorf("a row read between %v and %v is of %v", begun, ended, e.readAt)
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	dbtest.AddGuilds(t, s.DB, "2")
	tok := s.token(t, func(n *New) { n.Name = strings.Repeat("ä", 100) })
	if found, err := Find(t.Context(), s.DB, guild, tok.ID); err != nil || found.Name != tok.Name || found.Secret != "" {
		t.Errorf("found %+v, %v", found, err)
	}
	for _, c := range []struct{ guild, id string }{{"2", tok.ID}, {guild, "no-such-token"}} {
		if found, err := Find(t.Context(), s.DB, c.guild, c.id); err == nil || found.ID != "" {
			t.Errorf("in guild %s: found %+v, %v", c.guild, found, err)
		}
	}
}

// Uses that cannot be written are dropped. The log says so, unless the program is ending.
func TestUsesThatAreDroppedAreTold(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	l := dbtest.NewLink(t, s.URL)
	l.Down()
	n := s.tokens(t, func(c *Config) { c.DB = open(t, l.URL) })
	ended, end := context.WithCancel(t.Context())
	end()
	for _, told := range []bool{false, true} {
		ctx := ended
		if told {
			ctx = t.Context()
		}
		n.lastUsed.add("a")
		n.flushLastUsed(ctx)
		if got := strings.Contains(s.log.String(), "was not written"); got != told {
			t.Errorf("told: %v, want %v", got, told)
		}
	}
}

// The error for a token of the other environment differs from that for an unknown token.
func TestATokenOfTheOtherEnvironmentIsCalledOne(t *testing.T) {
	t.Parallel()
	for env, other := range map[string]string{"live": "test", "test": "live"} {
		n, err := NewTokens(Config{DB: &db.DB{}, URL: "none", Env: env})
		if err != nil {
			t.Fatal(err)
		}
		_, err = n.Authenticate(t.Context(), mint(tokenBrand, other), anywhere)
		if want := "This is a " + other + " token on a " + env + " server"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// NewTokens requires a database, its URL and an environment.
func TestTokensNeedADatabaseAndAnEnvironment(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{{URL: "none", Env: "test"}, {DB: &db.DB{}, Env: "test"}, {DB: &db.DB{}, URL: "none", Env: "prod"}} {
		if _, err := NewTokens(cfg); err == nil {
			t.Errorf("made of %+v", cfg)
		}
	}
}

// Behind a pooler heartbeats never come back. Even after weeks only a few are remembered.
func TestHeartbeatsThatDoNotComeBackAreForgotten(t *testing.T) {
	t.Parallel()
	now := time.Now()
	n := offline(t, now)
	n.clock = func() time.Time { return now }
	l := &listener{t: n, sent: map[uint64]time.Time{}}
	for range 1000 {
		l.begin()
		now = now.Add(heartbeatInterval)
	}
	if most := int(notificationTimeout/heartbeatInterval) + 1; len(l.sent) > most {
		t.Errorf("%d heartbeats are kept, want %d at most", len(l.sent), most)
	}
	late := now.Add(-notificationTimeout + heartbeatInterval)
	l.onHeartbeat(map[string]time.Time{}, "here", "992")
	if lease := n.lease.Load(); lease == nil || lease.Before(late) {
		t.Errorf("of one that comes late the lease is %v, want one from %v on", lease, late)
	}
}
