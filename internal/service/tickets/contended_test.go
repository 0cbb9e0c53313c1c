package tickets

import (
	"context"
	"errors"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// A row with a foreign key to the ticket locks the ticket's row (FOR KEY SHARE). Changes of the
// ticket meanwhile must not deadlock.
func TestChangesOfATicketAndItsMessagesDoNotBlockOneAnother(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Fill(t, d, twoGuilds, `INSERT INTO tickets (guild_id, id, number, opener_id, channel_id, channel_due_at)
		VALUES ('1', 't', 1, '7', '700', now())`)
	dbtest.WantNoCircle(t, d, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `
			INSERT INTO ticket_messages (guild_id, ticket_id, id, author_type, content)
			VALUES ('1', 't', $1, 'opener', 'Hello')`, db.NewID())
		return err
	}, 10, 2, func(d db.Doer) error {
		_, taken := takeChannel(t.Context(), d, "1", "t")
		lost := channelWork{GuildID: "1", TicketID: "t", LeaseGen: -1}
		_, settled := lost.finish(t.Context(), d, nil)
		return errors.Join(taken, settled)
	})
}
