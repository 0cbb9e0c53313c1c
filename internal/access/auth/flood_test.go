package auth

import (
	"crypto/rand"
	"encoding/base64"
	"testing"

	"github.com/maypok86/otter/v2"
)

// Guessed tokens must not use up the cache's memory or evict known tokens. RELIABILITY.md, Tokens.
func TestGuessesTakeLittleOfTheCache(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	n := s.tokens(t)
	run(t, n)
	known := s.token(t)
	cachedBy(t, n, known.Secret)
	var guess [32]byte
	for range 20 {
		rand.Read(guess[:])
		wantCode(t, n, "svc_test_"+base64.RawURLEncoding.EncodeToString(guess[:]), "invalid_token")
	}
	rows, refused := otterCache(t, n.cache), otterCache(t, n.refused)
	if rows.EstimatedSize() != 1 || refused.EstimatedSize() != 20 {
		t.Errorf("%d rows and %d refusals are remembered, want 1 and 20", rows.EstimatedSize(), refused.EstimatedSize())
	}
	if refused.GetMaximum() > 5_000 {
		t.Errorf("up to %d refusals are remembered", refused.GetMaximum())
	}
}

// otterCache returns a cache of Tokens with all methods of otter.Cache.
func otterCache(t *testing.T, c evictingCache[digest, *entry]) *otter.Cache[digest, *entry] {
	t.Helper()
	o, ok := c.(*otter.Cache[digest, *entry])
	if !ok {
		t.Fatalf("the cache is a %T", c)
	}
	return o
}
