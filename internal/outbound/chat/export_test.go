package chat

import (
	"context"
	"time"
)

// Later moves the client's clocks forward.
func (d *Discord) Later(by time.Duration) {
	d.token.now = func() time.Time { return time.Now().Add(by) }
	d.owners.now = d.token.now
}

// The budgets of refused calls.
const (
	GuildBudget      = invalidGuild
	BackgroundBudget = invalidBackground
	BotBudget        = invalidAll
)

// Refused returns how many refused calls currently count for the bot's address.
func (d *Discord) Refused(ctx context.Context) int {
	return d.refusals.counter.Count(ctx, 0, d.refusals.all)[0]
}
