package cases

import (
	"guildhall/internal/base/metadata"
	"guildhall/internal/base/wire"
)

// patch is a wished-for edit.
type patch struct {
	Reason    *string    // nil: leave it
	Expiry    bool       // whether ExpiresAt is wished for
	ExpiresAt *wire.Time // nil: clear it
	Metadata  metadata.Change
}

// apply returns c as p wants it and the members that differ. It is Refused when the
// metadata would be too much.
func (p patch) apply(c row) (row, []string, error) {
	desired := c
	if p.Reason != nil {
		desired.Reason = *p.Reason
	}
	if p.Expiry && !same(p.ExpiresAt, c.ExpiresAt) {
		desired.ExpiresAt = p.ExpiresAt
	}
	var err error
	desired.Metadata, err = c.Metadata.With(p.Metadata)
	return desired, members.Changed(&c, &desired), err
}

func same(a, b *wire.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Alike(*b)
}
