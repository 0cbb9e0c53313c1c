package webhooks

import (
	"context"
	"errors"
	"slices"

	"guildhall/internal/db"
	"guildhall/internal/event"
	"guildhall/internal/fault"
)

// manager is what managing endpoints takes, whoever asks for it: the API's
// operations and the command line's functions are both thin around it.
type manager struct {
	cfg Config
}

// wish is what a caller wants an endpoint to be; nil leaves a thing as it is.
type wish struct {
	URL         *string
	Events      []string
	Description **string // nil: leave it; to nil: clear it
	Enabled     *bool
}

// register makes an endpoint and returns it with its secret, which is readable
// nowhere afterwards.
func (m manager) register(ctx context.Context, tx *db.Tx, guild string, w wish) (endpoint, string, error) {
	e := endpoint{GuildID: guild, ID: db.NewID(), Enabled: true}
	if err := m.apply(ctx, &e, w); err != nil {
		return endpoint{}, "", err
	}
	secret := newSecret()
	e.Secret, e.SecretPreview = m.cfg.Box.Seal([]byte(secret), boundTo(guild, e.ID)), preview(secret)
	e, err := insert(ctx, tx, e)
	return e, secret, err
}

// change edits an endpoint. Switching it off holds what waits for it, switching
// it on makes that due; a new address starts without the old one's failures.
func (m manager) change(ctx context.Context, tx *db.Tx, guild, id string, w wish) (endpoint, error) {
	was, err := lock(ctx, tx, guild, id)
	if err != nil {
		return endpoint{}, err
	}
	e := was
	if err := m.apply(ctx, &e, w); err != nil {
		return endpoint{}, err
	}
	if e.Enabled {
		e.DisabledReason = nil
	}
	if e, err = update(ctx, tx, e); err != nil {
		return endpoint{}, err
	}
	if e.URL != was.URL || e.Enabled && !was.Enabled {
		if err := forgive(ctx, tx, guild, id); err != nil {
			return endpoint{}, err
		}
	}
	switch {
	case e.Enabled && !was.Enabled:
		return e, release(ctx, tx, guild, id)
	case !e.Enabled && was.Enabled:
		return e, hold(ctx, tx, guild, id)
	}
	return e, nil
}

// apply checks a wish and writes it into e.
func (m manager) apply(ctx context.Context, e *endpoint, w wish) error {
	if w.URL != nil {
		u, err := target(*w.URL)
		if err != nil {
			return fault.New(fault.Invalid, "invalid_request", "body /url: %s", err)
		}
		switch err := m.cfg.Guard.check(ctx, u); {
		case err != nil && u.Scheme != "https":
			return fault.New(fault.Invalid, "invalid_request", "body /url: must start with https://")
		case errors.Is(err, errNotAllowed):
			return fault.New(fault.Refused, "webhook_url_not_allowed", notAllowed)
		case err != nil:
			return err
		}
		e.URL = *w.URL
	}
	if w.Events != nil {
		e.Events = nil
		for _, known := range event.Types {
			if slices.Contains(w.Events, known) {
				e.Events = append(e.Events, known)
			}
		}
		for _, asked := range w.Events {
			if !slices.Contains(event.Types, asked) {
				return fault.New(fault.Invalid, "invalid_request", "body /events: %q is not an event type", asked)
			}
		}
		if len(e.Events) == 0 {
			return fault.New(fault.Invalid, "invalid_request", "body /events: must name at least one event type")
		}
	}
	if w.Description != nil {
		e.Description = *w.Description
	}
	if w.Enabled != nil {
		e.Enabled = *w.Enabled
	}
	return nil
}

// rotate gives an endpoint a new secret and returns it. The one before signs
// along for the overlap.
func (m manager) rotate(ctx context.Context, tx *db.Tx, guild, id string) (endpoint, string, error) {
	secret := newSecret()
	e, err := replaceSecret(ctx, tx, guild, id, m.cfg.Box.Seal([]byte(secret), boundTo(guild, id)), preview(secret))
	return e, secret, err
}
