package webhooks

import (
	"context"
	"errors"
	"net/url"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/egress"
)

const (
	// maxLookups is how many host names are looked up concurrently, and guildLookups how many of
	// them for one guild: an eighth.
	maxLookups   = 16
	guildLookups = maxLookups / 8
)

// newLookups returns the slots for lookups of host names, which are shared among guilds, whatever
// the tokens.
func newLookups() *db.Slots {
	return db.NewSlots(maxLookups, db.Share{
		Token: guildLookups, Guild: guildLookups,
		OwnShare: fault.New(fault.Limited, "rate_limited",
			"This guild has as many host names being looked up as it may have at once.").After(time.Second),
		Busy: fault.New(fault.Unavailable, "service_unavailable",
			"Too many host names are being looked up; try the same request again.").After(time.Second),
	})
}

// lookup is a URL with the result of its lookup: nil if it may be called.
type lookup struct {
	url   string
	found error
}

type lookupKey struct{}

// resolveFor finds out whether a guild may register a URL, and returns a context with the result.
// It needs a DNS lookup, so it is called before a transaction starts: no connection and no lock is
// held meanwhile.
func (m manager) resolveFor(ctx context.Context, guild, url string) context.Context {
	return withLookup(ctx, url, m.resolve(ctx, guild, url))
}

// withLookup returns a context with the result of a URL's lookup.
func withLookup(ctx context.Context, url string, found error) context.Context {
	return context.WithValue(ctx, lookupKey{}, lookup{url, found})
}

// lookupResult returns the result of the URL's lookup by resolveFor.
func lookupResult(ctx context.Context, url string) error {
	l, _ := ctx.Value(lookupKey{}).(lookup)
	if l.url != url {
		return errors.New("webhooks: a URL is used that nobody has looked up")
	}
	return l.found
}

// resolve returns nil if the URL may be called, or else the refusal.
func (m manager) resolve(ctx context.Context, guild, raw string) error {
	u, err := parseURL(raw)
	if err != nil {
		return err
	}
	if egress.IsName(u) {
		release, err := m.lookups.Acquire(ctx, db.Caller{Guild: guild})
		if err != nil {
			return err
		}
		defer release()
	}
	switch err := m.cfg.Guard.Check(ctx, u); {
	case err == nil:
		return nil
	case u.Scheme != "https":
		return fault.New(fault.Invalid, "invalid_request", "body /url: must start with https://")
	case errors.Is(err, egress.ErrNoSuchHost):
		return fault.New(fault.Refused, "webhook_url_not_allowed", "The URL's host name does not exist.")
	case errors.Is(err, egress.ErrLookup):
		return fault.New(fault.Unavailable, "service_unavailable", "The URL's host name cannot be resolved now; try the same request again.").
			After(5 * time.Second).Because(err)
	default:
		return fault.New(fault.Refused, "webhook_url_not_allowed", "The URL must lead to a public address.").Because(err)
	}
}

func parseURL(raw string) (*url.URL, error) {
	u, err := egress.ParseURL(raw)
	switch {
	case errors.Is(err, egress.ErrNoAddress):
		return nil, fault.New(fault.Refused, "webhook_url_not_allowed", "The URL %s.", err)
	case err != nil:
		return nil, fault.New(fault.Invalid, "invalid_request", "body /url: %s", err)
	}
	return u, nil
}
