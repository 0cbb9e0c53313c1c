package chat

import "time"

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
