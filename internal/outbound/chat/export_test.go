package chat

import (
	"context"
	"time"
)

// Later makes it as much later for what the client remembers.
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

// Refused is how many refused calls of the bot's address count now.
func (d *Discord) Refused(ctx context.Context) int {
	return d.refusals.counter.Count(ctx, 0, d.refusals.all)[0]
}
