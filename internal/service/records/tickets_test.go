package records_test

import (
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
)

// due returns how many channels are due.
func due(t *testing.T, a *apitest.API) int {
	t.Helper()
	return dbtest.Value[int](t, a.DB(), `SELECT count(*) FROM tickets WHERE channel_due_at IS NOT NULL`)
}

func TestATicketLivesByRecordsAndItsChannelIsLeftAlone(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	id := apitest.Path("id", "t")
	bot.Do(t, "writeRecords", records(`{"record":"ticket","id":"t","opener_id":"42","channel_id":"700","metadata":{"a":"b"},
		"created_at":"2024-01-02T03:04:05Z"}`)).
		Want(t, 200, `{"data":[{"record":"ticket","id":"t","number":1,"result":"created"}]}`)
	bot.WantEvent(t, "ticket.opened", `{"origin":{"type":"bot"},"data":{"id":"t","number":1,"status":"open","metadata":{"a":"b"},
		"created_at":"2024-01-02T03:04:05.000Z"}}`)

	bot.Do(t, "writeRecords", records(`{"record":"ticket","id":"t","claimed_by_id":"7","subject":"Roles","opener_id":"43","channel_id":"701",
		"metadata":{"a":null},
		"status":"closed","close_reason":"Done","closed_by_id":"8"}`)).Want(t, 200, `{"data":[{"number":1,"result":"updated"}]}`)
	const final = `"status":"closed","claimed_by_id":"7","subject":"Roles","opener_id":"43","channel_id":"701","metadata":{}`
	bot.WantEvent(t, "ticket.claimed", `{"data":{`+final+`}}`)
	bot.WantEvent(t, "ticket.updated", `{"data":{`+final+`,"changed":["subject","opener_id","channel_id","metadata"]}}`)
	bot.WantEvent(t, "ticket.closed", `{"data":{`+final+`,"close_reason":"Done","closed_by_id":"8"}}`)
	bot.Do(t, "listTicketMessages", "", id).Want(t, 200, `{"data":[{"kind":"claim","author_type":"system","content":"Claimed by 7."},
		{"kind":"close","author_type":"system","author_id":"8","content":"Done"}]}`)

	bot.Do(t, "writeRecords", records(`{"record":"ticket","id":"t","close_reason":"Done at last","closed_at":null}`)).
		Want(t, 200, `{"data":[{"result":"updated"}]}`)
	bot.WantEvent(t, "ticket.updated", `{"data":{"close_reason":"Done at last","changed":["close_reason"]}}`)
	bot.Do(t, "writeRecords", records(`{"record":"ticket","id":"t","status":"open","claimed_by_id":null}`)).
		Want(t, 200, `{"data":[{"result":"updated"}]}`)
	bot.WantEvent(t, "ticket.assigned", `{"data":{"status":"open","claimed_by_id":null}}`)
	bot.WantEvent(t, "ticket.reopened", `{"data":{"status":"open","close_reason":null,"closed_by_id":null,"closed_at":null}}`)
	bot.Do(t, "listTicketMessages", "", id).
		Want(t, 200, `{"data":[{"kind":"claim"},{"kind":"close"},{"kind":"assign","content":"Assigned to nobody."},{"kind":"reopen",
		"content":"Reopened."}]}`)

	at := bot.Do(t, "getTicket", "", id).Str(t, "data.updated_at")
	bot.Do(t, "writeRecords", records(`{"record":"ticket","id":"t","status":"open","subject":"Roles","created_at":"2020-01-01T00:00:00Z",
		"updated_at":"2020-01-01T00:00:00Z"}`)).
		Want(t, 200, `{"data":[{"result":"unchanged","updated_at":"`+at+`"}]}`)
	bot.WantNoEvent(t)
	if n := due(t, bot); n != 0 {
		t.Errorf("%d channels are due", n)
	}
}

// A bot that reads a ticket, changes its status and sends everything back reopens the ticket,
// although closed_at is stored more precisely than it is shown.
func TestAClosedTicketIsOpenedByWhatIsShownOfIt(t *testing.T) {
	t.Parallel()
	bot, back := bot(t)
	bot.Do(t, "writeRecords", records(`{"record":"ticket","id":"t","opener_id":"42"}`)).Want(t, 200, "")
	bot.WantEvent(t, "ticket.opened", "")
	closed := time.Now().AddDate(0, 0, 1).Truncate(time.Millisecond).Add(time.Microsecond)
	dbtest.Exec(t, bot.DB(), `UPDATE tickets SET status = 'closed', close_reason = 'Done', closed_at = $1`, closed)
	shown := back.Do(t, "getTicket", "", apitest.Path("id", "t")).Str(t, "data.closed_at")
	bot.Do(t, "writeRecords", records(`{"record":"ticket","id":"t","status":"open","close_reason":"Done","closed_at":"`+shown+`"}`)).
		Want(t, 200, `{"data":[{"result":"updated"}]}`)
	bot.WantEvent(t, "ticket.reopened", `{"data":{"status":"open","close_reason":null,"closed_at":null}}`)
}

func TestTheEventsOfATicketStandAMillisecondApart(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	bot.Do(t, "writeRecords", `{"tell":false,"records":[{"record":"ticket","id":"t","opener_id":"42"}]}`).Want(t, 200, "")
	bot.WantNoEvent(t)
	at := bot.Do(t, "writeRecords", records(`{"record":"ticket","id":"t","claimed_by_id":"7","subject":"Roles","status":"closed"}`)).
		Want(t, 200, "").All(t, "updated_at")[0]
	got := dbtest.Value[string](t, bot.DB(), `
		SELECT string_agg(type || ' ' || round(extract(epoch FROM date_trunc('milliseconds',
			occurred_at) - $1::timestamptz) * 1000), ', ' ORDER BY occurred_at)
		FROM webhook_events`, at)
	if want := "ticket.claimed -2, ticket.updated -1, ticket.closed 0"; got != want {
		t.Errorf("told are %s, want %s", got, want)
	}
	bot.Do(t, "getTicket", "", apitest.Path("id", "t")).Want(t, 200, `{"data":{"updated_at":"`+at+`"}}`)
}

func TestATicketOfThePastIsOpenedAndClosed(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	bot.Do(t, "writeRecords", records(`{"record":"ticket","number":9,"opener_id":"42","status":"closed","closed_at":"2090-01-01T00:00:00Z"}`)).
		Want(t, 200, `{"data":[{"number":9,"result":"created"}]}`)
	bot.WantEvent(t, "ticket.opened", `{"data":{"number":9,"status":"closed"}}`)
	bot.WantEvent(t, "ticket.closed", `{"data":{"number":9,"status":"closed"}}`)
	bot.Do(t, "writeRecords", records(`{"record":"ticket","opener_id":"43"}`)).Want(t, 200, `{"data":[{"number":10,"result":"created"}]}`)
	bot.WantEvent(t, "ticket.opened", `{"data":{"number":10}}`)
	bot.WantNoEvent(t)
	if n := dbtest.Value[int](t, bot.DB(), `SELECT count(*) FROM tickets WHERE closed_at > now()`); n != 0 {
		t.Errorf("%d tickets were closed in the future", n)
	}
}

func TestTicketsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	bot.Do(t, "writeRecords", records(`{"record":"ticket","id":"t","opener_id":"42"},{"record":"ticket","id":"c","opener_id":"42",
		"status":"closed"}`)).Want(t, 200, "")
	for body, place := range map[string]string{
		`{"record":"ticket","id":"new"}`:                                         "opener_id",
		`{"record":"ticket","opener_id":"1","number":1}`:                         "number",
		`{"record":"ticket","id":"t","number":7}`:                                "number",
		`{"record":"ticket","id":"t","close_reason":"x"}`:                        "close_reason",
		`{"record":"ticket","id":"c","status":"open","closed_by_id":"5"}`:        "closed_by_id",
		`{"record":"ticket","id":"t","closed_at":"2024-01-01T00:00:00Z"}`:        "closed_at",
		`{"record":"ticket","opener_id":"1","status":"open","closed_by_id":"1"}`: "closed_by_id",
	} {
		got := bot.Do(t, "writeRecords", records(body)).WantError(t, 422, "record_refused")
		if !strings.Contains(string(got.Body), "body /records/0/"+place+": ") {
			t.Errorf("%s: %s", body, got.Body)
		}
	}
	bot.Do(t, "writeRecords", records(`{"record":"ticket","id":"t","if_updated_at":null}`)).WantError(t, 422, "record_changed")
}

// The updated_at in a result can be sent as if_updated_at, even if another record of the same call
// has changed the thing again.
func TestAnAnswerHasTheLastInstantOfTheCall(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	a := bot.Do(t, "writeRecords", records(`{"record":"ticket","id":"t","opener_id":"`+one+`"},
		{"record":"ticket_message","ticket_id":"t","channel_message_id":"9","author_id":"`+one+`","content":"hello"},
		{"record":"giveaway","id":"g","prize":"p","channel_id":"7"},{"record":"giveaway_entry","giveaway_id":"g","user_id":"`+one+`"}`)).
		Want(t, 200, `{"data":[{"result":"created"},{"result":"created"},{"result":"created"},{"result":"created"}]}`)
	at := a.All(t, "updated_at")
	bot.Do(t, "getTicket", "", apitest.Path("id", "t")).Want(t, 200, `{"data":{"message_count":1,"updated_at":"`+at[0]+`"}}`)
	bot.Do(t, "getGiveaway", "", apitest.Path("id", "g")).Want(t, 200, `{"data":{"entry_count":1,"updated_at":"`+at[2]+`"}}`)
	bot.Do(t, "writeRecords", records(`{"record":"ticket","id":"t","subject":"s","if_updated_at":"`+at[0]+`"},
		{"record":"giveaway","id":"g","prize":"q","if_updated_at":"`+at[2]+`"}`)).
		Want(t, 200, `{"data":[{"result":"updated"},{"result":"updated"}]}`)
}

func TestARecordThatTakesTheChannelOfAnOpenTicketIsRefused(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	bot.Do(t, "writeRecords", records(`{"record":"ticket","id":"first","opener_id":"42","channel_id":"7"}`)).Want(t, 200, "")
	bot.Do(t, "writeRecords", records(`{"record":"ticket","id":"second","opener_id":"43","channel_id":"7"}`)).
		WantError(t, 422, "channel_in_use")
	bot.Do(t, "writeRecords", records(`{"record":"ticket","id":"first","status":"closed"},
		{"record":"ticket","id":"second","opener_id":"43","channel_id":"7"}`)).Want(t, 200, "")
}
