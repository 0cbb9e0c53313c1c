package tickets_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/chat/chattest"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/tickets"
)

// closedTicket returns a closed ticket whose channel has to be archived.
func closedTicket(t *testing.T, s ticketAPI, number int) (id string) {
	t.Helper()
	id = ticket(t, s.API, number, "open", true)
	s.platform.Text(channelOf(number), chattest.Overwrite{ID: "4000", Type: 1, Allow: 1 << 10})
	s.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
	return id
}

func rowOf(t *testing.T, s ticketAPI, id string) string {
	t.Helper()
	return dbtest.Value[string](t, s.DB(), `SELECT to_jsonb(t)::text FROM tickets t WHERE id = $1`, id)
}

// Work on a channel changes only the row of its ticket, also if the lease was lost.
func TestWorkOnAChannelLeavesOtherTicketsAlone(t *testing.T) {
	t.Parallel()
	for what, lost := range map[string]bool{"done": false, "lost": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newTicketAPI(t)
			id, other := closedTicket(t, s, 1), closedTicket(t, s, 2)
			// Another ticket, with the values and the channel that the one being worked on will
			// have.
			dbtest.Exec(t, s.API.DB(), `
				UPDATE tickets
				SET channel_lease_gen = 1, channel_lease_until = now() + interval '1 hour', channel_id = $2
				WHERE id = $1`, other, channelOf(1))
			was := rowOf(t, s, other)
			s.platform.In(channelOf(1), func(http.ResponseWriter, *http.Request, func() any) bool {
				if lost {
					dbtest.Exec(t, s.API.DB(), `
						UPDATE tickets SET channel_lease_gen = 7, channel_lease_until = now() + interval '1 hour' WHERE id = $1`, id)
				}
				return false
			})
			if err := s.syncChannel(id); err != nil {
				t.Fatal(err)
			}
			if got := rowOf(t, s, other); got != was {
				t.Errorf("another ticket was %s\nand is %s", was, got)
			}
			if due := dbtest.Value[bool](t, s.DB(), `SELECT channel_due_at IS NOT NULL FROM tickets WHERE id = $1`, id); due != lost {
				t.Errorf("its own channel is due: %v", due)
			}
		})
	}
}

// One worker at a time works on a channel: during a lease no other gets it; when the lease has
// ended, any worker may.
func TestALeaseOnAChannelKeepsOthersAwayUntilItIsOver(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	id := closedTicket(t, s, 1)
	for _, c := range []struct {
		until string
		lock  bool
	}{{"now() + interval '19 seconds'", false}, {"now() - interval '1 second'", true}} {
		dbtest.Exec(t, s.API.DB(), `UPDATE tickets SET channel_lease_until = `+c.until)
		if err := s.syncChannel(id); err != nil {
			t.Fatal(err)
		}
		if locked := s.platform.Overwrites(channelOf(1))["4000"].Deny != 0; locked != c.lock {
			t.Errorf("with a lease until %s the channel is locked: %v", c.until, locked)
		}
	}
}

// hanging is a platform that does not respond.
type hanging struct {
	chat.Platform
	ended func() // called at the end of an attempt
}

func (h hanging) LockOf(ctx context.Context, _ chat.Channel, _ string) (chat.Lock, error) {
	<-ctx.Done()
	h.ended()
	return chat.Lock{}, ctx.Err()
}

// An attempt on a channel ends before its lease, however long the platform takes.
func TestAnAttemptOnAChannelEndsBeforeItsLease(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	id := closedTicket(t, s, 1)
	platform := hanging{s.fail, func() {
		if !dbtest.Value[bool](t, s.DB(), `SELECT channel_lease_until > now() FROM tickets WHERE id = $1`, id) {
			t.Error("its lease was over before it")
		}
	}}
	if err := tickets.SyncChannel(t.Context(), s.DB(), platform, s.Guild, id); err == nil {
		t.Error("the platform that hangs went unnoticed")
	}
}

// For a ticket that has lost its channel there is nothing to do.
func TestATicketWithoutAChannelIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	id := closedTicket(t, s, 1)
	dbtest.Exec(t, s.API.DB(), `UPDATE tickets SET channel_id = NULL WHERE id = $1`, id)
	was := rowOf(t, s, id)
	if err := s.syncChannel(id); err != nil {
		t.Fatal(err)
	}
	if got := rowOf(t, s, id); got != was || len(s.platform.Calls()) != 0 {
		t.Errorf("%d calls; the ticket was %s\nand is %s", len(s.platform.Calls()), was, got)
	}
}

// A node that has lost its lease makes no further change on the platform, and does not overwrite
// the permissions that the next holder has stored. The channel is due again, unless it is gone.
func TestWhoHasLostTheLeaseChangesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		channel string
		due     bool // due again
	}{{"channel_id", true}, {"NULL", false}} {
		s := newTicketAPI(t)
		id := closedTicket(t, s, 1)
		dueAt := dbtest.Value[string](t, s.DB(), `SELECT channel_due_at::text FROM tickets WHERE id = $1`, id)
		s.platform.Lookup(channelOf(1), func(http.ResponseWriter, *http.Request, func() any) bool { // the worker reads the channel's permissions
			dbtest.Exec(t, s.API.DB(), `
				UPDATE tickets
				SET channel_lease_gen = channel_lease_gen + 1, channel_lock = '{"next":true}', channel_id = `+c.channel+`
				WHERE id = $1`, id)
			return false
		})
		if err := s.syncChannel(id); err == nil {
			t.Error("it does not say that its lease was over")
		}
		if s.platform.Overwrites(channelOf(1))["4000"].Deny != 0 {
			t.Error("it has locked the channel")
		}
		if lock := dbtest.Value[string](t, s.DB(), `SELECT channel_lock::text FROM tickets WHERE id = $1`, id); lock != `{"next": true}` {
			t.Errorf("the lock is %s", lock)
		}
		if due := dbtest.Value[string](t, s.DB(), `SELECT channel_due_at::text FROM tickets WHERE id = $1`, id); due != dueAt != c.due {
			t.Errorf("channel %s: it was due at %s and is at %s", c.channel, dueAt, due)
		}
	}
}

// The stored permissions are kept until they have been restored. The next archiving stores them
// anew.
func TestTheLockOfAChannelIsNotedUntilItIsGivenBack(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	id := closedTicket(t, s, 1)
	for _, step := range []struct {
		operation string
		noted     bool
	}{{"", true}, {"reopenTicket", false}, {"closeTicket", true}} {
		if step.operation != "" {
			s.Do(t, step.operation, "", apitest.Path("id", id)).Want(t, 200, "")
		}
		if err := s.syncChannel(id); err != nil {
			t.Fatal(err)
		}
		if noted := dbtest.Value[bool](t, s.DB(), `SELECT channel_lock IS NOT NULL FROM tickets WHERE id = $1`, id); noted != step.noted {
			t.Errorf("after %q a lock is noted: %v", step.operation, noted)
		}
	}
}

// The lane skips guilds whose deletion has begun, and no others.
func TestChannelsOfGuildsThatAreRemovedAreNotDue(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	closedTicket(t, s, 1)
	removed := s.Next(t)
	for _, c := range []struct {
		guild string
		due   int
	}{{s.Guild, 0}, {removed.Guild, 1}} {
		dbtest.Exec(t, s.API.DB(), `
			UPDATE guilds
			SET removed_at = CASE WHEN id = $1 THEN $2::timestamptz END,
			    removed_after = CASE WHEN id = $1 THEN $3::timestamptz END`, c.guild, time.Now(), time.Now().AddDate(0, 0, 1))
		if n := s.due(t, 0); n != c.due {
			t.Errorf("with guild %s removed %d channels of %s are due", c.guild, n, s.Guild)
		}
	}
}

// A ticket whose channel is deleted counts as changed, so that a copy by updated_since sees it.
func TestATicketThatLosesItsChannelHasChanged(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	dbtest.Exec(t, s.API.DB(), `UPDATE guild_settings SET close_action = 'delete' WHERE guild_id = $1`, s.Guild)
	id := closedTicket(t, s, 1)
	updated := func() string { return s.Do(t, "getTicket", "", apitest.Path("id", id)).Str(t, "data.updated_at") }
	was := updated()
	if err := s.syncChannel(id); err != nil {
		t.Fatal(err)
	}
	if now := updated(); now <= was {
		t.Errorf("it was updated at %s, and after the loss at %s", was, now)
	}
}
