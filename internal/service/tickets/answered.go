package tickets

import (
	"context"

	"guildhall/internal/base/db"
	"guildhall/internal/base/jobs"
	"guildhall/internal/outbound/chat"
)

// Answered goes on with what the operator's bot has answered, in the unit that takes the
// answer. A message whose request has not waited is left to the sweep.
func Answered(ctx context.Context, tx *db.Tx, a chat.Answered) error {
	if a.IntentID != "" {
		return nil
	}
	return jobs.Enqueue(ctx, tx, ChannelJob{GuildID: a.GuildID, TicketID: a.TicketID})
}
