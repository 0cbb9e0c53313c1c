package auth

import (
	"context"

	"guildhall/internal/access/audit"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// Limits are the rate limits of a token, in the form that ParseQuota reads. An empty limit stands
// for the installation's default.
type Limits struct{ Read, Write string }

// columns returns the limits as columns, or an Invalid fault for a malformed limit.
func (l Limits) columns() (read, write *string, err error) {
	column := func(text string) (*string, error) {
		if text == "" {
			return nil, nil //nolint:nilnil // the installation's limit is stored as null
		}
		q, err := ratelimit.ParseQuota(text)
		if err != nil {
			return nil, fault.New(fault.Invalid, "invalid_request", "%s", err)
		}
		text = q.String()
		return &text, nil
	}
	if read, err = column(l.Read); err != nil {
		return nil, nil, err
	}
	write, err = column(l.Write)
	return read, write, err
}

// limits returns the stored limits.
func (r row) limits() (l Limits) {
	if r.RateRead != nil {
		l.Read = *r.RateRead
	}
	if r.RateWrite != nil {
		l.Write = *r.RateWrite
	}
	return l
}

// SetLimits changes the limits of a token of the guild, whose secret stays. Nodes that have cached
// the token apply the new limits when the cache entry expires. SetLimits returns a NotFound fault
// for a token that is unknown, revoked, or another guild's.
func SetLimits(ctx context.Context, d *db.DB, guild, id string, l Limits) error {
	read, write, err := l.columns()
	if err != nil {
		return err
	}
	err = d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		was, is, err := limit(ctx, tx, guild, id, read, write)
		if err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Change{Guild: guild, Action: audit.TokenLimited, Target: id, Name: is.Name, Before: auditDetails(was), After: auditDetails(is)})
	})
	if db.Missing(err) {
		return errNoToken.Because(err)
	}
	return err
}

// quota parses a stored limit; nil stands for the installation's default. A malformed limit counts
// as none.
func quota(stored *string) *ratelimit.Quota {
	if stored == nil {
		return nil
	}
	q, err := ratelimit.ParseQuota(*stored)
	if err != nil {
		return nil
	}
	return &q
}
