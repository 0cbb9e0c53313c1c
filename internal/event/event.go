// Package event is the outbox. Record stores an event in the caller's
// transaction; it neither sends nor waits. Sending is webhooks' work.
package event

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"guildhall/internal/auth"
	"guildhall/internal/db"
)

// The event types.
const (
	CaseCreated      = "case.created"
	CaseUpdated      = "case.updated"
	BalanceChanged   = "economy.balance_changed"
	LevelUp          = "xp.level_up"
	TicketMessage    = "ticket.message"
	TicketClosed     = "ticket.closed"
	TicketClaimed    = "ticket.claimed"
	TicketAssigned   = "ticket.assigned"
	TicketReopened   = "ticket.reopened"
	GiveawayCreated  = "giveaway.created"
	GiveawayEnded    = "giveaway.ended"
	GiveawayRerolled = "giveaway.rerolled"
	Ping             = "ping" // sent on request only; nobody subscribes to it
)

// Types is every type an endpoint can subscribe to.
var Types = []string{
	CaseCreated, CaseUpdated, BalanceChanged, LevelUp,
	TicketMessage, TicketClosed, TicketClaimed, TicketAssigned, TicketReopened,
	GiveawayCreated, GiveawayEnded, GiveawayRerolled,
}

// Origin says in which guild an event happened and who caused it.
type Origin struct {
	GuildID string
	Type    string // api or system
	TokenID string // empty when no call of the API did it
}

// From is the origin of what the caller of the API does.
func From(by *auth.Principal) Origin {
	return Origin{GuildID: by.GuildID, Type: "api", TokenID: by.TokenID}
}

// System is the origin of what the service does on its own in guild.
func System(guild string) Origin { return Origin{GuildID: guild, Type: "system"} }

// JSON is the origin as the payload shows it.
func (o Origin) JSON() string {
	shown := struct {
		Type    string  `json:"type"`
		TokenID *string `json:"token_id"`
	}{Type: o.Type}
	if o.TokenID != "" {
		shown.TokenID = &o.TokenID
	}
	b, err := json.Marshal(shown)
	if err != nil {
		panic("event: an origin is two strings: " + err.Error())
	}
	return string(b)
}

// Record stores an event and a delivery for each endpoint of the guild that
// listens to its type. Both become real with the caller's commit, or never.
func Record(ctx context.Context, tx *db.Tx, by Origin, typ string, data any) error {
	// Without escapes for HTML, which would make a body up to six times as long.
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(data); err != nil {
		return fmt.Errorf("render the data of event %s: %w", typ, err)
	}
	if _, err := tx.ExecContext(ctx, `SELECT record_event($1, $2, $3, $4, $5)`,
		by.GuildID, db.NewID(), typ, by.JSON(), strings.TrimSuffix(b.String(), "\n")); err != nil {
		return fmt.Errorf("record event %s in guild %s: %w", typ, by.GuildID, err)
	}
	return nil
}
