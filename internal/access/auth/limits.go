package auth

import (
	"context"

	"guildhall/internal/access/audit"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// Limits are the rate limits of a token, as ParseQuota reads them. An empty limit is the
// installation's.
type Limits struct{ Read, Write string }

// columns returns the limits as they are stored. It is Invalid for a text that is no limit.
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

// limits returns the limits that are stored.
func (r row) limits() (l Limits) {
	if r.RateRead != nil {
		l.Read = *r.RateRead
	}
	if r.RateWrite != nil {
		l.Write = *r.RateWrite
	}
	return l
}

// SetLimits changes the limits of a token of the guild; its secret stays. Nodes that have
// the token in memory follow within the time for which they keep it. It is NotFound for a
// token that is unknown, revoked, or another guild's.
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

// quota returns the quota that a stored limit is; nil: the installation's. A limit that
// nobody can read counts as none stored.
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
