package tickets_test

import (
	"net/http"
	"strings"
	"testing"

	"guildhall/internal/server/api/apitest"
)

// TestABotThatMirrorsAPostChangesItsEntryAlone: the bot sees the message that the API has posted
// and sends a record of it, before or after the transcript has its entry.
func TestABotThatMirrorsAPostChangesItsEntryAlone(t *testing.T) {
	t.Parallel()
	echo := func(ticket, message string) string {
		return strings.NewReplacer("TICKET", ticket, "MESSAGE", message).Replace(
			`{"records":[{"record":"ticket_message","ticket_id":"TICKET","channel_message_id":"MESSAGE","content":"Hello","author_type":"bot"}]}`)
	}
	for name, c := range map[string]struct{ mirrored, sent, was, is string }{
		"before":                   {``, `,"author_id":"77"`, `null`, `"77"`},
		"before, with an author":   {`,"author_id":"66"`, `,"author_id":"77"`, `"66"`, `"66"`},
		"before, and nobody wrote": {``, ``, `null`, `null`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTicketAPI(t)
			id := ticket(t, s.API, 1, "open", true)
			s.Do(t, "claimTicket", `{"user_id":"55"}`, apitest.Path("id", id)).Want(t, 200, "")
			s.WantEvent(t, "ticket.claimed", "")
			bot := s.Bot(t).In(s.Guild)
			s.platform.In(channelOf(1), func(_ http.ResponseWriter, _ *http.Request, accept func() any) bool {
				accept()
				posted := s.platform.Messages(channelOf(1))
				record := strings.Replace(echo(id, posted[len(posted)-1].ID), `}]}`, c.mirrored+`}]}`, 1)
				bot.Do(t, "writeRecords", record).Want(t, 200, `{"data":[{"result":"created"}]}`)
				return false
			})
			s.Do(t, "createTicketMessage", `{"content":"Hello"`+c.sent+`}`, apitest.Path("id", id)).
				Want(t, 201, `{"data":{"author_type":"bot","author_id":`+c.is+`}}`)
			s.Do(t, "listTicketMessages", "", apitest.Path("id", id)).
				Want(t, 200, `{"data":[{"kind":"claim","author_id":null},{"kind":"message","author_id":`+c.is+`}]}`)
			s.wantMessages(t, id, 1, 1, 1)
			bot.WantEvent(t, "ticket.message", `{"data":{"author_id":`+c.was+`}}`)
			if c.is != c.was {
				bot.WantEvent(t, "ticket.message_updated", `{"data":{"author_id":`+c.is+`,"author_type":"bot"}}`)
			}
			bot.WantNoEvent(t)
			// The bot's record came first, and it changes neither the kind nor an existing author.
			edit := strings.NewReplacer("Hello", "Hello!", `"author_type":"bot"`, `"author_type":"staff","kind":"note","author_id":"88"`)
			bot.Do(t, "writeRecords", edit.Replace(echo(id, s.platform.Messages(channelOf(1))[0].ID))).
				Want(t, 200, `{"data":[{"result":"updated"}]}`)
			bot.WantEvent(t, "ticket.message_updated",
				`{"data":{"kind":"message","author_id":`+strings.Replace(c.is, "null", `"88"`, 1)+`,"author_type":"bot","content":"Hello!"}}`)
		})
	}
	t.Run("after", func(t *testing.T) {
		t.Parallel()
		s := newTicketAPI(t)
		id := ticket(t, s.API, 1, "open", true)
		bot := s.Bot(t).In(s.Guild)
		entry := s.Do(t, "createTicketMessage", `{"content":"Hello"}`, apitest.Path("id", id)).Want(t, 201, "").Str(t, "data.id")
		posted := s.platform.Messages(channelOf(1))
		if len(posted) != 1 {
			t.Fatalf("%d messages were posted", len(posted))
		}
		bot.Do(t, "writeRecords", echo(id, posted[0].ID)).Want(t, 200, `{"data":[{"id":"`+entry+`","result":"unchanged"}]}`)
		bot.WantEvent(t, "ticket.message", `{"data":{"author_type":"staff"}}`)
		bot.WantNoEvent(t)
	})
}
