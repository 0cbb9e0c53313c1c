package streams

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"guildhall/gen"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/event"
)

// The functions of this file are for the command line, which operators use: unlike a bot key of
// named guilds, operators may change streams.

var nameForm = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// List returns every stream, by name.
func List(ctx context.Context, q db.Querier) ([]gen.BotStream, error) {
	rows, err := list(ctx, q, page.Of(1, maxStreams+1))
	if err != nil {
		return nil, err
	}
	return page.Each(rows, show), nil
}

// Put creates or changes a stream. It returns an Invalid fault for a name or an event type that the
// API refuses.
func Put(ctx context.Context, d db.Doer, name string, events []string, echo bool) (is gen.BotStream, err error) {
	unknown := slices.IndexFunc(events, func(e string) bool { return !slices.Contains(event.Types, e) })
	switch {
	case name == delivery.StreamWork:
		return is, errWork
	case !nameForm.MatchString(name):
		return is, fault.New(fault.Invalid, "invalid_request", "%q is no name of a stream: it has 1 to 32 of a-z, 0-9 and hyphens", name)
	case len(events) == 0:
		return is, fault.New(fault.Invalid, "invalid_request", "a stream needs at least one event type: %s", strings.Join(event.Types, ", "))
	case unknown >= 0:
		return is, fault.New(fault.Invalid, "invalid_request", "%q is not an event type: %s", events[unknown], strings.Join(event.Types, ", "))
	}
	err = d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		stored, err := put(ctx, tx, name, events, echo)
		is = show(stored)
		return err
	})
	return is, err
}

// Delete deletes a stream, with the events that wait for it, or returns a NotFound fault.
func Delete(ctx context.Context, d db.Doer, name string) error {
	if name == delivery.StreamWork {
		return errWork
	}
	return d.Do(ctx, func(ctx context.Context, tx *db.Tx) error { return end(ctx, tx, name) })
}
