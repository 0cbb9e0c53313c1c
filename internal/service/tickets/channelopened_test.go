package tickets

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/chat"
)

// oneChannel is a platform with the channel 700.
type oneChannel struct {
	chat.Platform
	state  string // "archived", "deleted" or "" for an open channel
	calls  []string
	before map[string]func() // what happens before the call takes effect, the first time
	after  map[string]func() // what happens after it has taken effect, the first time
}

func (p *oneChannel) call(name, state string) {
	if f := p.before[name]; f != nil {
		delete(p.before, name)
		f()
	}
	p.calls = append(p.calls, name)
	if name != "look" {
		p.state = state
	}
	if f := p.after[name]; f != nil {
		delete(p.after, name)
		f()
	}
}

func (p *oneChannel) LockOf(context.Context, chat.Channel, string) (chat.Lock, error) {
	p.call("look", "")
	return chat.Lock{Thread: true}, nil
}

func (p *oneChannel) ArchiveChannel(context.Context, chat.Channel, chat.Lock) error {
	p.call("archive", "archived")
	return nil
}

func (p *oneChannel) RestoreChannel(_ context.Context, _ chat.Channel, lock chat.Lock) error {
	if !lock.Thread {
		return fmt.Errorf("the channel is restored with the lock %+v", lock)
	}
	p.call("restore", "")
	return nil
}

func (p *oneChannel) DeleteChannel(context.Context, chat.Channel) error {
	p.call("delete", "deleted")
	return nil
}

// channelNodes are two nodes of an installation in which ticket t0 has been closed.
type channelNodes struct {
	d              *dbtest.Database
	syncs, records channelCaller
}

func newChannelNodes(t *testing.T) channelNodes {
	t.Helper()
	d := dbtest.New(t)
	dbtest.Fill(t, d.DB, twoGuilds)
	n := channelNodes{d: d}
	for _, c := range []*channelCaller{&n.syncs, &n.records} {
		g := dbtest.NewGate(t, d.URL)
		*c = channelCaller{dbtest.Open(t, g.URL).DB, g}
	}
	return n
}

// closes makes t0 the only ticket. It is closed, and its channel is due to be archived or deleted.
func (n channelNodes) closes(t *testing.T, action string) {
	t.Helper()
	dbtest.Exec(t, n.d.DB, `
		INSERT INTO guild_settings (guild_id, close_action) VALUES ('1', $1)
		ON CONFLICT (guild_id) DO UPDATE SET close_action = $1`, action)
	dbtest.Exec(t, n.d.DB, `DELETE FROM tickets`)
	dbtest.Exec(t, n.d.DB, `
		INSERT INTO tickets (guild_id, id, number, opener_id, status, closed_at, channel_id, channel_due_at, channel_try_at)
		VALUES ('1', 't0', 1000, '7', 'closed', now(), '700', now(), now())`)
}

// opens opens ticket t1 in the channel.
func (n channelNodes) opens(ctx context.Context) error {
	return n.records.write(ctx, `{"record":"ticket","id":"t1","opener_id":"7","channel_id":"700"}`)
}

// channelOfOpened returns the channel that t1 has.
func (n channelNodes) channelOfOpened(t *testing.T) string {
	t.Helper()
	return dbtest.Value[string](t, n.d.DB, `SELECT coalesce(channel_id, '') FROM tickets WHERE id = 't1' AND status = 'open'`)
}

// A ticket is opened in the channel of a closed ticket before each statement of the work on that
// channel. The channel is then open at the end, or the opened ticket has no channel where the closed
// one's was deleted. Only a ticket that is opened when the result has been recorded finds the channel
// as it is. RELIABILITY.md, Messages.
func TestATicketIsOpenedWhileItsChannelIsClosed(t *testing.T) {
	t.Parallel()
	for action, closed := range map[string]string{"archive": "archived", "delete": "deleted"} {
		n := newChannelNodes(t)
		var late []int // where the opened ticket was too late
		stop := 0
		for ; ; stop++ {
			n.closes(t, action)
			p := &oneChannel{}
			closing := &dbtest.Command{Name: "closing", Gate: n.syncs.gate, Stop: stop, Run: func(ctx context.Context) error {
				return SyncChannel(ctx, n.syncs.db, p, "1", "t0")
			}}
			opening := &dbtest.Command{Name: "opening", Gate: n.records.gate, Stop: 100, Run: n.opens}
			dbtest.Interleave(t, n.d.DB, closing, opening)
			if closing.Err != nil || opening.Err != nil || !opening.Ran() {
				t.Fatalf("%s, before statement %d: %v, %v", action, stop, closing.Err, opening.Err)
			}
			if !n.syncs.gate.Reached() {
				break
			}
			if has := n.channelOfOpened(t); p.state == closed && has != "" {
				late = append(late, stop)
			} else if (p.state == "deleted") != (has == "") {
				t.Errorf("%s, before statement %d: the channel is %q, and the opened ticket has the channel %q", action, stop, p.state, has)
			}
			if due := dbtest.Value[bool](t, n.d.DB, `SELECT bool_or(channel_due_at IS NOT NULL) FROM tickets`); due {
				t.Errorf("%s, before statement %d: a channel is still due", action, stop)
			}
		}
		if want := []int{stop - 1}; stop < 8 || !slices.Equal(late, want) { // the commit of the result
			t.Errorf("%s: too late before the statements %v of %d, want %v", action, late, stop, want)
		}
	}
}

// The ticket is opened while the platform is called: before a call has taken effect, or after. If it
// is closed again while the channel is restored for it, the channel is archived at the end.
// RELIABILITY.md, Messages.
func TestATicketIsOpenedDuringACallThatClosesItsChannel(t *testing.T) {
	t.Parallel()
	n := newChannelNodes(t)
	for _, c := range []struct {
		action, call string
		closedAgain  bool
		calls        []string
		state, has   string
	}{
		{"archive", "look", false, []string{"look", "archive", "restore"}, "", "700"},
		{"archive", "archive", false, []string{"look", "archive", "restore"}, "", "700"},
		{"archive", "archive", true, []string{"look", "archive", "restore", "look", "archive"}, "archived", ""},
		{"delete", "delete", false, []string{"delete"}, "deleted", ""},
	} {
		for _, before := range []bool{true, false} {
			n.closes(t, c.action)
			open := map[string]func(){c.call: func() {
				if err := n.opens(t.Context()); err != nil {
					t.Fatal(err)
				}
			}}
			p := &oneChannel{after: open}
			if before {
				p = &oneChannel{before: open}
			}
			if c.closedAgain {
				if p.before == nil {
					p.before = map[string]func(){}
				}
				p.before["restore"] = func() {
					dbtest.Exec(t, n.d.DB, `UPDATE tickets SET status = 'closed', closed_at = now() WHERE id = 't1'`)
					p.state = "archived" // by the work on the channel of t1
				}
			}
			if err := SyncChannel(t.Context(), n.syncs.db, p, "1", "t0"); err != nil {
				t.Fatal(err)
			}
			has := ""
			if !c.closedAgain {
				has = n.channelOfOpened(t)
			}
			if !slices.Equal(p.calls, c.calls) || p.state != c.state || has != c.has {
				t.Errorf("%s, opened during %s (before its effect: %t): calls %v, the channel is %q, and the opened ticket has %q",
					c.action, c.call, before, p.calls, p.state, has)
			}
		}
	}
}

// A node dies after it has archived the channel, and before it records that. The next one restores the
// channel for the ticket that was opened meanwhile. RELIABILITY.md, Messages.
func TestAChannelThatADeadNodeArchivedIsRestored(t *testing.T) {
	t.Parallel()
	n := newChannelNodes(t)
	n.closes(t, "archive")
	p := &oneChannel{state: "archived"}
	dbtest.Exec(t, n.d.DB, `UPDATE tickets SET channel_lock = '{"thread":true}', channel_lease_until = now() - interval '1 second'`)
	if err := n.opens(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := SyncChannel(t.Context(), n.syncs.db, p, "1", "t0"); err != nil || p.state != "" {
		t.Errorf("the channel is %q: %v", p.state, err)
	}
	if dbtest.Value[bool](t, n.d.DB, `SELECT channel_due_at IS NOT NULL OR channel_lock IS NOT NULL FROM tickets WHERE id = 't0'`) {
		t.Error("the closed ticket's channel is still due, or its lock is kept")
	}
}
