package tickets_test

import (
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/tickets"
)

// With the platform switched off, a message is refused at once. A ticket can be closed and reopened
// without a change of its channel, whatever the guild's settings are, and no work for it fails or
// stays due.
func TestWithoutThePlatformMessagesAreRefusedAndChannelsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"archive", "delete"} {
		s := apitest.New(t, apitest.Chat(chat.Off{}))
		dbtest.Exec(t, s.DB(), `
			INSERT INTO guild_settings (guild_id, close_action) VALUES ($1, $2)
			ON CONFLICT (guild_id) DO UPDATE SET close_action = $2`, s.Guild, action)
		id := ticket(t, s, 1, "open", true)
		s.Do(t, "createTicketMessage", `{"content":"Hello","author_id":"5"}`, apitest.Path("id", id)).WantError(t, 502, "discord_send_failed")
		s.Do(t, "createTicketMessage", `{"content":"A note","author_id":"5","internal":true}`, apitest.Path("id", id)).Want(t, 201, "")
		for _, operation := range []string{"closeTicket", "reopenTicket", "closeTicket"} {
			s.Do(t, operation, "", apitest.Path("id", id)).Want(t, 200, "")
			if err := tickets.SyncChannel(t.Context(), s.DB(), chat.Off{}, s.Guild, id); err != nil {
				t.Errorf("%s: after %s its channel fails: %v", action, operation, err)
			}
		}
		left := dbtest.Value[string](t, s.DB(), `SELECT channel_id || ' ' || (channel_due_at IS NULL) FROM tickets WHERE id = $1`, id)
		if left != channelOf(1)+" true" {
			t.Errorf("%s: of its channel there is %s", action, left)
		}
		if n := dbtest.Value[int](t, s.DB(), `SELECT count(*) FROM chat_intents WHERE state IN ('pending', 'sending')`); n != 0 {
			t.Errorf("%d messages wait", n)
		}
	}
}
