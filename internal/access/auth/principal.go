// Package auth authenticates requests. It creates tokens, recognises them, and makes sure that
// every node refuses a revoked token by the time its revocation returns. It knows nothing of routes
// or responses: it reads headers and addresses, and returns principals and faults.
package auth

import (
	"context"
	"slices"
	"time"

	"guildhall/internal/access/ratelimit"
)

// Principal is the authenticated token or bot key of a request, without its secret.
type Principal struct {
	By
	Name       string
	Preview    string // the prefix and the last four characters, never the secret
	Scopes     []string
	Allow      []string   // addresses and ranges that may use it; empty: any address
	ExpiresAt  *time.Time // nil: does not expire
	CreatedAt  time.Time
	LastUsedAt time.Time

	// Read and Write are the token's own rate limits; nil: the installation's default.
	Read, Write *ratelimit.Quota

	guilds []string // guilds that a bot key is limited to; nil: every guild
}

// Has reports whether the scope was granted. There is no wildcard.
func (p *Principal) Has(scope string) bool { return slices.Contains(p.Scopes, scope) }

type contextKey struct{}

// With returns a context that carries p.
func With(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// From returns the principal of the current request. It panics for a request without
// authentication, so the first test of a wrong call finds it.
func From(ctx context.Context) *Principal {
	p, ok := ctx.Value(contextKey{}).(*Principal)
	if !ok {
		panic("auth: no principal in this context")
	}
	return p
}
