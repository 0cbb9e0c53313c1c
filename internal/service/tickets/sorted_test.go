package tickets_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
)

func TestStaffEditATicketOpenOrClosed(t *testing.T) {
	t.Parallel()
	a := apitest.New(t, apitest.Scopes("tickets:read", "tickets:write"))
	for i, status := range []string{"open", "closed"} {
		at := apitest.Path("id", ticket(t, a, i+1, status, true))
		a.Do(t, "updateTicket", `{"subject":"Lost role","category":"Roles","priority":"urgent","metadata":{"desk.id":"7"},"author_id":"55"}`, at).
			Want(t, 200, `{"data":{"subject":"Lost role","category":"Roles","priority":"urgent","metadata":{"desk.id":"7"},"status":"`+status+`"}}`)
		a.WantEvent(t, "ticket.updated",
			`{"data":{"changed":["subject","metadata","category","priority"],"author_id":"55","category":"Roles","priority":"urgent"}}`)
		a.Do(t, "updateTicket", `{"priority":"urgent","metadata":{"desk.id":"7"}}`, at).Want(t, 200, `{"data":{"priority":"urgent"}}`)
		a.WantNoEvent(t)
		a.Do(t, "updateTicket", `{"category":null,"subject":null}`, at).
			Want(t, 200, `{"data":{"category":null,"subject":null,"priority":"urgent"}}`)
		a.WantEvent(t, "ticket.updated", `{"data":{"changed":["subject","category"],"author_id":null}}`)
	}
	at := apitest.Path("id", ticket(t, a, 3, "open", true))
	for _, body := range []string{
		`{}`, `{"author_id":"55"}`, `{"priority":null}`, `{"priority":"soon"}`, `{"category":""}`,
		`{"category":"` + strings.Repeat("x", 51) + `"}`,
	} {
		a.Do(t, "updateTicket", body, at).WantError(t, 400, "invalid_request")
	}
	a.Do(t, "updateTicket", `{"priority":"low"}`, apitest.Path("id", "none")).WantError(t, 404, "not_found")
	many := `{"metadata":{`
	for i := range 21 {
		many += strings.Repeat(",", min(i, 1)) + `"n` + string(rune('a'+i)) + `":"v"`
	}
	a.Do(t, "updateTicket", many+`}}`, at).WantError(t, 422, "too_much_metadata")
}

func TestTicketsAreListedByCategoryAndPriority(t *testing.T) {
	t.Parallel()
	a := apitest.New(t, apitest.Scopes("tickets:read"))
	for i := range 6 {
		ticket(t, a, i+1, []string{"open", "closed"}[i%2], true)
	}
	dbtest.Exec(t, a.DB(), `UPDATE tickets SET category = 'Roles' WHERE number <= 3`)
	dbtest.Exec(t, a.DB(), `UPDATE tickets SET priority = 'high' WHERE number IN (2, 3, 4)`)
	dbtest.Exec(t, a.DB(), `UPDATE tickets SET claimed_by_id = '55' WHERE number IN (3, 4)`)
	for query, want := range map[string]string{
		"category=Roles": "3 2 1", "priority=high": "4 3 2", "category=Roles priority=high": "3 2", "category=Roles status=closed": "2",
		"priority=high status=open": "3", "priority=high claimed_by_id=none": "2", "category=Roles claimed_by_id=none": "2 1",
		"category=Roles claimed_by_id=55": "3", "category=None": "", "category=Roles order=activity status=open": "3 1",
		"priority=high order=activity": "4 3 2", "category=Roles updated_since=2020-01-01T00:00:00Z": "1 2 3", "priority=normal number=1": "1",
		"category=Roles channel_id=704": "", "priority=high channel_id=704": "4",
	} {
		var args []apitest.Arg
		for pair := range strings.FieldsSeq(query) {
			name, value, _ := strings.Cut(pair, "=")
			args = append(args, apitest.Query(name, value))
		}
		var page struct {
			Data []struct {
				Number int `json:"number"`
			} `json:"data"`
		}
		a.Do(t, "listTickets", "", args...).Want(t, 200, "").Into(t, &page)
		var got []string
		for _, ticket := range page.Data {
			got = append(got, strconv.Itoa(ticket.Number))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s lists %s, want %s", query, got, want)
		}
	}
	a.Do(t, "listTickets", "", apitest.Query("priority", "soon")).WantError(t, 400, "invalid_request")
}

func TestARecordEditsAndDeletesAMessage(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	id := ticket(t, s.API, 1, "open", true)
	bot := s.Bot(t).In(s.Guild)
	record := func(more string) string {
		return `{"records":[{"record":"ticket_message","ticket_id":"` + id + `","channel_message_id":"901",
			"author_id":"66","author_type":"opener"` + more + `}]}`
	}
	const file = `"attachments":[{"name":"a.png","url":"https://cdn.example/a.png?ex=1","content_type":"image/png","size":2048}]`
	bot.Do(t, "writeRecords", record(`,"content":"My role is gone",`+file)).Want(t, 200, `{"data":[{"result":"created"}]}`)
	bot.WantEvent(t, "ticket.message", `
		{"data":{"content":"My role is gone",`+file+`,"edited_at":null,"deleted_at":null,"original_content":null}}`)

	// The platform signs URLs anew, which does not count as an edit.
	bot.Do(t, "writeRecords", record(`,"content":"My role is gone",`+strings.Replace(file, "ex=1", "ex=2", 1))).
		Want(t, 200, `{"data":[{"result":"updated"}]}`)
	bot.WantEvent(t, "ticket.message_updated", `{"data":{"edited_at":null,"changed":["attachments"]}}`)

	edit := record(`,"content":"My roles are gone","edited_at":"2026-06-15T10:00:00Z"`)
	bot.Do(t, "writeRecords", edit).Want(t, 200, `{"data":[{"result":"updated"}]}`)
	bot.WantEvent(t, "ticket.message_updated", `{"data":{"content":"My roles are gone","edited_at":"2026-06-15T10:00:00.000Z",
		"original_content":"My role is gone","changed":["content"]}}`)
	bot.Do(t, "writeRecords", edit).Want(t, 200, `{"data":[{"result":"unchanged"}]}`)
	bot.WantNoEvent(t)
	bot.Do(t, "writeRecords", record(`,"content":"All roles are gone"`)).Want(t, 200, `{"data":[{"result":"updated"}]}`)
	bot.WantEvent(t, "ticket.message_updated", `{"data":{"content":"All roles are gone","original_content":"My role is gone"}}`)

	gone := record(`,"deleted_at":"2999-01-01T00:00:00Z"`)
	bot.Do(t, "writeRecords", gone).Want(t, 200, `{"data":[{"result":"updated"}]}`)
	bot.WantEvent(t, "ticket.message_updated", `{"data":{"content":"All roles are gone","changed":["deleted_at"]}}`)
	for _, again := range []string{gone, record(`,"deleted_at":null,"edited_at":null`)} {
		bot.Do(t, "writeRecords", again).Want(t, 200, `{"data":[{"result":"unchanged"}]}`)
	}
	bot.WantNoEvent(t)
	s.Do(t, "getTicket", "", apitest.Path("id", id)).Want(t, 200, `{"data":{"message_count":1}}`)
	shown := s.Do(t, "listTicketMessages", "", apitest.Path("id", id)).Want(t, 200, `{"data":[{"content":"All roles are gone"}]}`)
	if at := shown.All(t, "deleted_at")[0]; at >= "2999" {
		t.Errorf("it was deleted at %s, which lies ahead", at)
	}
	for _, wrong := range []string{
		`"attachments":[{"name":"a","url":"http://cdn.example/a"}]`, `"attachments":[{"name":"a"}]`,
		`"attachments":[{"name":"a","url":"https://x/a","kind":1}]`,
		`"content":"` + strings.Repeat("x", 4097) + `"`,
		`"attachments":[` + strings.TrimSuffix(strings.Repeat(`{"name":"a","url":"https://x/a"},`, 11), ",") + `]`,
	} {
		if a := bot.Do(t, "writeRecords", record(","+wrong)); a.Code() != "invalid_request" {
			t.Errorf("%.70s is answered %d %s", wrong, a.Status, a.Code())
		}
	}
	bot.Do(t, "writeRecords", record(`,"content":"`+strings.Repeat("x", 4096)+`"`)).Want(t, 200, `{"data":[{"result":"updated"}]}`)
}

func TestAChannelHasOneOpenTicket(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	bot := s.Bot(t).In(s.Guild)
	first := ticket(t, s.API, 1, "open", true)
	other := ticket(t, s.API, 2, "closed", true)
	dbtest.Exec(t, s.DB(), `UPDATE tickets SET channel_id = '701' WHERE number = 2`)
	record := func(more string) string { return `{"records":[{"record":"ticket",` + more + `}]}` }

	s.Do(t, "reopenTicket", "", apitest.Path("id", other)).WantError(t, 422, "channel_in_use")
	for _, taken := range []string{`"id":"` + other + `","status":"open"`, `"opener_id":"66","channel_id":"701"`} {
		answer := bot.Do(t, "writeRecords", record(taken)).WantError(t, 422, "channel_in_use")
		if text := answer.Str(t, "error.message"); !strings.Contains(text, "ticket 1,") {
			t.Errorf("the refusal does not name the other ticket: %s", text)
		}
	}
	// One call may close a ticket and open another one in its channel.
	bot.Do(t, "writeRecords", `{"records":[{"record":"ticket","id":"`+other+`","status":"open"},
		{"record":"ticket","id":"`+first+`","status":"closed"}]}`).Want(t, 200, `{"data":[{"result":"updated"},{"result":"updated"}]}`)
	bot.Do(t, "writeRecords", `{"records":[{"record":"ticket","number":11,"opener_id":"66","channel_id":"777"},
		{"record":"ticket","number":12,"opener_id":"67","channel_id":"777"}]}`).WantError(t, 422, "channel_in_use")
	bot.Do(t, "writeRecords", `{"on_refusal":"skip","records":[{"record":"ticket","number":11,"opener_id":"66","channel_id":"777"},
		{"record":"ticket","number":12,"opener_id":"67","channel_id":"777"}]}`).
		Want(t, 200, `{"data":[{"result":"created"},{"result":"refused"}]}`)
}

func TestTwoWhoWantAChannelAtOnceGetOneTicket(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	bot := s.Bot(t).In(s.Guild)
	for round := range 10 {
		channel := string(rune('1'+round%9)) + "0" + strings.Repeat("7", round+1)
		var statuses [4]int
		var callers sync.WaitGroup
		for i := range statuses {
			callers.Go(func() {
				answer := bot.Do(t, "writeRecords", `{"records":[{"record":"ticket","opener_id":"66","channel_id":"`+channel+`"}]}`)
				statuses[i] = answer.Status
			})
		}
		callers.Wait()
		made := 0
		for _, status := range statuses {
			switch status {
			case 200:
				made++
			case 422:
			default:
				t.Errorf("a call is answered %d", status)
			}
		}
		if made != 1 {
			t.Errorf("%d of %d calls have opened a ticket in a channel", made, len(statuses))
		}
	}
}
