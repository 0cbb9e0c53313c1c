package tickets_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/chat/chattest"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/tickets"
)

// RELIABILITY.md, Messages.
func TestSyncChannel(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	step := func(t *testing.T, s ticketAPI, id, op, state string) {
		t.Helper()
		s.Do(t, op, "", apitest.Path("id", id)).Want(t, 200, "")
		if err := s.syncChannel(id); err != nil {
			t.Fatal(err)
		}
		if got := s.platform.State(channelOf(1)); got != state {
			t.Errorf("after %s the channel is %q, want %q", op, got, state)
		}
	}

	t.Run("archives and restores", func(t *testing.T) {
		t.Parallel()
		s := newTicketAPI(t)
		id := ticket(t, s.API, 1, "open", true)
		step(t, s, id, "closeTicket", "archived")
		step(t, s, id, "reopenTicket", "")
		calls := len(s.platform.Calls())
		if err := s.syncChannel(id); err != nil || len(s.platform.Calls()) != calls {
			t.Errorf("it works when nothing is due: %v", err)
		}
	})

	t.Run("deletes where the guild wants that, and the ticket has no channel then", func(t *testing.T) {
		t.Parallel()
		s := newTicketAPI(t)
		dbtest.Exec(t, s.API.DB(), `UPDATE guild_settings SET close_action = 'delete' WHERE guild_id = $1`, s.Guild)
		id := ticket(t, s.API, 1, "open", true)
		step(t, s, id, "closeTicket", "deleted")
		s.Do(t, "getTicket", "", apitest.Path("id", id)).Want(t, 200, `{"data":{"status":"closed","channel_id":null}}`)
		step(t, s, id, "reopenTicket", "deleted")
		s.Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", id)).WantError(t, 422, "no_ticket_channel")
	})

	t.Run("does what is right now, not what was enqueued", func(t *testing.T) {
		t.Parallel()
		s := newTicketAPI(t)
		id := ticket(t, s.API, 1, "open", true)
		s.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
		step(t, s, id, "reopenTicket", "")
		if err := s.syncChannel(id); err != nil {
			t.Fatal(err)
		}
		if got := s.platform.State(channelOf(1)); got != "" {
			t.Errorf("the late job left the channel %q", got)
		}
	})

	t.Run("notices a change while it is at work", func(t *testing.T) {
		t.Parallel()
		s := newTicketAPI(t)
		id := ticket(t, s.API, 1, "open", true)
		s.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
		release, begun := make(chan struct{}), make(chan struct{}, 1)
		s.platform.In(channelOf(1), notify(begun, chattest.Until(release)))
		done := make(chan error)
		go func() { done <- s.syncChannel(id) }()
		<-begun
		s.platform.In(channelOf(1), nil)
		s.Do(t, "reopenTicket", "", apitest.Path("id", id)).Want(t, 200, "")
		close(release)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := s.platform.State(channelOf(1)); got != "" {
			t.Errorf("the reopened ticket's channel is %q", got)
		}
	})

	t.Run("is tried again after an outage, and after refusals until a day has passed", func(t *testing.T) {
		t.Parallel()
		s := newTicketAPI(t)
		id := ticket(t, s.API, 1, "open", true)
		s.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
		for _, b := range []chattest.Behaviour{
			chattest.Refuse(500, 0, "away"), chattest.Refuse(403, chat.CodeMissingPermission, "No"), chattest.Refuse(401, 0, "No"),
		} {
			s.platform.In(channelOf(1), b)
			if err := s.syncChannel(id); err == nil {
				t.Error("the failure went unnoticed")
			}
		}
		s.platform.In(channelOf(1), nil)
		if err := s.syncChannel(id); err != nil || s.platform.State(channelOf(1)) != "archived" {
			t.Errorf("access is back: %v", err)
		}
		s.Do(t, "reopenTicket", "", apitest.Path("id", id)).Want(t, 200, "")
		s.platform.In(channelOf(1), chattest.Refuse(403, chat.CodeMissingPermission, "No"))
		for _, longer := range []string{`interval '23 hours'`, `interval '2 hours'`} {
			dbtest.Exec(t, s.API.DB(), `UPDATE tickets SET `+dbtest.Earlier(longer, "channel_due_at"))
			if err := s.syncChannel(id); err == nil {
				t.Error("the refusal went unnoticed")
			}
		}
		calls := len(s.platform.Calls())
		if err := s.syncChannel(id); err != nil || len(s.platform.Calls()) != calls {
			t.Errorf("after a day it is still tried: %v", err)
		}
	})

	t.Run("locks a channel that is no thread, and gives back what it took", func(t *testing.T) {
		t.Parallel()
		s := newTicketAPI(t)
		id := ticket(t, s.API, 1, "open", true)
		s.platform.Text(channelOf(1), chattest.Overwrite{ID: "4000", Type: 1, Allow: 1<<10 | 1<<11})
		step(t, s, id, "closeTicket", "")
		if got := s.platform.Overwrites(channelOf(1))["4000"]; got.Allow != 1<<10 || got.Deny&(1<<11) == 0 {
			t.Errorf("the opener has %+v", got)
		}
		step(t, s, id, "reopenTicket", "")
		if got := s.platform.Overwrites(channelOf(1)); len(got) != 1 || got["4000"].Allow != 1<<10|1<<11 || got["4000"].Deny != 0 {
			t.Errorf("the channel has %+v", got)
		}
	})

	t.Run("ends in the ticket's state whatever the order of jobs", func(t *testing.T) {
		t.Parallel()
		for _, leaseOver := range []bool{false, true} {
			s := newTicketAPI(t)
			id := ticket(t, s.API, 1, "open", true)
			s.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
			begun, thaw := make(chan struct{}, 1), make(chan struct{})
			s.platform.In(channelOf(1), func(_ http.ResponseWriter, _ *http.Request, _ func() any) bool {
				begun <- struct{}{}
				<-thaw // the change takes effect only now
				return false
			})
			slow := make(chan error)
			client := chattest.Connect(t, s.platform.URL, chat.Config{})
			go func() { slow <- tickets.SyncChannel(ctx, s.DB(), client, s.Guild, id) }()
			<-begun
			s.platform.In(channelOf(1), nil)
			s.Do(t, "reopenTicket", "", apitest.Path("id", id)).Want(t, 200, "")
			if leaseOver { // another node restores the channel before the first one archives it
				dbtest.Exec(t, s.API.DB(), `UPDATE tickets SET channel_lease_until = now()`)
			}
			if err := s.syncChannel(id); err != nil {
				t.Fatal(err)
			}
			close(thaw)
			if err := <-slow; err != nil {
				t.Fatal(err)
			}
			if got := s.platform.State(channelOf(1)); got != "" {
				t.Errorf("the open ticket's channel is %q", got)
			}
		}
	})

	t.Run("is due again when the lease of a dead node is over", func(t *testing.T) {
		t.Parallel()
		s := newTicketAPI(t)
		id := ticket(t, s.API, 1, "open", true)
		s.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
		if n := s.due(t, 0); n != 1 {
			t.Errorf("%d channels are due at once, want 1", n)
		}
		dying, die := context.WithCancel(ctx)
		if err := tickets.SyncChannel(dying, dyingDoer{s.DB(), die}, s.fail, s.Guild, id); err == nil {
			t.Error("the death of the node went unnoticed")
		}
		if early, later := s.due(t, 15*time.Second), s.due(t, 20*time.Second); early != 0 || later != 1 {
			t.Errorf("%d channels are due within 15 s and %d within 20 s, want 0 and 1", early, later)
		}
	})
}

// A closed ticket whose channel has become that of another open ticket leaves it alone, also where
// its own change of the channel was still due. RELIABILITY.md, Messages.
func TestAClosedTicketLeavesTheChannelOfAnother(t *testing.T) {
	t.Parallel()
	for action, last := range map[string]string{"archive": "archived", "delete": "deleted"} {
		s := newTicketAPI(t)
		dbtest.Exec(t, s.API.DB(), `UPDATE guild_settings SET close_action = $1 WHERE guild_id = $2`, action, s.Guild)
		first := ticket(t, s.API, 1, "open", true)
		record := `{"records":[{"record":"ticket","id":"second","number":2,"opener_id":"66","channel_id":"` + channelOf(1) + `"}]}`
		bot := s.Bot(t).In(s.Guild)
		bot.Do(t, "writeRecords", record).WantError(t, 422, "channel_in_use")
		s.Do(t, "closeTicket", "", apitest.Path("id", first)).Want(t, 200, "")
		bot.Do(t, "writeRecords", record).Want(t, 200, `{"data":[{"result":"created"}]}`)
		if err := s.syncChannel(first); err != nil || s.platform.State(channelOf(1)) != "" {
			t.Errorf("%s: the open ticket's channel is %q: %v", action, s.platform.State(channelOf(1)), err)
		}
		if n := s.due(t, time.Minute); n != 0 {
			t.Errorf("%s: %d channels are due", action, n)
		}
		s.Do(t, "getTicket", "", apitest.Path("id", "second")).
			Want(t, 200, `{"data":{"status":"open","channel_id":`+strconv.Quote(channelOf(1))+`}}`)
		s.Do(t, "closeTicket", "", apitest.Path("id", "second")).Want(t, 200, "")
		if err := s.syncChannel("second"); err != nil || s.platform.State(channelOf(1)) != last {
			t.Errorf("%s: the closed ticket's channel is %q: %v", action, s.platform.State(channelOf(1)), err)
		}
	}
}

// dyingDoer is the database of a node that dies after its first transaction.
type dyingDoer struct {
	*db.DB
	die context.CancelFunc
}

// Do runs one transaction; then the node is dead.
func (d dyingDoer) Do(ctx context.Context, fn func(context.Context, *db.Tx) error) error {
	if ctx.Err() != nil || ctx.Done() == nil { // also for a context that is never cancelled
		return context.Canceled
	}
	defer d.die()
	return d.DB.Do(ctx, fn)
}

// due returns how many channels the lane finds after some time.
func (s ticketAPI) due(t *testing.T, after time.Duration) int {
	t.Helper()
	seconds := int(after.Seconds())
	dbtest.Exec(t, s.API.DB(), `UPDATE tickets SET `+dbtest.Earlier(fmt.Sprintf("interval '%d seconds'", seconds), "channel_try_at"))
	found, err := db.Select[db.Found](t.Context(), s.DB().Reader(), tickets.Channels.Scan(s.DB().Distributed()), "", 100, 100)
	if err != nil {
		t.Fatal(err)
	}
	dbtest.Exec(t, s.API.DB(), `UPDATE tickets SET `+dbtest.Earlier(fmt.Sprintf("interval '%d seconds'", -seconds), "channel_try_at"))
	n := 0
	for _, f := range found {
		if f.ID != "" {
			n++
		}
	}
	return n
}
