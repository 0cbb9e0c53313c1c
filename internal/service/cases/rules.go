package cases

import "guildhall/internal/base/wire"

// patch is a wished-for edit.
type patch struct {
	Reason    *string    // nil: leave it
	Expiry    bool       // whether ExpiresAt is wished for
	ExpiresAt *wire.Time // nil: clear it
}

// apply returns c as p wants it and the names of the members that differ, in
// the order of the resource.
func (p patch) apply(c row) (row, []string) {
	var changed []string
	if p.Reason != nil && *p.Reason != c.Reason {
		c.Reason = *p.Reason
		changed = append(changed, "reason")
	}
	if p.Expiry && !same(p.ExpiresAt, c.ExpiresAt) {
		c.ExpiresAt = p.ExpiresAt
		changed = append(changed, "expires_at")
	}
	return c, changed
}

func same(a, b *wire.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(b.Time)
}
