package giveaways_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/chat/chattest"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/giveaways"
)

// posted creates a giveaway with its message and returns the ids of both. No worker runs.
func (s giveawayAPI) posted(server *chattest.Server) (id, message string) {
	s.t.Helper()
	stop := s.work(discord(s.t, server.URL))
	defer stop()
	id = s.create("A hat", 1)
	return id, s.message(server, id)
}

// edit runs the lane's step once, as it is due.
func (s giveawayAPI) edit(server *chattest.Server, id string) error {
	s.t.Helper()
	return giveaways.Edit(context.Background(), s.DB(), discord(s.t, server.URL), s.Guild, id)
}

// edits counts the calls that edit a message.
func edits(server *chattest.Server) (n int) {
	for _, call := range server.Calls() {
		if strings.HasPrefix(call, "PATCH ") {
			n++
		}
	}
	return n
}

// The message shows each change that the API or a record makes of a giveaway.
// RELIABILITY.md, Giveaways.
func TestTheMessageShowsEachChange(t *testing.T) {
	t.Parallel()
	s, server := opened(t)
	id, message := s.posted(server)
	at := apitest.Path("id", id)
	call := func(operation, body string) func() { return func() { s.Do(t, operation, body, at).Want(t, 200, "") } }
	record := func(rest string) func() {
		return func() {
			s.Bot(t).In(s.Guild).Do(t, "writeRecords", `{"records":[{"record":"giveaway","id":`+quote(id)+`,`+rest+`}]}`).
				Want(t, 200, `{"data":[{"result":"updated"}]}`)
		}
	}
	for _, c := range []struct {
		name, says string
		do         func()
	}{
		{"a prize", "🎉 **A cap**\n\nReact with 🎉 to enter. One winner is drawn ", call("updateGiveaway", `{"prize":"A cap"}`)},
		{"the first prize again", "🎉 **A hat**\n\nReact", call("updateGiveaway", `{"prize":"A hat"}`)},
		{"a description", "🎉 **A hat**\nBlue\n\nReact", call("updateGiveaway", `{"description":"Blue"}`)},
		{"winners", "3 winners are drawn ", call("updateGiveaway", `{"winner_count":3}`)},
		{"the end", "<t:2209075200:f>", call("updateGiveaway", `{"ends_at":"2040-01-02T00:00:00Z"}`)},
		{"the host", "Hosted by <@7>.", call("updateGiveaway", `{"host_id":"7"}`)},
		{"a pause", "Paused. Reactions count; 3 winners are drawn once it runs on. Hosted by <@7>.", call("pauseGiveaway", "")},
		{"a resume", "3 winners are drawn <t:", call("resumeGiveaway", "")},
		{"a record's prize", "🎉 **A scarf**\nBlue\n\nReact", record(`"prize":"A scarf"`)},
		{"a record's pause", "Paused.", record(`"status":"paused"`)},
		{"a record's resume", "React with", record(`"status":"active"`)},
		{"a cancellation", "Cancelled. Nobody wins.", call("cancelGiveaway", "")},
	} {
		s.rested(id)
		before := edits(server)
		c.do()
		if err := s.edit(server, id); err != nil || s.editing(id) || edits(server) != before+1 {
			t.Errorf("%s: %d edits, another is due: %v, %v", c.name, edits(server)-before, s.editing(id), err)
		}
		for _, m := range server.Messages(channel) {
			if m.ID == message && !strings.Contains(m.Content, c.says) {
				t.Errorf("%s: the message says %q", c.name, m.Content)
			}
		}
	}
}

// What the message does not say is no reason to edit it.
func TestTheMessageIsNotEditedForWhatItDoesNotSay(t *testing.T) {
	t.Parallel()
	s, server := opened(t)
	id, _ := s.posted(server)
	s.Do(t, "updateGiveaway", `{"metadata":{"desk.id":"7"}}`, apitest.Path("id", id)).Want(t, 200, "")
	if err := s.edit(server, id); err != nil || s.editing(id) || edits(server) != 0 {
		t.Errorf("%d edits, another is due: %v, %v", edits(server), s.editing(id), err)
	}
}

// Changes within ten seconds of an edit are shown together, by one edit when the ten seconds are
// over. RELIABILITY.md, Giveaways.
func TestAMessageIsEditedOnceInTenSeconds(t *testing.T) {
	t.Parallel()
	s, server := opened(t)
	id, message := s.posted(server)
	change := func(prize string) {
		t.Helper()
		s.Do(t, "updateGiveaway", `{"prize":`+quote(prize)+`}`, apitest.Path("id", id)).Want(t, 200, "")
		if err := s.edit(server, id); err != nil {
			t.Error(err)
		}
	}
	for _, prize := range []string{"A cap", "A scarf", "A glove"} {
		change(prize)
	}
	if n := edits(server); n != 1 || !s.editing(id) {
		t.Errorf("within ten seconds there are %d edits, and another is due: %v", n, s.editing(id))
	}
	s.rested(id)
	if err := s.edit(server, id); err != nil || edits(server) != 2 || s.editing(id) {
		t.Errorf("after ten seconds there are %d edits: %v", edits(server), err)
	}
	change("A cap")
	change("A glove")
	s.rested(id)
	if err := s.edit(server, id); err != nil || edits(server) != 2 || s.editing(id) {
		t.Errorf("there are %d edits of a message that says what is true: %v", edits(server), err)
	}
	if i := slices.IndexFunc(server.Messages(channel), func(m chattest.Message) bool { return m.ID == message }); i < 0 ||
		!strings.Contains(server.Messages(channel)[i].Content, "A glove") {
		t.Errorf("the channel has %+v", server.Messages(channel))
	}
}

// An edit without a response may have been carried out, so the message is edited even if the change
// is taken back. RELIABILITY.md, Giveaways.
func TestAChangeThatIsTakenBackDuringAnEditIsShown(t *testing.T) {
	t.Parallel()
	s, server := opened(t)
	id, message := s.posted(server)
	change := func(prize string) {
		s.Do(t, "updateGiveaway", `{"prize":`+quote(prize)+`}`, apitest.Path("id", id)).Want(t, 200, "")
	}
	change("A cap")
	server.In(channel, chattest.Lose())
	if err := s.edit(server, id); err == nil {
		t.Fatal("the response was not lost")
	}
	server.In(channel, nil)
	change("A hat")
	dbtest.Exec(t, s.DB(), `UPDATE giveaways SET edit_at = now() WHERE id = $1`, id)
	if err := s.edit(server, id); err != nil || s.editing(id) {
		t.Fatal(err)
	}
	for _, m := range server.Messages(channel) {
		if m.ID == message && !strings.Contains(m.Content, "**A hat**") {
			t.Errorf("the message says %q", m.Content)
		}
	}
}

// An edit that fails for good says why in post_problem, once, and a later edit that succeeds takes
// it back. RELIABILITY.md, Giveaways.
func TestAGiveawaySaysWhatIsWrongWithItsMessage(t *testing.T) {
	t.Parallel()
	s, server := opened(t)
	id, message := s.posted(server)
	at := apitest.Path("id", id)
	change := func() {
		t.Helper()
		s.rested(id)
		s.Do(t, "pauseGiveaway", "", at).Want(t, 200, "")
		s.WantEvent(t, "giveaway.paused", "")
		s.Do(t, "updateGiveaway", `{"prize":`+quote("A hat "+strings.Repeat("!", edits(server)))+`}`, at).Want(t, 200, "")
		s.WantEvent(t, "giveaway.updated", `{"data":{"changed":["prize"]}}`)
		s.Do(t, "resumeGiveaway", "", at).Want(t, 200, "")
		s.WantEvent(t, "giveaway.resumed", "")
		_ = s.edit(server, id)
		if s.editing(id) {
			t.Error("the edit is to be made again")
		}
	}
	told := func(problem any) {
		t.Helper()
		s.WantEvent(t, "giveaway.updated", `{"origin":{"type":"system"},"data":{"id":`+quote(id)+`,"changed":["post_problem"],"author_id":null,
			"post_problem":`+quote(problem)+`}}`)
		s.Do(t, "getGiveaway", "", at).Want(t, 200, `{"data":{"post_problem":`+quote(problem)+`}}`)
	}
	s.Do(t, "getGiveaway", "", at).Want(t, 200, `{"data":{"post_problem":null}}`)
	for _, c := range []struct {
		behave  chattest.Behaviour
		problem any
	}{
		{chattest.Refuse(http.StatusForbidden, 50013, "Missing Permissions"), "forbidden"},
		{chattest.Refuse(http.StatusNotFound, 10003, "Unknown Channel"), "no_channel"},
		{chattest.Refuse(http.StatusBadRequest, 50035, "Invalid Form Body"), "failed"},
		{nil, nil},
	} {
		server.In(channel, c.behave)
		change()
		told(c.problem)
		if c.problem != nil {
			change() // found again, told once
		}
	}
	server.DeleteMessage(channel, message)
	change()
	told("deleted")
	s.WantNoEvent(t)
}

// Too many edits of an old message are no reason to give the edit up.
func TestAnEditThatComesTooSoonIsMadeAgain(t *testing.T) {
	t.Parallel()
	s, server := opened(t)
	id, _ := s.posted(server)
	s.Do(t, "updateGiveaway", `{"prize":"A cap"}`, apitest.Path("id", id)).Want(t, 200, "")
	s.WantEvent(t, "giveaway.updated", `{"data":{"changed":["prize"]}}`)
	server.In(channel, chattest.Refuse(http.StatusBadRequest, 30046, "Maximum number of edits to messages older than 1 hour reached"))
	if err := s.edit(server, id); err == nil || !s.editing(id) {
		t.Errorf("the edit is given up: %v", err)
	}
	s.WantNoEvent(t)
}

// Where the message was deleted, the draw takes the entries that records told, or nobody wins; and
// the giveaway says why. RELIABILITY.md, Giveaways.
func TestAGiveawayWhoseMessageIsGoneIsDrawnFromWhatRecordsTold(t *testing.T) {
	t.Parallel()
	for _, recorded := range []bool{false, true} {
		s, server := opened(t)
		id, message := s.posted(server)
		server.React(channel, message, party, "42", "43")
		winners := `[]`
		if recorded {
			winners = `["44"]`
			s.Bot(t).In(s.Guild).Do(t, "writeRecords", `{"records":[{"record":"giveaway_entry","giveaway_id":`+quote(id)+`,"user_id":"44"}]}`).
				Want(t, 200, `{"data":[{"result":"created"}]}`)
		}
		server.DeleteMessage(channel, message)
		stop := s.work(discord(t, server.URL))
		s.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, `{"data":{"post_problem":null}}`)
		s.WantEvent(t, "giveaway.drawing", "")
		s.untilEnded(id)
		s.WantEvent(t, "giveaway.updated", `{"data":{"changed":["post_problem"],"post_problem":"deleted","status":"drawing"}}`)
		s.WantEvent(t, "giveaway.ended", `{"data":{"winners":`+winners+`,"post_problem":"deleted"}}`)
		testutil.Eventually(t, "the last edit", func() bool { return !s.editing(id) })
		s.WantNoEvent(t)
		stop()
	}
}
