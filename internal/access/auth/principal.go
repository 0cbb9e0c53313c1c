// Package auth says whose request this is. It makes tokens, recognises them,
// and makes sure that a revoked one is dead on every node by the time its
// revocation returns. It knows nothing of routes or answers: it reads headers
// and addresses, and returns principals and faults.
package auth

import (
	"context"
	"slices"
	"time"

	"guildhall/internal/access/ratelimit"
)

// Principal is the credential a request came with, as far as the rest of the
// program may know it.
type Principal struct {
	By
	Name       string
	Preview    string // prefix and last four characters, never the secret
	Scopes     []string
	Allow      []string   // addresses and ranges; empty: usable from anywhere
	ExpiresAt  *time.Time // nil: never
	CreatedAt  time.Time
	LastUsedAt time.Time

	// Read and Write are the token's own limits; nil: the installation's.
	Read, Write *ratelimit.Quota

	guilds []string // that a bot key serves; nil: every guild
}

// Has reports whether the token was granted scope. There is no wildcard.
func (p *Principal) Has(scope string) bool { return slices.Contains(p.Scopes, scope) }

type contextKey struct{}

// With returns a context that carries p.
func With(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// From returns the principal of the request being served. Where nobody has
// authenticated it panics: the first test to reach the line will say so.
func From(ctx context.Context) *Principal {
	p, ok := ctx.Value(contextKey{}).(*Principal)
	if !ok {
		panic("auth: no principal in this context")
	}
	return p
}
