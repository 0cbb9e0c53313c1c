package cases

import (
	"guildhall/internal/base/wire"
	"guildhall/internal/service/metadata"
)

// patch is a wished-for edit.
type patch struct {
	Reason    *string    // nil: leave it
	Expiry    bool       // whether ExpiresAt is wished for
	ExpiresAt *wire.Time // nil: clear it
	Metadata  metadata.Change
}

// apply returns c as p wants it and the names of the members that differ, in
// the order of the resource. It is Refused when the metadata would be too much.
func (p patch) apply(c row) (row, []string, error) {
	var changed []string
	if p.Reason != nil && *p.Reason != c.Reason {
		c.Reason = *p.Reason
		changed = append(changed, "reason")
	}
	if p.Expiry && !same(p.ExpiresAt, c.ExpiresAt) {
		c.ExpiresAt = p.ExpiresAt
		changed = append(changed, "expires_at")
	}
	kept, differs, err := c.Metadata.With(p.Metadata)
	if differs {
		c.Metadata = kept
		changed = append(changed, "metadata")
	}
	return c, changed, err
}

func same(a, b *wire.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Alike(*b)
}
