package webhooks

import (
	"context"
	"slices"
	"strings"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/event"
)

// readScopes maps each family of events to the scope that may read their data.
var readScopes = map[string]string{
	"case":     "cases:read",
	"economy":  "economy:read",
	"xp":       "levelling:read",
	"ticket":   "tickets:read",
	"giveaway": "giveaways:read",
	"guild":    "guild:read",
	"member":   "members:read",

	"webhook": "webhooks:manage",
	"token":   "webhooks:manage",
}

// lockToUse locks an endpoint that the token may use without restrictions.
func lockToUse(ctx context.Context, tx *db.Tx, by *auth.Principal, id string) error {
	e, err := lock(ctx, tx, by.GuildID, id)
	if err != nil {
		return err
	}
	return mayUse(ctx, tx, by, e)
}

// getToUse returns an endpoint that the token may use without restrictions.
func getToUse(ctx context.Context, q db.Querier, by *auth.Principal, id string) (endpoint, error) {
	e, err := get(ctx, q, by.GuildID, id)
	if err != nil {
		return endpoint{}, err
	}
	return e, mayUse(ctx, q, by, e)
}

// mayUse returns a Forbidden fault unless the token may read the endpoint's events, the events in
// its log from the time when it listened to others, and the additional types besides. Without that
// right a token may see the endpoint, disable it and delete it.
func mayUse(ctx context.Context, q db.Querier, by *auth.Principal, e endpoint, besides ...string) error {
	if err := mayRead(by, slices.Concat(e.Events, besides)); err != nil {
		return err
	}
	foreign := slices.DeleteFunc(slices.Clone(event.Types), func(t string) bool { return mayRead(by, []string{t}) == nil })
	if len(foreign) == 0 {
		return nil
	}
	kept, err := typesInLog(ctx, q, e.GuildID, e.ID, foreign)
	if err != nil {
		return err
	}
	return mayRead(by, kept)
}

// mayRead returns a Forbidden fault unless the token may read the data of these event types by
// other operations. The fault names the alphabetically first missing scope. A token without the
// right must not get the data through a receiver of its own or through the log. A nil principal
// stands for the operator, who may read everything.
func mayRead(by *auth.Principal, events []string) error {
	if by == nil {
		return nil
	}
	var missing []string
	for _, e := range events {
		if scope := ReadScope(e); scope != "" && !by.Has(scope) {
			missing = append(missing, scope)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	scope := slices.Min(missing)
	f := fault.New(fault.Forbidden, "insufficient_scope", "An endpoint that gets these events needs a token with the scope %s.", scope)
	f.RequiredScope = scope
	return f
}

// ReadScope returns the scope that may read the data of an event type, or "" for a ping, which has
// no data.
func ReadScope(eventType string) string {
	if eventType == event.MemberForgotten { // it contains only an id, and everyone who stores data of the guild needs it
		return "guild:read"
	}
	family, _, _ := strings.Cut(eventType, ".")
	return readScopes[family]
}
