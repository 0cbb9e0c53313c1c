package records_test

import (
	"strings"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
)

// message returns a record of a message in ticket t.
func message(members string) string {
	return records(`{"record":"ticket_message","ticket_id":"t",` + members + `}`)
}

func withTicket(t *testing.T) *apitest.API {
	t.Helper()
	bot, _ := bot(t)
	bot.Do(t, "writeRecords", `{"tell":false,"records":[{"record":"ticket","id":"t","opener_id":"42","channel_id":"700"}]}`).Want(t, 200, "")
	return bot
}

// transcript checks the transcript of ticket t, and that the ticket shows its number of messages.
func transcript(t *testing.T, a *apitest.API, want string) {
	t.Helper()
	got := a.Do(t, "listTicketMessages", "", apitest.Path("id", "t")).Want(t, 200, `{"data":[`+want+`]}`)
	count := strings.Count(string(got.Body), `"kind":"message"`)
	if shown := dbtest.Value[int](t, a.DB(), `SELECT message_count FROM tickets WHERE id = 't'`); shown != count {
		t.Errorf("the ticket counts %d messages, the transcript has %d", shown, count)
	}
	if last := dbtest.Value[bool](t, a.DB(), `
		SELECT last_message_at IS NOT DISTINCT FROM (
			SELECT max(created_at) FROM ticket_messages m WHERE m.guild_id = t.guild_id AND m.ticket_id = t.id AND kind = 'message')
		FROM tickets t WHERE id = 't'`); !last {
		t.Error("the ticket shows another instant of its last message than the transcript")
	}
}

func TestAMessageIsMirroredEditedAndLeftAsItIs(t *testing.T) {
	t.Parallel()
	bot := withTicket(t)
	made := bot.Do(t, "writeRecords", message(`"channel_message_id":"900","author_id":"42","author_type":"opener","content":"Help"`)).
		Want(t, 200, `{"data":[{"record":"ticket_message","number":null,"updated_at":null,"result":"created"}]}`)
	id := made.All(t, "id")[0]
	const shown = `"kind":"message","author_id":"42","author_type":"opener","channel_message_id":"900"`
	bot.WantEvent(t, "ticket.message", `{"origin":{"type":"bot"},"data":{"id":"`+id+`",`+shown+`,"content":"Help"}}`)
	bot.Do(t, "writeRecords", message(`"channel_message_id":"900","content":"Help!","created_at":"2020-01-01T00:00:00Z"`)).
		Want(t, 200, `{"data":[{"id":"`+id+`","result":"updated"}]}`)
	bot.WantEvent(t, "ticket.message_updated", `{"data":{"id":"`+id+`",`+shown+`,"content":"Help!"}}`)
	bot.Do(t, "writeRecords", message(`"id":"`+id+`","content":"Help!","author_id":"42"`)).Want(t, 200, `{"data":[{"result":"unchanged"}]}`)
	bot.Do(t, "writeRecords", message(`"channel_message_id":"901","content":" \n"`)).Want(t, 200, `{"data":[{"result":"created"}]}`)
	bot.WantEvent(t, "ticket.message", `{"data":{"content":"[attachment]","author_type":"staff"}}`)
	bot.Do(t, "writeRecords", message(`"channel_message_id":"902","content":"\u200b"`)).Want(t, 200, "")
	bot.WantEvent(t, "ticket.message", `{"data":{"content":"[attachment]"}}`)
	bot.WantNoEvent(t)
	transcript(t, bot, `{"id":"`+id+`",`+shown+`,"content":"Help!"},{"content":"[attachment]"},{"content":"[attachment]"}`)
	if n := due(t, bot); n != 0 {
		t.Errorf("%d channels are due", n)
	}
}

func TestAMessageThatBecomesANoteIsNotCounted(t *testing.T) {
	t.Parallel()
	bot := withTicket(t)
	bot.Do(t, "writeRecords", records(`{"record":"ticket_message","ticket_id":"t","id":"m","content":"a"},
		{"record":"ticket_message","ticket_id":"t","id":"n","content":"b"}`)).Want(t, 200, "")
	transcript(t, bot, `{"id":"m"},{"id":"n"}`)
	bot.Do(t, "writeRecords", message(`"id":"n","kind":"note"`)).Want(t, 200, `{"data":[{"result":"updated"}]}`)
	transcript(t, bot, `{"id":"m","kind":"message"},{"id":"n","kind":"note","internal":true}`)
	bot.Do(t, "writeRecords", message(`"id":"n","kind":"message"`)).Want(t, 200, `{"data":[{"result":"updated"}]}`)
	bot.Do(t, "writeRecords", message(`"id":"m","kind":"note"`)).Want(t, 200, `{"data":[{"result":"updated"}]}`)
	bot.Do(t, "writeRecords", message(`"id":"n","kind":"note"`)).Want(t, 200, `{"data":[{"result":"updated"}]}`)
	transcript(t, bot, `{"id":"m","kind":"note","internal":true},{"id":"n","kind":"note"}`)
}

func TestASystemEntryIsWrittenOnceAndToldByNobody(t *testing.T) {
	t.Parallel()
	bot := withTicket(t)
	bot.Do(t, "writeRecords", records(`{"record":"ticket","id":"t","status":"closed","close_reason":"Done"},
		{"record":"ticket_message","ticket_id":"t","kind":"close","content":"Closed in the channel."}`)).Want(t, 200, "")
	bot.WantEvent(t, "ticket.closed", "")
	bot.WantNoEvent(t)
	transcript(t, bot, `{"kind":"close","author_type":"system","content":"Closed in the channel."}`)
}

func TestMessagesThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	bot := withTicket(t)
	bot.Do(t, "writeRecords", `{"tell":false,"records":[{"record":"ticket","id":"other","opener_id":"42"},
		{"record":"ticket_message","ticket_id":"t","id":"m","channel_message_id":"900","content":"a"},
		{"record":"ticket_message","ticket_id":"t","id":"n","channel_message_id":"901","content":"b"}]}`).Want(t, 200, "")
	for body, place := range map[string]string{
		`{"record":"ticket_message","ticket_id":"t","id":"new"}`:                                   "content",
		`{"record":"ticket_message","ticket_id":"t","channel_message_id":"903"}`:                   "content",
		`{"record":"ticket_message","ticket_id":"other","id":"m","content":"x"}`:                   "ticket_id",
		`{"record":"ticket_message","ticket_id":"t","id":"m","channel_message_id":"901"}`:          "channel_message_id",
		`{"record":"ticket_message","ticket_id":"t","id":"k","channel_message_id":"901"}`:          "id",
		`{"record":"ticket_message","ticket_id":"t","id":"m","internal":true}`:                     "internal",
		`{"record":"ticket_message","ticket_id":"t","content":"x","kind":"claim","internal":true}`: "internal",
	} {
		got := bot.Do(t, "writeRecords", records(body)).WantError(t, 422, "record_refused")
		if !strings.Contains(string(got.Body), "body /records/0/"+place+": ") {
			t.Errorf("%s: %s", body, got.Body)
		}
	}
	bot.Do(t, "writeRecords", records(`{"record":"ticket_message","ticket_id":"t","id":"m","content":"x"},
		{"record":"ticket_message","ticket_id":"t","channel_message_id":"900","content":"y"}`)).WantError(t, 422, "record_refused")
	bot.Do(t, "writeRecords", records(`{"record":"ticket_message","ticket_id":"t","id":"m","content":"x"},
		{"record":"ticket_message","ticket_id":"t","id":"m","content":"y"}`)).WantError(t, 400, "invalid_request")
	bot.Do(t, "writeRecords", records(`{"record":"ticket_message","ticket_id":"none","content":"x"}`)).WantError(t, 404, "not_found")
	bot.Do(t, "writeRecords", message(`"id":"m","content":"x","if_updated_at":"2024-01-01T00:00:00Z"`)).WantError(t, 400, "invalid_request")
	transcript(t, bot, `{"content":"a"},{"content":"b"}`)
	bot.Do(t, "writeRecords", `{"on_refusal":"skip","records":[{"record":"ticket_message","ticket_id":"none","content":"x"},
		{"record":"ticket_message","ticket_id":"t","id":"o","content":"c"}]}`).
		Want(t, 200, `{"data":[{"result":"refused","code":"not_found"},{"id":"o","result":"created"}]}`)
	transcript(t, bot, `{"content":"a"},{"content":"b"},{"content":"c"}`)
}

func TestMessagesOfATicketOfTheSameCallAndOfThePast(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	bot.Do(t, "writeRecords", records(`{"record":"ticket_message","ticket_id":"t","content":"late","created_at":"2090-01-01T00:00:00Z"},
		{"record":"ticket_message","ticket_id":"t","content":"early","created_at":"2024-01-02T03:04:05Z"},{"record":"ticket","id":"t",
			"opener_id":"42"}`)).
		Want(t, 200, `{"data":[{"result":"created"},{"result":"created"},{"record":"ticket","number":1}]}`)
	transcript(t, bot, `{"content":"early","created_at":"2024-01-02T03:04:05.000Z"},{"content":"late"}`)
	if n := dbtest.Value[int](t, bot.DB(), `SELECT count(*) FROM ticket_messages WHERE created_at > now() + interval '1 s'`); n != 0 {
		t.Errorf("%d messages were written in the future", n)
	}
}

// Messages are stored in the order of the call, whatever their ids, after the existing ones. A
// message with a created_at is ordered by it.
func TestMessagesStandInTheOrderOfTheirCall(t *testing.T) {
	t.Parallel()
	bot := withTicket(t)
	message := func(id, rest string) string {
		return `{"record":"ticket_message","ticket_id":"t","id":"` + id + `","content":"x"` + rest + `}`
	}
	dbtest.Exec(t, bot.DB(), `UPDATE tickets SET `+dbtest.Earlier(`interval '1 hour'`, "created_at", "updated_at"))
	bot.Do(t, "writeRecords", records(message("d", "")+","+message("c", "")+","+message("b", ""))).Want(t, 200, "")
	bot.Do(t, "writeRecords", records(message("a", "")+","+message("z", `,"created_at":"2020-01-01T00:00:00Z"`))).Want(t, 200, "")
	transcript(t, bot, `{"id":"z","created_at":"2020-01-01T00:00:00.000Z"},{"id":"d"},{"id":"c"},{"id":"b"},{"id":"a"}`)
	if n := dbtest.Value[int](t, bot.DB(), `SELECT count(*) FROM ticket_messages WHERE created_at > now() - interval '30 minutes'`); n != 4 {
		t.Errorf("%d of 4 are dated when they came", n)
	}
}
