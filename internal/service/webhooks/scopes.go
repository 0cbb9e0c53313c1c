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

// readScopes is the scope that reads what the events of a family carry.
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

// lockToUse is lock for an endpoint that the token may use in every way.
func lockToUse(ctx context.Context, tx *db.Tx, by *auth.Principal, id string) error {
	e, err := lock(ctx, tx, by.GuildID, id)
	if err != nil {
		return err
	}
	return mayUse(ctx, tx, by, e)
}

// getToUse finds an endpoint that the token may use in every way.
func getToUse(ctx context.Context, q db.Querier, by *auth.Principal, id string) (endpoint, error) {
	e, err := get(ctx, q, by.GuildID, id)
	if err != nil {
		return endpoint{}, err
	}
	return e, mayUse(ctx, q, by, e)
}

// mayUse is Forbidden unless the token can read what an endpoint gets, what its
// log holds of the time when it got other events, and what it is to get besides.
// Without that a token may see the endpoint, disable and delete it.
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

// mayRead is Forbidden, naming the alphabetically first scope that is missing,
// unless the token can read by other operations what events of these types
// carry. Other tokens must get it neither at a receiver of their own nor out of the
// log. A nil principal is the operator, who may read everything.
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

// ReadScope is the scope that reads what events of this type carry; empty for a
// ping, which carries nothing.
func ReadScope(eventType string) string {
	if eventType == event.MemberForgotten { // it carries an id, and whoever keeps data of the guild needs it
		return "guild:read"
	}
	family, _, _ := strings.Cut(eventType, ".")
	return readScopes[family]
}
