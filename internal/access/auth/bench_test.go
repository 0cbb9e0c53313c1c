package auth

import "testing"

// BenchmarkAuthenticate authenticates a token that is in the cache, as nearly every request does.
func BenchmarkAuthenticate(b *testing.B) {
	s := newTokenDB(b)
	n := s.tokens(b)
	run(b, n)
	tok := s.token(b)
	cachedBy(b, n, tok.Secret)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := n.Authenticate(b.Context(), tok.Secret, anywhere); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAuthenticateMalformed authenticates a text that does not have the form of a token.
func BenchmarkAuthenticateMalformed(b *testing.B) {
	s := newTokenDB(b)
	n := s.tokens(b)
	bad := mint(tokenBrand, "live")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := n.Authenticate(b.Context(), bad, anywhere); err == nil {
			b.Fatal("recognised")
		}
	}
}
