//go:build slow

package auth

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
)

// One node gets no more notifications but still reaches its database; another loses both. Neither
// sees its connection break. Once a revocation has returned, both answer with a refusal or
// service_unavailable, and never accept the token. RELIABILITY.md, Tokens.
func TestRevocationWithLostLinks(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	silentLink, lostLink := dbtest.NewLink(t, s.URL), dbtest.NewLink(t, s.URL)
	healthy := s.tokens(t)
	cut := s.tokens(t, func(c *Config) { c.URL = silentLink.URL })
	lost := s.tokens(t, func(c *Config) { c.URL, c.DB = lostLink.URL, open(t, lostLink.URL) })
	nodes := []*Tokens{healthy, cut, lost}
	run(t, nodes...)
	testutil.Eventually(t, "the nodes know of each other",
		func() bool { return healthy.Nodes() == 3 && cut.Nodes() == 3 && lost.Nodes() == 3 })
	tok, kept := s.token(t), s.token(t)
	for _, n := range nodes {
		cachedBy(t, n, tok.Secret)
		cachedBy(t, n, kept.Secret)
	}
	silentLink.Freeze()
	lostLink.Freeze()

	// Requests with the token are sent all the time.
	var revoked atomic.Bool
	var stale atomic.Int64
	ctx, stop := context.WithCancel(context.Background())
	var load sync.WaitGroup
	for _, n := range nodes {
		load.Go(func() {
			for ctx.Err() == nil {
				late := revoked.Load()
				if authCode(n, tok.Secret) == "" && late {
					stale.Add(1)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	start := time.Now()
	revokeNow(t, s, tok.ID)
	took := time.Since(start)
	revoked.Store(true)
	wantCode(t, healthy, tok.Secret, "invalid_token")
	wantCode(t, cut, tok.Secret, "invalid_token")
	wantCode(t, lost, tok.Secret, "service_unavailable")
	wantCode(t, healthy, kept.Secret, "")
	wantCode(t, cut, kept.Secret, "")
	stop()
	load.Wait()
	t.Logf("the revocation took %v", took)
	if stale.Load() > 0 {
		t.Fatalf("%d stale answers", stale.Load())
	}
	if took > 2*revocationTimeout {
		t.Fatalf("the revocation took %v", took)
	}

	silentLink.Thaw()
	lostLink.Thaw()
	for _, n := range nodes {
		testutil.Eventually(t, "the node trusts its cache again", func() bool { return n.trusted(n.clock()) })
		testutil.Eventually(t, "the other token works", func() bool { return authCode(n, kept.Secret) == "" })
		wantCode(t, n, tok.Secret, "invalid_token")
	}
}

// A revocation does not wait for a node that has not been seen for eleven seconds.
func TestARevocationWaitsForNoNodeThatIsGone(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	tok := s.token(t)
	dbtest.Exec(t, s.DB, `INSERT INTO auth_nodes (id, epoch, seen_at) VALUES ('gone', 0, now() - interval '11 seconds')`)
	start := time.Now()
	revokeNow(t, s, tok.ID)
	if took := time.Since(start); took > revocationTimeout {
		t.Errorf("waited %v for a node that is gone", took)
	}
}
