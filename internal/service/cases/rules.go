package cases

import (
	"guildhall/internal/base/metadata"
	"guildhall/internal/base/wire"
)

// patch is a change of a case.
type patch struct {
	Reason    *string    // nil: unchanged
	Expiry    bool       // whether ExpiresAt is given
	ExpiresAt *wire.Time // nil: remove the expiry
	Metadata  metadata.Change
}

// apply returns c after the change and the members that differ. It returns a Refused fault if the
// metadata would exceed its limits.
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
