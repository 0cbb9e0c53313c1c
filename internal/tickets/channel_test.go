package tickets_test

import (
	"context"
	"testing"

	"guildhall/internal/api/apitest"
	"guildhall/internal/chat"
	"guildhall/internal/chat/chattest"
	"guildhall/internal/tickets"
)

func TestSyncChannel(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	sync := func(t *testing.T, s scene, id string) error {
		t.Helper()
		return tickets.SyncChannel(ctx, s.DB(), s.fail, s.Guild, id)
	}
	step := func(t *testing.T, s scene, id, op, state string) {
		t.Helper()
		s.Do(t, op, "", apitest.Path("id", id)).Want(t, 200, "")
		if err := sync(t, s, id); err != nil {
			t.Fatal(err)
		}
		if got := s.platform.State(channelOf(1)); got != state {
			t.Errorf("after %s the channel is %q, want %q", op, got, state)
		}
	}

	t.Run("archives and restores", func(t *testing.T) {
		t.Parallel()
		s := set(t)
		id := ticket(t, s.API, 1, "open", true)
		step(t, s, id, "closeTicket", "archived")
		step(t, s, id, "reopenTicket", "")
		calls := len(s.platform.Calls())
		if err := sync(t, s, id); err != nil || len(s.platform.Calls()) != calls {
			t.Errorf("it works when nothing is due: %v", err)
		}
	})

	t.Run("deletes where the guild wants that, and the ticket has no channel then", func(t *testing.T) {
		t.Parallel()
		s := set(t)
		exec(t, s.API, `UPDATE guild_settings SET close_action = 'delete' WHERE guild_id = $1`, s.Guild)
		id := ticket(t, s.API, 1, "open", true)
		step(t, s, id, "closeTicket", "deleted")
		s.Do(t, "getTicket", "", apitest.Path("id", id)).Want(t, 200, `{"data":{"status":"closed","channel_id":null}}`)
		step(t, s, id, "reopenTicket", "deleted")
		s.Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", id)).WantError(t, 422, "no_ticket_channel")
	})

	t.Run("does what is right now, not what was enqueued", func(t *testing.T) {
		t.Parallel()
		s := set(t)
		id := ticket(t, s.API, 1, "open", true)
		s.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
		step(t, s, id, "reopenTicket", "")
		if err := sync(t, s, id); err != nil {
			t.Fatal(err)
		}
		if got := s.platform.State(channelOf(1)); got != "" {
			t.Errorf("the late job left the channel %q", got)
		}
	})

	t.Run("notices a change while it is at work", func(t *testing.T) {
		t.Parallel()
		s := set(t)
		id := ticket(t, s.API, 1, "open", true)
		s.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
		release, begun := make(chan struct{}), make(chan struct{}, 1)
		s.platform.In(channelOf(1), notify(begun, chattest.Until(release)))
		done := make(chan error)
		go func() { done <- sync(t, s, id) }()
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

	t.Run("is tried again after an outage and given up after a refusal", func(t *testing.T) {
		t.Parallel()
		s := set(t)
		id := ticket(t, s.API, 1, "open", true)
		s.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
		s.platform.In(channelOf(1), chattest.Refuse(500, 0, "away"))
		if err := sync(t, s, id); err == nil {
			t.Error("the outage went unnoticed")
		}
		s.platform.In(channelOf(1), chattest.Refuse(403, chat.CodeMissingPermission, "No"))
		if err := sync(t, s, id); err == nil {
			t.Error("the refusal went unnoticed")
		}
		calls := len(s.platform.Calls())
		if err := sync(t, s, id); err != nil || len(s.platform.Calls()) != calls {
			t.Errorf("after the refusal it is tried again: %v", err)
		}
	})

	t.Run("is enqueued again when the job was lost", func(t *testing.T) {
		t.Parallel()
		s := set(t)
		id := ticket(t, s.API, 1, "open", true)
		s.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
		exec(t, s.API, `DELETE FROM river_job`)
		count := func() (n int) {
			t.Helper()
			if err := tickets.SweepChannels(ctx, s.DB()); err != nil {
				t.Fatal(err)
			}
			if err := s.DB().Reader().GetContext(ctx, &n, `SELECT count(*) FROM river_job`); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := count(); n != 0 {
			t.Errorf("%d jobs at once", n)
		}
		exec(t, s.API, `UPDATE tickets SET channel_due_at = channel_due_at - interval '2 minutes'`)
		if n := count(); n != 1 {
			t.Errorf("%d jobs after the sweep, want 1", n)
		}
		if n := count(); n != 1 {
			t.Errorf("%d jobs after a second sweep, want 1", n)
		}
	})
}
