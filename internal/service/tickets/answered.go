package tickets

import (
	"context"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/chat"
)

// Answered handles an answer of the operator's bot, in the transaction that stores it: it makes the
// ticket's channel due. A message whose request no longer waits is finished by the sweep of
// messages.
func Answered(ctx context.Context, tx *db.Tx, a chat.Answered) error {
	if a.IntentID != "" {
		return nil
	}
	if a.Deleted != "" {
		if err := loseChannel(ctx, tx, a.GuildID, a.TicketID, a.Deleted); err != nil {
			return err
		}
	}
	_, err := db.Exec(ctx, tx, `
		UPDATE tickets
		SET channel_try_at = now(), channel_tries = 0
		WHERE guild_id = $1
		  AND id = $2
		  AND channel_due_at IS NOT NULL
		  AND channel_id IS NOT NULL`, a.GuildID, a.TicketID)
	return fault.Wrap(err, "make the channel of ticket", a.TicketID, "of guild", a.GuildID, "due")
}

// loseChannel removes a deleted channel from the ticket for which it was deleted, even if the ticket
// was reopened meanwhile, since the channel cannot be restored. It also removes the channel from a
// ticket that was opened in it meanwhile.
func loseChannel(ctx context.Context, tx *db.Tx, guild, ticket, channelID string) error {
	_, err := db.Exec(ctx, tx, `
		WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at)
		UPDATE tickets
		SET channel_id = NULL, channel_due_at = NULL, channel_try_at = NULL, channel_lock = NULL, updated_at = `+db.Next("instant.at", "updated_at")+`
		FROM instant
		WHERE guild_id = $1
		  AND channel_id = $3
		  AND (id = $2 OR status = 'open')`, guild, ticket, channelID)
	return fault.Wrap(err, "take the deleted channel from ticket", ticket, "of guild", guild)
}
