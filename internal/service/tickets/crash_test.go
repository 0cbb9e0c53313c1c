package tickets_test

import (
	"context"
	"testing"

	"guildhall/internal/outbound/chat/chattest"
	"guildhall/internal/server/api/apitest"
)

// TestCrash: the process dies while a message is being posted. The next one to come finishes the
// message: the caller with the same key, or the sweep. RELIABILITY.md, Messages.
func TestCrash(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		posted  bool // it died after the platform had posted the message
		seconds int  // until somebody comes
		sweep   bool // the sweep comes before the caller
	}{
		"before the send, swept":                     {false, 16, true},
		"before the send, repeated":                  {false, 31, false},
		"after the send, swept":                      {true, 16, true},
		"after the send, repeated":                   {true, 31, false},
		"after the send, swept beyond the nonce":     {true, 600, true},
		"after the send, repeated beyond the nonce":  {true, 600, false},
		"before the send, swept beyond the nonce":    {false, 600, true},
		"before the send, repeated beyond the nonce": {false, 600, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTicketAPI(t)
			id := ticket(t, s.API, 1, "open", true)
			send := func() *apitest.Response {
				t.Helper()
				return s.Key("k").Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", id))
			}
			s.fail.before.Store(!tc.posted)
			s.fail.after.Store(tc.posted)
			send().WantError(t, 500, "internal_error")
			s.fail.before.Store(false)
			s.fail.after.Store(false)

			// While the leases last, nobody touches the message.
			send().WantError(t, 409, "idempotency_key_in_use")
			s.sweep(t)
			posted := 0
			if tc.posted {
				posted = 1
			}
			s.wantMessages(t, id, 1, posted, 0)

			if tc.seconds > 120 {
				s.platform.Forget()
			}
			s.elapse(t, tc.seconds)
			if tc.sweep {
				s.sweep(t)
				s.wantMessages(t, id, 1, 1, 1)
				if send().Want(t, 201, "").Header.Get("Idempotent-Replay") != "true" {
					t.Error("the sweep left no answer for the caller")
				}
			} else {
				send().Want(t, 201, "")
				s.sweep(t)
			}
			first := send().Want(t, 201, "")
			send().WantReplayOf(t, first)
			s.wantMessages(t, id, 1, 1, 1)
			if n := len(s.platform.Messages(channelOf(1))); n != 1 {
				t.Errorf("the channel holds %d messages", n)
			}
			s.WantEvent(t, "ticket.message", `{"origin":{"type":"api"},"data":{"id":"`+first.Str(t, "data.id")+`"}}`)
			s.WantNoEvent(t)
		})
	}

	t.Run("without a key it is found out, not sent", func(t *testing.T) {
		t.Parallel()
		for _, posted := range []bool{false, true} {
			s := newTicketAPI(t)
			id := ticket(t, s.API, 1, "open", true)
			s.fail.before.Store(!posted)
			s.fail.after.Store(posted)
			s.Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", id)).WantError(t, 500, "internal_error")
			s.fail.before.Store(false)
			s.fail.after.Store(false)
			s.elapse(t, 16)
			s.sweep(t)
			s.sweep(t)
			want := 0
			if posted {
				want = 1
			}
			s.wantMessages(t, id, 1, want, want)
		}
	})

	t.Run("on a ticket closed since, it is found out, not sent", func(t *testing.T) {
		t.Parallel()
		s := newTicketAPI(t)
		id := ticket(t, s.API, 1, "open", true)
		s.fail.before.Store(true)
		s.Key("k").Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", id)).WantError(t, 500, "internal_error")
		s.fail.before.Store(false)
		s.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
		s.elapse(t, 16)
		s.sweep(t)
		s.wantMessages(t, id, 1, 0, 0)
		s.Key("k").Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", id)).WantError(t, 422, "ticket_not_open")
	})

	t.Run("the sweep goes on while the platform is away, and frees the key when it gives up", func(t *testing.T) {
		t.Parallel()
		s := newTicketAPI(t)
		id := ticket(t, s.API, 1, "open", true)
		s.fail.after.Store(true)
		s.Key("k").Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", id)).WantError(t, 500, "internal_error")
		s.fail.after.Store(false)
		s.platform.In(channelOf(1), chattest.Refuse(500, 0, "away"))
		state := func() (state string) {
			t.Helper()
			if err := s.DB().Reader().GetContext(context.Background(), &state, `SELECT state FROM chat_intents`); err != nil {
				t.Fatal(err)
			}
			return state
		}
		s.elapse(t, 16)
		s.sweep(t)
		if got := state(); got != "sending" {
			t.Errorf("after one attempt the intent is %s", got)
		}
		s.elapse(t, 400)
		s.sweep(t)
		if got := state(); got != "unknown" {
			t.Errorf("after five minutes the intent is %s", got)
		}
		s.platform.In(channelOf(1), nil)
		s.Key("k").Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", id)).Want(t, 201, "")
		s.wantMessages(t, id, 1, 1, 1)
	})
}

// TestRacingSweeps: several nodes sweep the same unfinished messages while their callers retry.
// RELIABILITY.md, Messages.
func TestRacingSweeps(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	id := ticket(t, s.API, 1, "open", true)
	keys := []string{"a", "b", "c", "d", "e", "f"}
	s.fail.after.Store(true)
	for _, key := range keys {
		s.Key(key).Do(t, "createTicketMessage", `{"content":"`+key+`"}`, apitest.Path("id", id)).WantError(t, 500, "internal_error")
	}
	s.fail.after.Store(false)
	s.elapse(t, 31)
	op := apitest.Find(t, "createTicketMessage")
	done := make(chan error, 8)
	for range 3 {
		go func() { s.sweep(t); done <- nil }()
	}
	for range 5 {
		go func() {
			for _, key := range keys {
				if response, err := s.Key(key).Try(op, `{"content":"`+key+`"}`, apitest.Path("id", id)); err != nil {
					done <- err
					return
				} else if response.Status != 201 && response.Status != 409 {
					t.Errorf("got %d %s", response.Status, response.Body)
				}
			}
			done <- nil
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	s.wantMessages(t, id, 1, len(keys), len(keys))
	for _, key := range keys {
		s.Key(key).Do(t, "createTicketMessage", `{"content":"`+key+`"}`, apitest.Path("id", id)).Want(t, 201, "")
	}
}
