package auth

import (
	"crypto/rand"
	"encoding/base64"
	"testing"
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
	if n.cache.EstimatedSize() != 1 || n.refused.EstimatedSize() != 20 {
		t.Errorf("%d rows and %d refusals are remembered, want 1 and 20", n.cache.EstimatedSize(), n.refused.EstimatedSize())
	}
	if n.refused.GetMaximum() > 5_000 {
		t.Errorf("up to %d refusals are remembered", n.refused.GetMaximum())
	}
}
