package cases

import "time"

// patch is a wished-for edit. A nil member is left as it is.
type patch struct {
	Reason    *string
	ExpiresAt **time.Time // points to nil: clear the expiry
}

// apply returns c as p wants it and the names of the members that differ, in
// the order of the resource. Expiries that are stored as the same microsecond
// do not differ.
func (p patch) apply(c row) (row, []string) {
	var changed []string
	if p.Reason != nil && *p.Reason != c.Reason {
		c.Reason = *p.Reason
		changed = append(changed, "reason")
	}
	if p.ExpiresAt != nil {
		at := *p.ExpiresAt
		if at != nil {
			t := at.UTC().Truncate(time.Microsecond)
			at = &t
		}
		if (at == nil) != (c.ExpiresAt == nil) || (at != nil && !at.Equal(*c.ExpiresAt)) {
			c.ExpiresAt = at
			changed = append(changed, "expires_at")
		}
	}
	return c, changed
}
