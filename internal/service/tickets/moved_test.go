package tickets_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/chat/chattest"
	"guildhall/internal/server/api/apitest"
)

// moves sends a record by which the bot sets a ticket's status and its channel.
func (s ticketAPI) moves(t *testing.T, id, status string, number int) {
	t.Helper()
	s.API.Bot(t).In(s.Guild).Do(t, "writeRecords", `{"tell":false,"records":[{"record":"ticket","id":"`+id+`","status":"`+status+`",
		"channel_id":"`+channelOf(number)+`"}]}`).Want(t, 200, `{"data":[{"result":"updated"}]}`)
}

// The bot reopens a ticket in another channel while its old channel is being deleted.
func TestATicketKeepsTheChannelThatItGetsWhileItsOldOneIsDeleted(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	dbtest.Exec(t, s.API.DB(), `UPDATE guild_settings SET close_action = 'delete' WHERE guild_id = $1`, s.Guild)
	id := ticket(t, s.API, 1, "open", true)
	s.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
	release, begun, done := make(chan struct{}), make(chan struct{}, 1), make(chan error)
	s.platform.In(channelOf(1), notify(begun, chattest.Until(release)))
	go func() { done <- s.syncChannel(id) }()
	<-begun
	s.moves(t, id, "open", 2)
	moved := s.Do(t, "getTicket", "", apitest.Path("id", id)).Str(t, "data.updated_at")
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := s.platform.State(channelOf(1)); got != "deleted" {
		t.Errorf("the old channel is %q", got)
	}
	s.Do(t, "getTicket", "", apitest.Path("id", id)).
		Want(t, 200, `{"data":{"status":"open","channel_id":"`+channelOf(2)+`","updated_at":"`+moved+`"}}`)
}

// The bot moves a ticket from an archived thread to a text channel: closing the ticket again denies
// writing in that channel.
func TestAnotherChannelOfATicketIsArchivedAsItIs(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	id := ticket(t, s.API, 1, "open", true)
	s.platform.Text(channelOf(2), chattest.Overwrite{ID: "4000", Type: 1, Allow: 1<<10 | 1<<11})
	for number := 1; number <= 2; number++ {
		s.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
		if err := s.syncChannel(id); err != nil {
			t.Fatal(err)
		}
		if number == 1 {
			s.moves(t, id, "open", 2)
		}
	}
	if got := s.platform.Overwrites(channelOf(2))["4000"]; got.Deny&(1<<11) == 0 {
		t.Errorf("in the archived channel the opener has %+v and can write", got)
	}
	lock := dbtest.Value[string](t, s.API.DB(), `SELECT channel_lock::text FROM tickets WHERE id = $1`, id)
	if !strings.Contains(lock, "4000") {
		t.Errorf("noted is %s", lock)
	}
}

// The bot moves a closed ticket while its old channel is being read or archived: the new channel is
// archived too, and the stored permissions are those of the new one. RELIABILITY.md, Messages.
func TestAClosedTicketThatMovesMeanwhileIsArchivedWhereItIs(t *testing.T) {
	t.Parallel()
	for at, lookup := range map[string]bool{"lookup": true, "change": false} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			s := newTicketAPI(t)
			id := closedTicket(t, s, 1)
			s.platform.Text(channelOf(2), chattest.Overwrite{ID: "4000", Type: 1, Allow: 1<<10 | 1<<11})
			var once sync.Once
			move := func(http.ResponseWriter, *http.Request, func() any) bool {
				once.Do(func() { s.moves(t, id, "closed", 2) })
				return false
			}
			if lookup {
				s.platform.Lookup(channelOf(1), move)
			} else {
				s.platform.In(channelOf(1), move)
			}
			if err := s.syncChannel(id); (err != nil) != lookup { // nothing was stored: the error is returned, and the work is retried
				t.Fatal(err)
			}
			if touched := s.platform.Overwrites(channelOf(1))["4000"].Deny != 0; touched == lookup {
				t.Errorf("the old channel is locked: %t", touched)
			}
			if err := s.syncChannel(id); err != nil {
				t.Fatal(err)
			}
			if got := s.platform.Overwrites(channelOf(2))["4000"]; got.Deny&(1<<11) == 0 {
				t.Errorf("in the channel that it has now the opener has %+v and can write", got)
			}
			s.Do(t, "reopenTicket", "", apitest.Path("id", id)).Want(t, 200, "")
			if err := s.syncChannel(id); err != nil {
				t.Fatal(err)
			}
			if got := s.platform.Overwrites(channelOf(2))["4000"]; got.Allow != 1<<10|1<<11 || got.Deny != 0 {
				t.Errorf("opened again, the opener has %+v there", got)
			}
		})
	}
}

// The bot changes a ticket whose channel is archived and repeats the channel's id: when the ticket
// is reopened, the opener gets the permissions back.
func TestATicketThatStaysKeepsWhatWasNotedOfItsChannel(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	id := closedTicket(t, s, 1)
	s.platform.Text(channelOf(1), chattest.Overwrite{ID: "4000", Type: 1, Allow: 1<<10 | 1<<11})
	if err := s.syncChannel(id); err != nil {
		t.Fatal(err)
	}
	s.moves(t, id, "open", 1)
	s.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
	s.Do(t, "reopenTicket", "", apitest.Path("id", id)).Want(t, 200, "")
	if err := s.syncChannel(id); err != nil {
		t.Fatal(err)
	}
	if got := s.platform.Overwrites(channelOf(1))["4000"]; got.Allow != 1<<10|1<<11 || got.Deny != 0 {
		t.Errorf("the opener has %+v", got)
	}
}

// A ticket loses its channel while work on it is due: the bot sends a record without channel, or
// the ticket is reopened while the channel is deleted. Nothing is due then, and no lane finds the
// ticket. RELIABILITY.md, Messages.
func TestNothingIsDueOfATicketThatHasLostItsChannel(t *testing.T) {
	t.Parallel()
	for name, byRecord := range map[string]bool{"by a record": true, "while it is opened again": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTicketAPI(t)
			dbtest.Exec(t, s.API.DB(), `UPDATE guild_settings SET close_action = 'delete' WHERE guild_id = $1`, s.Guild)
			id := ticket(t, s.API, 1, "open", true)
			s.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
			bot, want := s.API.Bot(t).In(s.Guild), "closed"
			if byRecord {
				bot.Do(t, "writeRecords", `{"records":[{"record":"ticket","id":"`+id+`","channel_id":null}]}`).Want(t, 200, "")
			} else {
				want = "open"
				s.platform.In(channelOf(1), func(http.ResponseWriter, *http.Request, func() any) bool {
					s.Do(t, "reopenTicket", "", apitest.Path("id", id)).Want(t, 200, "")
					return false
				})
			}
			if err := s.syncChannel(id); err != nil {
				t.Fatal(err)
			}
			left := dbtest.Value[string](t, s.DB(), `SELECT concat_ws(' ', status, channel_id, channel_due_at) FROM tickets WHERE id = $1`, id)
			if left != want {
				t.Errorf("the ticket, its channel, and since when that is due: %s", left)
			}
			if n := s.due(t, time.Hour); n != 0 {
				t.Errorf("a lane finds it")
			}
		})
	}
}
