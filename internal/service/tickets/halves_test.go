package tickets_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/chat/chattest"
	"guildhall/internal/server/api/apitest"
)

// failWrites makes every INSERT and UPDATE of a table fail until remove is called, as if the
// process died at that statement.
func failWrites(t *testing.T, a *apitest.API, table string) (remove func()) {
	t.Helper()
	dbtest.Exec(t, a.DB(), `CREATE OR REPLACE FUNCTION fuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'fuse'; END $$`)
	dbtest.Exec(t, a.DB(), `CREATE TRIGGER fuse BEFORE INSERT OR UPDATE ON `+table+` EXECUTE FUNCTION fuse()`)
	return func() { dbtest.Exec(t, a.DB(), `DROP TRIGGER fuse ON `+table) }
}

// state returns everything that a write of a ticket may change.
func state(t *testing.T, a *apitest.API) string {
	t.Helper()
	s := dbtest.Value[string](t, a.DB(), `
		SELECT concat_ws(' ',
			(SELECT string_agg(t::text, ',' ORDER BY id) FROM tickets t),
			(SELECT count(*) FROM ticket_messages), (SELECT count(*) FROM webhook_events),
			(SELECT count(*) FROM idempotency_keys), (SELECT count(*) FROM chat_intents))`)
	return s
}

// TestNothingByHalves: wherever a write fails, it leaves nothing behind, and the same request with
// the same key does all of it once the cause is gone. RELIABILITY.md, Messages.
func TestNothingByHalves(t *testing.T) {
	t.Parallel()
	for _, op := range []struct{ id, body, status, event string }{
		{"closeTicket", `{"reason":"x"}`, "open", "ticket.closed"},
		{"reopenTicket", `{"reason":"x"}`, "closed", "ticket.reopened"},
		{"claimTicket", `{"user_id":"5"}`, "open", "ticket.claimed"},
		{"assignTicket", `{"user_id":"5"}`, "open", "ticket.assigned"},
		{"createTicketMessage", `{"content":"x","internal":true}`, "open", "ticket.message"},
	} {
		t.Run(op.id, func(t *testing.T) {
			t.Parallel()
			a := apitest.New(t)
			id := apitest.Path("id", ticket(t, a, 1, op.status, true))
			for _, table := range []string{"tickets", "ticket_messages", "webhook_events", "idempotency_keys"} {
				if table == "tickets" && op.id == "createTicketMessage" {
					continue
				}
				before := state(t, a)
				remove := failWrites(t, a, table)
				a.Key("k").Do(t, op.id, op.body, id).WantError(t, 500, "internal_error")
				if after := state(t, a); after != before {
					t.Errorf("broken off at %s, it left\n%s, was\n%s", table, after, before)
				}
				remove()
			}
			a.WantNoEvent(t)
			first := a.Key("k").Do(t, op.id, op.body, id)
			if first.Status/100 != 2 {
				t.Fatalf("got %d %s", first.Status, first.Body)
			}
			a.WantEvent(t, op.event, "")
			a.Key("k").Do(t, op.id, op.body, id).WantReplayOf(t, first)
			a.WantNoEvent(t)
		})
	}
}

// TestMessageBreaksOff: the same for a message, whose first transaction stays committed and whose
// posting cannot be undone.
func TestMessageBreaksOff(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"idempotency_keys", "chat_intents", "ticket_messages", "tickets", "webhook_events"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			s := newTicketAPI(t)
			id := ticket(t, s.API, 1, "open", true)
			first := table == "idempotency_keys" || table == "chat_intents"
			remove := failWrites(t, s.API, table)
			send := func() *apitest.Response {
				t.Helper()
				return s.Key("k").Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", id))
			}
			send().WantError(t, 500, "internal_error")
			remove()
			if first {
				s.wantMessages(t, id, 1, 0, 0) // the intent was not committed, so nothing was posted
			} else {
				s.wantMessages(t, id, 1, 1, 0)
				send().WantError(t, 409, "idempotency_key_in_use")
				s.elapse(t, 16)
				s.sweep(t)
				s.wantMessages(t, id, 1, 1, 1)
			}
			send().Want(t, 201, "")
			s.wantMessages(t, id, 1, 1, 1)
		})
	}
}

// TestClientGone: if the caller hangs up while the platform is called, the message is finished as
// usual.
func TestClientGone(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	id := ticket(t, s.API, 1, "open", true)
	release, begun := make(chan struct{}), make(chan struct{}, 1)
	s.platform.In(channelOf(1), notify(begun, chattest.Until(release)))
	ctx, hangUp := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/tickets/"+id+"/message", strings.NewReader(`{"content":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.Token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", "k")
	done := make(chan error)
	go func() {
		res, err := s.Server.Client.Do(req)
		if err == nil {
			err = res.Body.Close()
		}
		done <- err
	}()
	<-begun
	hangUp()
	if err := <-done; err == nil {
		t.Fatal("the call ended before it was hung up")
	}
	close(release)
	s.platform.In(channelOf(1), nil)
	testutil.Eventually(t, "the transcript", func() bool {
		return s.Key("k").Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", id)).Status == 201
	})
	s.wantMessages(t, id, 1, 1, 1)
}
