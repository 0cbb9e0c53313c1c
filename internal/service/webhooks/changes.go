package webhooks

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"guildhall/internal/access/audit"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/event"
)

// manager holds what managing endpoints needs. The API's operations and the command line's
// functions are thin layers on it.
type manager struct {
	cfg     Config
	lookups *db.Slots
}

func newManager(cfg Config) (manager, error) {
	return manager{cfg: cfg, lookups: newLookups()}, cfg.check()
}

// patch is a change of an endpoint; a nil field leaves its property unchanged.
type patch struct {
	Delivery    string // push or pull; empty: unchanged, or push for a new endpoint
	URL         *string
	Events      []string
	Description **string // nil: unchanged; pointing to nil: removed
	Enabled     *bool
}

// check returns what is wrong with a patch, independent of the guild's state.
func (p patch) check(ctx context.Context) error {
	if p.URL != nil {
		if _, err := parseURL(*p.URL); err != nil {
			return err
		}
		if f, ok := fault.As(lookupResult(ctx, *p.URL)); ok && f.Kind == fault.Invalid {
			return f
		}
	}
	for _, asked := range p.Events {
		if !slices.Contains(event.Types, asked) {
			return fault.New(fault.Invalid, "invalid_request", "body /events: %q is not an event type: %s", asked, strings.Join(event.Types, ", "))
		}
	}
	if p.Events != nil && len(p.Events) == 0 {
		return fault.New(fault.Invalid, "invalid_request", "body /events: must name at least one event type")
	}
	if p.Description != nil && *p.Description != nil && utf8.RuneCountInString(**p.Description) > 200 {
		return fault.New(fault.Invalid, "invalid_request", "body /description: must have at most 200 characters")
	}
	if p.Description != nil && *p.Description != nil && !wire.OneLine(**p.Description) {
		return fault.New(fault.Invalid, "invalid_request", "body /description: must not contain control characters or line breaks")
	}
	return nil
}

// fits returns what is wrong with a patch for an endpoint with the given way of delivery.
func (p patch) fits(how string) error {
	switch {
	case p.Delivery != "" && p.Delivery != how:
		return fault.New(fault.Invalid, "invalid_request", "body /delivery: is %s and never changes", how)
	case how == delivery.Pull && p.URL != nil:
		return fault.New(fault.Invalid, "invalid_request", "body /url: a pull endpoint has none: its events are fetched")
	}
	return nil
}

// onlyDisables reports whether a patch only disables the endpoint.
func (p patch) onlyDisables() bool {
	return p.Enabled != nil && !*p.Enabled && p.Delivery == "" && p.URL == nil && p.Events == nil && p.Description == nil
}

// register creates an endpoint and returns it with its secret, which cannot be read later. It
// returns a Refused fault if the guild already has MaxEndpoints.
func (m manager) register(ctx context.Context, tx *db.Tx, guild string, p patch) (Standing, string, error) {
	e := endpoint{GuildID: guild, ID: db.NewID(), Delivery: cmp.Or(p.Delivery, delivery.Push), Enabled: true}
	if e.Delivery == delivery.Push && p.URL == nil {
		return Standing{}, "", fault.New(fault.Invalid, "invalid_request", "body /url: is required, unless delivery is pull")
	}
	if err := p.fits(e.Delivery); err != nil {
		return Standing{}, "", err
	}
	if err := p.check(ctx); err != nil {
		return Standing{}, "", err
	}
	if err := lockGuild(ctx, tx, guild); err != nil {
		return Standing{}, "", err
	}
	if err := checkLimit(ctx, tx, guild); err != nil {
		return Standing{}, "", err
	}
	if err := p.apply(ctx, &e); err != nil {
		return Standing{}, "", err
	}
	secret := newSecret()
	e.Secret, e.SecretPreview = m.cfg.Box.Seal([]byte(secret), delivery.BoundTo(guild, e.ID)), preview(secret)
	e, err := insert(ctx, tx, e)
	if err != nil {
		return Standing{}, "", err
	}
	if err := delivery.Register(ctx, tx, guild, e.ID, e.Enabled, e.Delivery == delivery.Pull); err != nil {
		return Standing{}, "", err
	}
	if err := writeAudit(ctx, tx, audit.WebhookCreated, nil, &e); err != nil {
		return Standing{}, "", err
	}
	is, err := StandingOf(ctx, tx, guild, e.ID)
	return is, secret, err
}

// apply applies a checked patch to e. The URL's lookup was done before the transaction; its refusal
// is returned here, after all other checks.
func (p patch) apply(ctx context.Context, e *endpoint) error {
	if p.URL != nil {
		if err := lookupResult(ctx, *p.URL); err != nil {
			return err
		}
		e.URL = *p.URL
	}
	if p.Events != nil {
		e.Events = slices.DeleteFunc(slices.Clone(event.Types), func(t string) bool { return !slices.Contains(p.Events, t) })
	}
	if p.Description != nil {
		e.Description = *p.Description
	}
	if p.Enabled != nil {
		e.Enabled = *p.Enabled
	}
	return nil
}

// change changes an endpoint that the transaction has locked; a patch without effect changes
// nothing. Disabling holds back the waiting deliveries, enabling makes them due, and a new URL
// starts without the failures of the old one.
func (m manager) change(ctx context.Context, tx *db.Tx, was endpoint, p patch) (endpoint, error) {
	e := was
	if err := p.fits(was.Delivery); err != nil {
		return endpoint{}, err
	}
	if err := p.apply(ctx, &e); err != nil {
		return endpoint{}, err
	}
	if e.Enabled {
		e.DisabledReason = nil
	}
	if reflect.DeepEqual(e, was) {
		return was, nil
	}
	if e.Enabled && !was.Enabled {
		if err := auth.WantGuild(ctx, tx, e.GuildID); err != nil { // the guild's removal may have been scheduled since the request arrived
			return endpoint{}, err
		}
	}
	e, err := update(ctx, tx, e)
	if err != nil {
		return endpoint{}, err
	}
	if err := writeAudit(ctx, tx, audit.WebhookUpdated, &was, &e); err != nil {
		return endpoint{}, err
	}
	if e.URL != was.URL {
		if err := delivery.ResetHealth(ctx, tx, e.GuildID, e.ID); err != nil {
			return endpoint{}, err
		}
	}
	if more := func(t string) bool { return !slices.Contains(was.Events, t) }; slices.ContainsFunc(e.Events, more) {
		if err := delivery.Widen(ctx, tx, e.GuildID, e.ID); err != nil {
			return endpoint{}, err
		}
	}
	switch {
	case e.Enabled && !was.Enabled:
		return e, delivery.Enable(ctx, tx, e.GuildID, e.ID)
	case !e.Enabled && was.Enabled:
		return e, delivery.Disable(ctx, tx, e.GuildID, e.ID, "")
	}
	return e, nil
}

// rotate gives an endpoint a new secret and returns it. The previous secret also signs for the
// given time.
func (m manager) rotate(ctx context.Context, tx *db.Tx, guild, id string, overlap time.Duration) (Standing, string, error) {
	secret := newSecret()
	e, err := replaceSecret(ctx, tx, guild, id, m.cfg.Box.Seal([]byte(secret), delivery.BoundTo(guild, id)), preview(secret), overlap)
	if err != nil {
		return Standing{}, "", err
	}
	if err := writeAudit(ctx, tx, audit.WebhookRotated, nil, &e); err != nil {
		return Standing{}, "", err
	}
	is, err := StandingOf(ctx, tx, guild, id)
	return is, secret, err
}
