package tickets_test

import (
	"context"
	"errors"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/chat/chattest"
	"guildhall/internal/outbound/event"
	"guildhall/internal/server/api/apitest"
)

// lose makes the platform lose its responses to one whole call: after it has posted the message, or
// before if not posted.
func (s ticketAPI) lose(posted bool) {
	b := chattest.Lose()
	if !posted {
		b = chattest.Refuse(500, 0, "oops")
	}
	s.platform.Next(b, b, b)
}

// TestTicketClosedMeanwhile: before the ticket's state refuses a repeated request, it is found out
// whether its message was posted. RELIABILITY.md, Messages.
func TestTicketClosedMeanwhile(t *testing.T) {
	t.Parallel()
	const message = `{"content":"x"}`

	t.Run("it was posted", func(t *testing.T) {
		t.Parallel()
		s := newTicketAPI(t)
		id := ticket(t, s.API, 1, "open", true)
		s.lose(true)
		s.Key("k").Do(t, "createTicketMessage", message, apitest.Path("id", id)).WantError(t, 502, "discord_send_failed")
		s.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
		first := s.Key("k").Do(t, "createTicketMessage", message, apitest.Path("id", id)).Want(t, 201, "")
		s.wantMessages(t, id, 1, 1, 1)
		s.Key("k").Do(t, "createTicketMessage", message, apitest.Path("id", id)).WantReplayOf(t, first)
	})
	t.Run("it was not", func(t *testing.T) {
		t.Parallel()
		s := newTicketAPI(t)
		id := ticket(t, s.API, 1, "open", true)
		s.lose(false)
		s.Key("k").Do(t, "createTicketMessage", message, apitest.Path("id", id)).WantError(t, 502, "discord_send_failed")
		s.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
		first := s.Key("k").Do(t, "createTicketMessage", message, apitest.Path("id", id)).WantError(t, 422, "ticket_not_open")
		s.Do(t, "reopenTicket", "", apitest.Path("id", id)).Want(t, 200, "")
		s.Key("k").Do(t, "createTicketMessage", message, apitest.Path("id", id)).WantReplayOf(t, first)
		s.wantMessages(t, id, 1, 0, 0)
	})
	t.Run("the channel cannot be read", func(t *testing.T) {
		t.Parallel()
		s := newTicketAPI(t)
		id := ticket(t, s.API, 1, "open", true)
		s.lose(true)
		s.Key("k").Do(t, "createTicketMessage", message, apitest.Path("id", id)).WantError(t, 502, "discord_send_failed")
		s.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
		s.platform.In(channelOf(1), chattest.Refuse(403, chat.CodeMissingAccess, "no"))
		s.Key("k").Do(t, "createTicketMessage", message, apitest.Path("id", id)).WantError(t, 502, "discord_send_failed")
		s.platform.In(channelOf(1), nil)
		s.Key("k").Do(t, "createTicketMessage", message, apitest.Path("id", id)).Want(t, 201, "")
		s.wantMessages(t, id, 1, 1, 1)
	})
	t.Run("it was certainly refused", func(t *testing.T) {
		t.Parallel()
		s := newTicketAPI(t)
		id := ticket(t, s.API, 1, "open", true)
		s.platform.Next(chattest.Refuse(403, chat.CodeMissingPermission, "no"))
		s.Key("k").Do(t, "createTicketMessage", message, apitest.Path("id", id)).WantError(t, 502, "discord_send_failed")
		s.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
		calls := len(s.platform.Calls())
		s.Key("k").Do(t, "createTicketMessage", message, apitest.Path("id", id)).WantError(t, 422, "ticket_not_open")
		if n := len(s.platform.Calls()); n != calls {
			t.Errorf("%d calls about a message that cannot have been posted", n-calls)
		}
	})
}

// TestChannelMovedMeanwhile: a repeated request posts in the ticket's present channel, unless its
// message is in the previous one. RELIABILITY.md, Messages.
func TestChannelMovedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		arrange func(s ticketAPI)
		pass    int
		posted  int // messages in the present channel
	}{
		"refused by the channel before": {func(s ticketAPI) {
			s.platform.Next(chattest.Refuse(404, chat.CodeUnknownChannel, "Unknown Channel"))
		}, 0, 1},
		"lost, the channel before is gone": {func(s ticketAPI) { s.lose(true) }, 130, 1},
		"lost, not posted":                 {func(s ticketAPI) { s.lose(false) }, 130, 1},
		"posted in the channel before":     {func(s ticketAPI) { s.lose(true) }, 130, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTicketAPI(t)
			id := ticket(t, s.API, 1, "open", true)
			tc.arrange(s)
			s.Key("k").Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", id)).WantError(t, 502, "discord_send_failed")
			if name == "lost, the channel before is gone" {
				s.platform.Remove(channelOf(1))
			}
			dbtest.Exec(t, s.API.DB(), `UPDATE tickets SET channel_id = $1`, channelOf(2))
			s.elapse(t, tc.pass)
			s.platform.Forget()
			s.Key("k").Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", id)).Want(t, 201, "")
			s.wantMessages(t, id, 2, tc.posted, 1)
		})
	}
}

// TestLeaseLost: the process freezes while it posts, until its lease has ended. Then it responds
// with what has happened to the message meanwhile.
func TestLeaseLost(t *testing.T) {
	t.Parallel()
	for name, keyed := range map[string]string{"with a key": "k", "without": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTicketAPI(t)
			id := ticket(t, s.API, 1, "open", true)
			s.Do(t, "claimTicket", `{"user_id":"55"}`, apitest.Path("id", id)).Want(t, 200, "") // another entry of the transcript
			s.WantEvent(t, "ticket.claimed", "")
			begun, thaw := make(chan struct{}), make(chan struct{})
			s.fail.freeze.Store(&freeze{begun, thaw})
			done := make(chan *apitest.Response)
			caller := s.API
			if keyed != "" {
				caller = s.Key(keyed)
			}
			go func() {
				response, err := caller.Try(apitest.Find(t, "createTicketMessage"), `{"content":"x"}`, apitest.Path("id", id))
				if err != nil {
					t.Error(err)
				}
				done <- response
			}()
			<-begun
			s.fail.freeze.Store(nil)
			s.elapse(t, 16)
			s.sweep(t)
			s.wantMessages(t, id, 1, 1, 1)
			close(thaw)
			response := <-done
			response.Want(t, 201, `{"data":{"kind":"message","content":"x"}}`)
			s.wantMessages(t, id, 1, 1, 1)
			s.WantEvent(t, "ticket.message", `{"data":{"id":"`+response.Str(t, "data.id")+`"}}`)
			s.WantNoEvent(t)
		})
	}
	t.Run("and somebody else is at it", func(t *testing.T) {
		t.Parallel()
		s := newTicketAPI(t)
		id := ticket(t, s.API, 1, "open", true)
		begun, thaw := make(chan struct{}), make(chan struct{})
		s.fail.freeze.Store(&freeze{begun, thaw})
		done := make(chan *apitest.Response)
		go func() {
			response, err := s.Try(apitest.Find(t, "createTicketMessage"), `{"content":"x"}`, apitest.Path("id", id))
			if err != nil {
				t.Error(err)
			}
			done <- response
		}()
		<-begun
		s.fail.freeze.Store(nil)
		s.elapse(t, 16)
		dbtest.Do(t, s.DB(), func(ctx context.Context, tx *db.Tx) error {
			var intent string
			if err := tx.GetContext(ctx, &intent, `SELECT id FROM chat_intents`); err != nil {
				return err
			}
			_, err := chat.Take(ctx, tx, s.Guild, intent)
			return err
		})
		close(thaw)
		(<-done).WantError(t, 503, "service_unavailable")
		s.elapse(t, 16)
		s.sweep(t)
		s.wantMessages(t, id, 1, 1, 1)
	})
}

// TestAPanicCostsOneMessage: if finishing one message panics, the sweep finishes the others, and
// the process continues.
func TestAPanicCostsOneMessage(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	id := ticket(t, s.API, 1, "open", true)
	s.fail.before.Store(true)
	s.Key("a").Do(t, "createTicketMessage", `{"content":"a"}`, apitest.Path("id", id)).WantError(t, 500, "internal_error")
	s.elapse(t, 16)
	var f *chat.Failure
	if err := s.sweepOnce(); err == nil || errors.As(err, &f) {
		t.Errorf("got %v, want the panic", err)
	}
	s.fail.before.Store(false)
	s.elapse(t, 16)
	s.sweep(t)
	s.wantMessages(t, id, 1, 1, 1)
}

func TestAMessageOfNoTokenIsFinishedAsTheServicesOwn(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	id := ticket(t, s.API, 1, "open", true)
	s.fail.after.Store(true)
	s.Key("a").Do(t, "createTicketMessage", `{"content":"a"}`, apitest.Path("id", id)).WantError(t, 500, "internal_error")
	s.fail.after.Store(false)
	dbtest.Exec(t, s.DB(), `UPDATE chat_intents SET token_id = NULL`)
	s.elapse(t, 16)
	s.sweep(t)
	s.wantMessages(t, id, 1, 1, 1)
	s.WantEvent(t, event.TicketMessage, `{"origin":{"type":"system","token_id":null,"key_id":null}}`)
}
