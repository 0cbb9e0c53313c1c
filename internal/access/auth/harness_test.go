package auth

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/testutil"
)

const guild = "197038439483310086"

var anywhere = netip.MustParseAddr("192.0.2.1")

// tokenDB is a database with one guild, and the log of the nodes that use it.
type tokenDB struct {
	*dbtest.Database
	log testutil.Log
}

func newTokenDB(t testing.TB) *tokenDB {
	t.Helper()
	s := &tokenDB{Database: dbtest.New(t)}
	dbtest.AddGuilds(t, s.DB, guild)
	return s
}

func (s *tokenDB) token(t testing.TB, change ...func(*New)) Token {
	t.Helper()
	n := New{GuildID: guild, Env: "test", Name: "a token", Scopes: []string{"cases:read", "economy:write"}}
	for _, c := range change {
		c(&n)
	}
	tok, err := Create(context.Background(), s.DB, n)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// tokens returns Tokens that are not running yet.
func (s *tokenDB) tokens(t testing.TB, change ...func(*Config)) *Tokens {
	t.Helper()
	cfg := Config{
		DB: s.DB, URL: s.URL, Env: "test", Metrics: prometheus.NewRegistry(),
		Log: slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, c := range change {
		c(&cfg)
	}
	tokens, err := NewTokens(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// run runs the nodes until the test ends or calls stop. It returns when the nodes trust their
// caches.
func run(t testing.TB, nodes ...*Tokens) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() {
			if err := n.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	for _, n := range nodes {
		testutil.Eventually(t, "the node trusts its cache", func() bool { return n.trusted(n.clock()) })
	}
	return stop
}

// authCode authenticates and returns the error's code, or "" for a success.
func authCode(n *Tokens, secret string, from ...netip.Addr) string {
	ip := anywhere
	if len(from) > 0 {
		ip = from[0]
	}
	p, err := n.Authenticate(context.Background(), secret, ip)
	if f, ok := fault.As(err); ok {
		return f.Code
	}
	if err != nil || p == nil {
		return "no fault"
	}
	return ""
}

func wantCode(t testing.TB, n *Tokens, secret, code string, from ...netip.Addr) {
	t.Helper()
	if got := authCode(n, secret, from...); got != code {
		t.Fatalf("got %q, want %q", got, code)
	}
}

// cachedBy calls the nodes with the token until they answer from their caches.
func cachedBy(t testing.TB, n *Tokens, secret string) {
	t.Helper()
	before := testutil.Sample(t, n.met.hits)
	testutil.Eventually(t, "the token is found in memory", func() bool {
		wantCode(t, n, secret, "")
		return testutil.Sample(t, n.met.hits) > before
	})
}

// open opens a DB of its own for url, which may lead through a Link.
func open(t testing.TB, url string) *db.DB {
	t.Helper()
	d, err := db.Open(db.Config{URL: url, Name: "guildhall-test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}
