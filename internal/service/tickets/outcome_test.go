package tickets_test

import (
	"net/http"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/chat/chattest"
	"guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/tickets"
)

// channelLeft returns a ticket's channel id, whether work on it is due, and whether permissions are
// stored.
func channelLeft(t *testing.T, s ticketAPI, id string) string {
	t.Helper()
	return dbtest.Value[string](t, s.DB(), `
		SELECT concat_ws(' ', coalesce(channel_id, '-'), channel_due_at IS NOT NULL, channel_lock IS NOT NULL) FROM tickets WHERE id = $1`, id)
}

// The outcome of the work on a closed ticket's channel determines what remains to be done.
func TestAnAttemptOnAChannelLeavesWhatIsStillToDo(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		answers chattest.Behaviour
		owner   bool // the channel belongs to another guild
		fails   bool
		left    string
	}{
		"gone as it is locked":                 {answers: chattest.Refuse(404, chat.CodeUnknownChannel, "Unknown Channel"), left: "- f f"},
		"away for more than a day":             {answers: chattest.Refuse(500, 0, "away"), fails: true, left: "701 t t"},
		"another guild's":                      {owner: true, fails: true, left: "701 f f"},
		"refused once after more than one day": {answers: chattest.Refuse(403, chat.CodeMissingPermission, "No"), fails: true, left: "701 f t"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newTicketAPI(t)
			id := closedTicket(t, s, 1)
			if c.owner {
				s.platform.Give(channelOf(1), s.Next(t).Guild)
			} else if c.left != "- f f" {
				dbtest.Exec(t, s.API.DB(), `UPDATE tickets SET `+dbtest.Earlier(`interval '25 hours'`, "channel_due_at"))
			}
			s.platform.In(channelOf(1), c.answers)
			if err := s.syncChannel(id); (err != nil) != c.fails {
				t.Errorf("the attempt ends with %v", err)
			}
			if left := channelLeft(t, s, id); left != c.left {
				t.Errorf("the ticket has %q, want %q", left, c.left)
			}
		})
	}
}

// In a guild that deletes channels of closed tickets, a ticket that is reopened before the deletion
// keeps its channel.
func TestATicketThatIsReopenedInTimeKeepsItsChannel(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	dbtest.Exec(t, s.API.DB(), `UPDATE guild_settings SET close_action = 'delete' WHERE guild_id = $1`, s.Guild)
	id := closedTicket(t, s, 1)
	s.Do(t, "reopenTicket", "", apitest.Path("id", id)).Want(t, 200, "")
	if err := s.syncChannel(id); err != nil {
		t.Fatal(err)
	}
	if left := channelLeft(t, s, id); left != "701 f f" {
		t.Errorf("the ticket has %q", left)
	}
}

// Work whose outcome cannot be stored has failed, so it is retried.
func TestAnOutcomeThatIsNotNotedIsAFailure(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	id := ticket(t, s.API, 1, "open", true)
	s.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
	s.platform.In(channelOf(1), func(http.ResponseWriter, *http.Request, func() any) bool {
		failWrites(t, s.API, "tickets")
		return false
	})
	if err := s.syncChannel(id); err == nil {
		t.Error("it went unnoticed")
	}
}

// New requires all dependencies.
func TestTheServiceNeedsAllItsParts(t *testing.T) {
	t.Parallel()
	d, keys := &db.DB{}, api.TicketKeys{}
	for _, c := range []struct {
		tickets.Config
		whole bool
	}{
		{tickets.Config{DB: d, Chat: chat.Off{}, Keys: keys}, true},
		{tickets.Config{Chat: chat.Off{}, Keys: keys}, false},
		{tickets.Config{DB: d, Keys: keys}, false},
		{tickets.Config{DB: d, Chat: chat.Off{}}, false},
	} {
		if _, err := tickets.New(c.Config); (err == nil) != c.whole {
			t.Errorf("with %+v: %v", c.Config, err)
		}
	}
}
