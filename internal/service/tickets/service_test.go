package tickets_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
)

func TestListTickets(t *testing.T) {
	t.Parallel()
	a := apitest.New(t, apitest.Scopes("tickets:read"))
	var ids []string
	for i := range 5 {
		ids = append(ids, ticket(t, a, i+1, []string{"open", "closed"}[i%2], true))
	}
	dbtest.Exec(t, a.DB(), `UPDATE tickets SET claimed_by_id = '55' WHERE number IN (1, 2)`)
	dbtest.Exec(t, a.DB(), `UPDATE tickets SET opener_id = '4001' WHERE number IN (2, 3)`)
	dbtest.Exec(t, a.DB(), `UPDATE tickets
		SET last_message_at = (now() AT TIME ZONE 'UTC' - number * interval '1 minute') AT TIME ZONE 'UTC' WHERE number IN (2, 4)`)
	dbtest.Exec(t, a.DB(), `UPDATE tickets SET metadata = '{"shop":"a:b"}' WHERE number IN (2, 3, 4)`)
	ticket(t, a.Next(t), 9, "open", true)

	for name, tc := range map[string]struct {
		args []apitest.Arg
		want []int
	}{
		"newest first, of this guild": {nil, []int{5, 4, 3, 2, 1}},
		"by status":                   {[]apitest.Arg{apitest.Query("status", "closed")}, []int{4, 2}},
		"by opener":                   {[]apitest.Arg{apitest.Query("opener_id", "4001")}, []int{3, 2}},
		"by who claimed":              {[]apitest.Arg{apitest.Query("claimed_by_id", "55")}, []int{2, 1}},
		"by who claimed and status":   {[]apitest.Arg{apitest.Query("claimed_by_id", "55"), apitest.Query("status", "open")}, []int{1}},
		"by opener, claim and status": {[]apitest.Arg{
			apitest.Query("opener_id", "4001"), apitest.Query("claimed_by_id", "55"),
			apitest.Query("status", "closed"),
		}, []int{2}},
		"by a pair that nothing is": {[]apitest.Arg{apitest.Query("opener_id", "4001"), apitest.Query("claimed_by_id", "56")}, nil},
		"unclaimed":                 {[]apitest.Arg{apitest.Query("claimed_by_id", "none")}, []int{5, 4, 3}},
		"unclaimed and open":        {[]apitest.Arg{apitest.Query("claimed_by_id", "none"), apitest.Query("status", "open")}, []int{5, 3}},
		"unclaimed of an opener":    {[]apitest.Arg{apitest.Query("claimed_by_id", "none"), apitest.Query("opener_id", "4001")}, []int{3}},
		"by channel":                {[]apitest.Arg{apitest.Query("channel_id", "704")}, []int{4}},
		"by number":                 {[]apitest.Arg{apitest.Query("number", "3")}, []int{3}},
		"by another guild's number": {[]apitest.Arg{apitest.Query("number", "9")}, nil},
		"by activity":               {[]apitest.Arg{apitest.Query("order", "activity")}, []int{2, 4, 5, 3, 1}},
		"open by activity":          {[]apitest.Arg{apitest.Query("order", "activity"), apitest.Query("status", "closed")}, []int{2, 4}},
		"as they were created":      {[]apitest.Arg{apitest.Query("order", "created")}, []int{5, 4, 3, 2, 1}},
		"by metadata":               {[]apitest.Arg{apitest.Query("metadata", "shop:a:b")}, []int{4, 3, 2}},
		"by another value":          {[]apitest.Arg{apitest.Query("metadata", "shop:a")}, nil},
		"by metadata and activity":  {[]apitest.Arg{apitest.Query("metadata", "shop:a:b"), apitest.Query("order", "activity")}, []int{2, 4, 3}},
		"by metadata and filters": {[]apitest.Arg{
			apitest.Query("metadata", "shop:a:b"), apitest.Query("claimed_by_id", "none"),
			apitest.Query("status", "closed"), apitest.Query("channel_id", "704"),
		}, []int{4}},
		"by metadata and number": {[]apitest.Arg{apitest.Query("metadata", "shop:a:b"), apitest.Query("number", "1")}, nil},
		"page by page":           {[]apitest.Arg{apitest.Query("page", "2"), apitest.Query("per_page", "2")}, []int{3, 2}},
		"empty beyond the end":   {[]apitest.Arg{apitest.Query("page", "9"), apitest.Query("per_page", "2")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got struct {
				Data []struct {
					ID string `json:"id"`
				} `json:"data"`
				HasMore bool `json:"has_more"`
			}
			a.Do(t, "listTickets", "", tc.args...).Want(t, 200, "").Into(t, &got)
			if len(got.Data) != len(tc.want) || got.HasMore != (name == "page by page") {
				t.Fatalf("got %+v, want %v", got, tc.want)
			}
			for i, n := range tc.want {
				if got.Data[i].ID != ids[n-1] {
					t.Errorf("at %d: got %s, want number %d", i, got.Data[i].ID, n)
				}
			}
		})
	}
	for name, value := range map[string]string{
		"status": "pending", "claimed_by_id": "null", "number": "0", "order": "newest", "channel_id": "none", "updated_since": "yesterday",
	} {
		t.Run("refuses an unknown "+name, func(t *testing.T) {
			t.Parallel()
			a.Do(t, "listTickets", "", apitest.Query(name, value)).WantError(t, 400, "invalid_request")
		})
	}
}

// Every change of a ticket moves it to the end of the list by updated_since.
func TestListTicketsByTheirChanges(t *testing.T) {
	t.Parallel()
	a := apitest.New(t)
	var ids []string
	for i := range 3 {
		ids = append(ids, ticket(t, a, i+1, "open", true))
	}
	dbtest.Exec(t, a.DB(), `UPDATE tickets SET updated_at = (timestamp '2026-01-01' + number * interval '1 day') AT TIME ZONE 'UTC'`)
	since := func(at string, more ...apitest.Arg) *apitest.Response {
		t.Helper()
		return a.Do(t, "listTickets", "", append(more, apitest.Query("updated_since", at))...)
	}
	order := func(res *apitest.Response, want ...int) {
		t.Helper()
		text := ""
		for i, n := range want {
			text += []string{"", ","}[min(i, 1)] + `{"id":"` + ids[n-1] + `"}`
		}
		res.Want(t, 200, `{"data":[`+text+`]}`)
	}
	order(since("2026-01-03T00:00:00Z"), 2, 3)
	order(since("2026-01-03T00:00:00.001Z"), 3)
	a.Do(t, "closeTicket", `{"author_id":"55"}`, apitest.Path("id", ids[1])).Want(t, 200, "")
	order(since("2026-01-01T00:00:00Z"), 1, 3, 2)
	a.Do(t, "createTicketMessage", `{"content":"a note","internal":true}`, apitest.Path("id", ids[0])).Want(t, 201, "")
	order(since("2026-01-01T00:00:00Z"), 3, 2, 1)
	a.Do(t, "assignTicket", `{"user_id":"56"}`, apitest.Path("id", ids[2])).Want(t, 200, "")
	order(since("2026-01-01T00:00:00Z", apitest.Query("order", "activity")), 2, 1, 3)
	order(since("2026-01-01T00:00:00Z", apitest.Query("status", "open"), apitest.Query("claimed_by_id", "none")), 1)
	order(since("2026-01-01T00:00:00Z", apitest.Query("page", "2"), apitest.Query("per_page", "2")), 3)
}

// The ticket, the transcript and the event name the person who closes, reopens or assigns, if the
// caller names one.
func TestWhoChangedATicketIsAttributed(t *testing.T) {
	t.Parallel()
	a := apitest.New(t)
	id := apitest.Path("id", ticket(t, a, 1, "open", true))
	a.Do(t, "assignTicket", `{"user_id":"56","author_id":"55"}`, id).Want(t, 200, `{"data":{"claimed_by_id":"56"}}`)
	a.WantEvent(t, "ticket.assigned", `{"data":{"claimed_by_id":"56"}}`)
	a.Do(t, "closeTicket", `{"author_id":"57","reason":null}`, id).Want(t, 200, `{"data":{"closed_by_id":"57","close_reason":null}}`)
	a.WantEvent(t, "ticket.closed", `{"data":{"closed_by_id":"57"}}`)
	a.Do(t, "reopenTicket", `{"author_id":"58"}`, id).Want(t, 200, `{"data":{"closed_by_id":null}}`)
	a.WantEvent(t, "ticket.reopened", "")
	a.Do(t, "closeTicket", `{"author_id":null}`, id).Want(t, 200, `{"data":{"closed_by_id":null}}`)
	a.WantEvent(t, "ticket.closed", `{"data":{"closed_by_id":null}}`)
	a.Do(t, "listTicketMessages", "", id).Want(t, 200, `{"data":[
		{"kind":"assign","author_id":"55","author_type":"system"},{"kind":"close","author_id":"57","author_type":"system"},
		{"kind":"reopen","author_id":"58"},{"kind":"close","author_id":null}]}`)
	for _, op := range []string{"closeTicket", "reopenTicket"} {
		a.Do(t, op, `{"author_id":"nobody"}`, id).WantError(t, 400, "invalid_request")
	}
	a.Do(t, "assignTicket", `{"author_id":"55"}`, id).WantError(t, 400, "invalid_request")
}

func TestGetTicket(t *testing.T) {
	t.Parallel()
	a := apitest.New(t, apitest.Scopes("tickets:read"))
	id := ticket(t, a, 7, "open", true)
	a.Do(t, "getTicket", "", apitest.Path("id", id)).Want(t, 200, `{"data":{"id":"`+id+`","number":7,"status":"open",
		"subject":null,"opener_id":"4000","claimed_by_id":null,"channel_id":"707","close_reason":null,"closed_by_id":null,
		"message_count":0,"last_message_at":null,"closed_at":null}}`)
	a.Do(t, "getTicket", "", apitest.Path("id", strings.Repeat("x", 65))).WantError(t, 404, "not_found")
	a.Do(t, "getTicket", "", apitest.Path("id", id), apitest.Query("expand", "opener")).WantError(t, 400, "invalid_request")
}

// TestForeign: a ticket of another guild gets the same response as one that does not exist.
func TestForeign(t *testing.T) {
	t.Parallel()
	a := apitest.New(t)
	foreign := ticket(t, a.Next(t), 1, "open", true)
	for _, op := range []struct{ id, body string }{
		{"getTicket", ""},
		{"listTicketMessages", ""},
		{"createTicketMessage", `{"content":"x"}`},
		{"createTicketMessage", `{"content":"x","internal":true}`},
		{"closeTicket", ""},
		{"claimTicket", `{"user_id":"1"}`},
		{"assignTicket", `{"user_id":null}`},
		{"reopenTicket", ""},
	} {
		absent := a.Do(t, op.id, op.body, apitest.Path("id", "never-was")).WantError(t, 404, "not_found")
		hidden := a.Do(t, op.id, op.body, apitest.Path("id", foreign)).WantError(t, 404, "not_found")
		if string(absent.Body) != string(hidden.Body) {
			t.Errorf("%s tells %s from %s", op.id, hidden.Body, absent.Body)
		}
	}
	a.WantNoEvent(t)
}

func TestCloseTicket(t *testing.T) {
	t.Parallel()

	t.Run("stores the reason, writes it down and says so", func(t *testing.T) {
		t.Parallel()
		a := apitest.New(t)
		id := apitest.Path("id", ticket(t, a, 1, "open", true))
		a.Do(t, "closeTicket", `{"reason":"Solved "}`, id).Want(t, 200, `{"data":{"status":"closed","close_reason":"Solved ",
			"closed_by_id":null,"channel_id":"701","message_count":0}}`)
		a.WantEvent(t, "ticket.closed", `{"origin":{"type":"api"},"data":{"status":"closed","close_reason":"Solved "}}`)
		a.Do(t, "listTicketMessages", "", id).Want(t, 200, `{"data":[{"kind":"close","content":"Solved ","internal":false,
			"author_id":null,"author_type":"system","channel_message_id":null}]}`)
		var jobs int
		if err := a.DB().Reader().GetContext(context.Background(), &jobs,
			`
				SELECT count(*)
				FROM tickets
				WHERE channel_try_at <= now() AND id = 'ticket-'||$1||'-1'`, a.Guild); err != nil || jobs != 1 {
			t.Errorf("%d jobs, %v, want 1", jobs, err)
		}
	})
	t.Run("needs no reason and no body", func(t *testing.T) {
		t.Parallel()
		a := apitest.New(t)
		id := apitest.Path("id", ticket(t, a, 2, "open", false))
		first := a.Key("close-2").Do(t, "closeTicket", "", id).Want(t, 200, `{"data":{"close_reason":null}}`)
		a.WantEvent(t, "ticket.closed", "")
		a.Do(t, "listTicketMessages", "", id).Want(t, 200, `{"data":[{"kind":"close","content":"Closed."}]}`)
		a.Key("close-2").Do(t, "closeTicket", "", id).WantReplayOf(t, first)
		a.WantNoEvent(t)
	})
	t.Run("only open tickets, and that before the reason", func(t *testing.T) {
		t.Parallel()
		a := apitest.New(t)
		id := apitest.Path("id", ticket(t, a, 3, "closed", true))
		dbtest.Exec(t, a.DB(), `UPDATE guild_settings SET require_close_reason = true WHERE guild_id = $1`, a.Guild)
		a.Do(t, "closeTicket", "", id).WantError(t, 422, "ticket_not_open")
	})
	t.Run("with a reason where the guild wants one", func(t *testing.T) {
		t.Parallel()
		a := apitest.New(t)
		id := apitest.Path("id", ticket(t, a, 4, "open", true))
		dbtest.Exec(t, a.DB(), `UPDATE guild_settings SET require_close_reason = true WHERE guild_id = $1`, a.Guild)
		a.Do(t, "closeTicket", "", id).WantError(t, 422, "close_reason_required")
		a.Do(t, "closeTicket", "{}", id).WantError(t, 422, "close_reason_required")
		a.Do(t, "closeTicket", `{"reason":"  "}`, id).WantError(t, 400, "invalid_request")
		a.Do(t, "closeTicket", `{"reason":"`+strings.Repeat("\U0001F44B", 1001)+`"}`, id).WantError(t, 400, "invalid_request")
		a.WantNoEvent(t)
		a.Do(t, "closeTicket", `{"reason":"`+strings.Repeat("\U0001F44B", 1000)+`"}`, id).Want(t, 200, "")
		a.WantEvent(t, "ticket.closed", "")
	})
}

func TestReopenTicket(t *testing.T) {
	t.Parallel()
	a := apitest.New(t)
	id := apitest.Path("id", ticket(t, a, 1, "open", true))
	a.Do(t, "reopenTicket", "", id).WantError(t, 422, "ticket_not_closed")
	a.Do(t, "claimTicket", `{"user_id":"55"}`, id).Want(t, 200, "")
	a.WantEvent(t, "ticket.claimed", "")
	a.Do(t, "closeTicket", `{"reason":"Solved"}`, id).Want(t, 200, "")
	a.WantEvent(t, "ticket.closed", "")
	a.Do(t, "reopenTicket", `{"reason":""}`, id).WantError(t, 400, "invalid_request")
	a.Do(t, "reopenTicket", "", id).Want(t, 200, `{"data":{"status":"open","claimed_by_id":"55","close_reason":null,
		"closed_by_id":null,"closed_at":null}}`)
	a.WantEvent(t, "ticket.reopened", `{"data":{"status":"open","closed_at":null}}`)
	a.Do(t, "closeTicket", "", id).Want(t, 200, "")
	a.WantEvent(t, "ticket.closed", "")
	a.Do(t, "reopenTicket", `{"reason":"Not solved"}`, id).Want(t, 200, "")
	a.Do(t, "listTicketMessages", "", id).Want(t, 200, `{"data":[{"kind":"claim"},{"kind":"close"},
		{"kind":"reopen","content":"Reopened.","author_type":"system"},{"kind":"close"},{"kind":"reopen","content":"Not solved"}]}`)
}

func TestClaimTicket(t *testing.T) {
	t.Parallel()
	a := apitest.New(t)
	id := apitest.Path("id", ticket(t, a, 1, "open", true))
	a.Do(t, "claimTicket", `{"user_id":"0"}`, id).WantError(t, 400, "invalid_request")
	a.Do(t, "claimTicket", `{"user_id":"55"}`, id).Want(t, 200, `{"data":{"status":"open","claimed_by_id":"55"}}`)
	a.WantEvent(t, "ticket.claimed", `{"data":{"claimed_by_id":"55"}}`)
	a.Do(t, "claimTicket", `{"user_id":"55"}`, id).Want(t, 200, `{"data":{"claimed_by_id":"55"}}`)
	a.Do(t, "claimTicket", `{"user_id":"56"}`, id).WantError(t, 422, "ticket_already_claimed")
	a.WantNoEvent(t)
	a.Do(t, "listTicketMessages", "", id).Want(t, 200, `{"data":[{"kind":"claim","content":"Claimed by 55."}]}`)
	closed := apitest.Path("id", ticket(t, a, 2, "closed", true))
	a.Do(t, "claimTicket", `{"user_id":"55"}`, closed).WantError(t, 422, "ticket_not_open")
}

// A change gets a later instant than the previous change of the same ticket, whatever the instants
// of other tickets are.
func TestAChangeIsDatedByItsOwnTicket(t *testing.T) {
	t.Parallel()
	a := apitest.New(t)
	first, ahead := apitest.Path("id", ticket(t, a, 1, "open", true)), apitest.Path("id", ticket(t, a, 2, "open", true))
	dbtest.Exec(t, a.DB(), `UPDATE tickets SET updated_at = now() + interval '1 hour' WHERE number = 2`)
	dated := func(path apitest.Arg) string { return a.Do(t, "getTicket", "", path).Str(t, "data.updated_at") }
	before := dated(ahead)
	a.Do(t, "claimTicket", `{"user_id":"55"}`, first).Want(t, 200, "")
	a.Do(t, "claimTicket", `{"user_id":"55"}`, ahead).Want(t, 200, "")
	if one, two := dated(first), dated(ahead); one >= before || two <= before {
		t.Errorf("the other ticket's change is dated %s, the one's of %s %s", one, before, two)
	}
}

func TestAssignTicket(t *testing.T) {
	t.Parallel()
	a := apitest.New(t)
	id := apitest.Path("id", ticket(t, a, 1, "open", true))
	a.Do(t, "assignTicket", `{}`, id).WantError(t, 400, "invalid_request")
	a.Do(t, "assignTicket", `{"user_id":"55"}`, id).Want(t, 200, `{"data":{"claimed_by_id":"55"}}`)
	a.WantEvent(t, "ticket.assigned", `{"data":{"claimed_by_id":"55"}}`)
	a.Do(t, "assignTicket", `{"user_id":"55"}`, id).Want(t, 200, "")
	a.WantNoEvent(t)
	a.Do(t, "assignTicket", `{"user_id":"56"}`, id).Want(t, 200, `{"data":{"claimed_by_id":"56"}}`)
	a.WantEvent(t, "ticket.assigned", "")
	a.Do(t, "assignTicket", `{"user_id":null}`, id).Want(t, 200, `{"data":{"claimed_by_id":null}}`)
	a.WantEvent(t, "ticket.assigned", `{"data":{"claimed_by_id":null}}`)
	a.Do(t, "listTicketMessages", "", id).Want(t, 200, `{"data":[{"kind":"assign","content":"Assigned to 55."},
		{"kind":"assign","content":"Assigned to 56."},{"kind":"assign","content":"Assigned to nobody."}]}`)
	closed := apitest.Path("id", ticket(t, a, 2, "closed", true))
	a.Do(t, "assignTicket", `{"user_id":"55"}`, closed).WantError(t, 422, "ticket_not_open")
}

func TestListTicketMessages(t *testing.T) {
	t.Parallel()
	a := apitest.New(t)
	id := ticket(t, a, 1, "open", true)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := range 5 {
		dbtest.Exec(t, a.DB(), `
			INSERT INTO ticket_messages (guild_id, ticket_id, id, kind, author_type, author_id, content, created_at)
			VALUES ($1, $2, $3, 'message', 'opener', '4000', $3, $4)`, a.Guild, id, fmt.Sprintf("m%d", 5-i), at.Add(time.Duration(i/2)*time.Second))
	}
	here := apitest.Path("id", id)
	a.Do(t, "listTicketMessages", "", here).
		Want(t, 200, `{"data":[{"id":"m4"},{"id":"m5"},{"id":"m2"},{"id":"m3"},{"id":"m1"}],"has_more":false}`)
	a.Do(t, "listTicketMessages", "", here, apitest.Query("page", "2"), apitest.Query("per_page", "2")).
		Want(t, 200, `{"data":[{"id":"m2"},{"id":"m3"}],"has_more":true}`)
	a.Do(t, "listTicketMessages", "", here, apitest.Query("since", "2026-03-01T13:00:02+01:00")).Want(t, 200, `{"data":[{"id":"m1"}]}`)
	a.Do(t, "listTicketMessages", "", here, apitest.Query("order", "desc"), apitest.Query("per_page", "2")).
		Want(t, 200, `{"data":[{"id":"m1"},{"id":"m3"}],"has_more":true}`)
	a.Do(t, "listTicketMessages", "", here, apitest.Query("order", "desc"), apitest.Query("page", "2"), apitest.Query("per_page", "2")).
		Want(t, 200, `{"data":[{"id":"m2"},{"id":"m5"}],"has_more":true}`)
	a.Do(t, "listTicketMessages", "", here, apitest.Query("order", "desc"), apitest.Query("since", "2026-03-01T12:00:01Z")).
		Want(t, 200, `{"data":[{"id":"m1"},{"id":"m3"},{"id":"m2"}]}`)
	a.Do(t, "listTicketMessages", "", here, apitest.Query("order", "asc"), apitest.Query("per_page", "1")).
		Want(t, 200, `{"data":[{"id":"m4"}]}`)
	a.Do(t, "listTicketMessages", "", here, apitest.Query("order", "newest")).WantError(t, 400, "invalid_request")
	a.Do(t, "listTicketMessages", "", here, apitest.Query("since", "yesterday")).WantError(t, 400, "invalid_request")
}
