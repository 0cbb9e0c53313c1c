package tickets_test

import (
	"fmt"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
)

// Entries that a bot writes are counted in their own ticket only, and notes do not count as
// messages.
func TestEntriesAreCountedInTheirOwnTicket(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	id, other := ticket(t, s.API, 1, "open", true), ticket(t, s.API, 2, "open", true)
	bot := s.Bot(t).In(s.Guild)
	write := func(ticket, entry, kind string, minute int) {
		t.Helper()
		bot.Do(t, "writeRecords", fmt.Sprintf(`{"records":[{"record":"ticket_message","ticket_id":%q,"id":%q,"kind":%q,"content":"x",`+
			`"author_type":"staff","created_at":"2024-01-01T00:%02d:00Z"}]}`, ticket, entry, kind, minute)).Want(t, 200, "")
	}
	write(other, "b1", "message", 5)
	// Values that differ from the entries, so that the test would notice a recount.
	dbtest.Exec(t, s.API.DB(), `UPDATE tickets SET last_message_at = '2025-01-01', message_count = 7 WHERE id = $1`, other)
	was := rowOf(t, s, other)
	for _, step := range []struct {
		entry, kind string
		minute      int
		shows       string
	}{
		{"a1", "message", 1, `{"message_count":1,"last_message_at":"2024-01-01T00:01:00.000Z"}`},
		{"a2", "message", 9, `{"message_count":2,"last_message_at":"2024-01-01T00:09:00.000Z"}`},
		{"a2", "note", 9, `{"message_count":1,"last_message_at":"2024-01-01T00:01:00.000Z"}`},
	} {
		write(id, step.entry, step.kind, step.minute)
		s.Do(t, "getTicket", "", apitest.Path("id", id)).Want(t, 200, `{"data":`+step.shows+`}`)
		if got := rowOf(t, s, other); got != was {
			t.Errorf("after %s of %s the other ticket was %s\nand is %s", step.kind, step.entry, was, got)
		}
	}
}
