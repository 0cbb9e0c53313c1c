package tickets

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/fault"
	"guildhall/internal/service/transfer"
)

// channelCaller is a node that gives tickets the channel 700.
type channelCaller struct {
	db   *db.DB
	gate *dbtest.Gate
}

// write writes a ticket by a record.
func (c channelCaller) write(ctx context.Context, record string) error {
	return c.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		call, r := &transfer.Call{By: auth.By{GuildID: "1"}, Now: time.Now(), Emit: true}, &transfer.Record{Text: []byte(record)}
		b := transfer.NewBatch(Records)
		if _, err := b.Add(call, r); err != nil {
			return err
		}
		if err := errors.Join(b.Write(ctx, tx, call), r.Err); err != nil {
			return err
		}
		return b.Emit(ctx, tx, call)
	})
}

// wants are the ways in which ticket n gets the channel: opened in it by a record, reopened by a
// record or a call, and given the channel by a record.
var wants = map[string]struct {
	before string // the ticket as it is before; empty: it does not exist
	get    func(ctx context.Context, c channelCaller, n int) error
}{
	"opened": {"", func(ctx context.Context, c channelCaller, n int) error {
		return c.write(ctx, fmt.Sprintf(`{"record":"ticket","id":"t%d","opener_id":"7","channel_id":"700"}`, n))
	}},
	"given": {"'open', NULL, NULL", func(ctx context.Context, c channelCaller, n int) error {
		return c.write(ctx, fmt.Sprintf(`{"record":"ticket","id":"t%d","channel_id":"700"}`, n))
	}},
	"reopened by a record": {"'closed', now(), '700'", func(ctx context.Context, c channelCaller, n int) error {
		return c.write(ctx, fmt.Sprintf(`{"record":"ticket","id":"t%d","status":"open"}`, n))
	}},
	"reopened": {"'closed', now(), '700'", func(ctx context.Context, c channelCaller, n int) error {
		by := &auth.Principal{By: auth.By{GuildID: "1", ID: "token"}}
		return c.db.Do(auth.With(ctx, by), func(ctx context.Context, _ *db.Tx) error {
			_, err := new(Service).ReopenTicket(ctx, gen.ReopenTicketRequestObject{ID: "t" + strconv.Itoa(n)})
			return err
		})
	}},
}

// Two nodes give two tickets the same channel at once, one of them held back before each of its
// statements: one ticket is open there, and the other call is refused and names that ticket.
// RELIABILITY.md, Messages.
func TestTwoNodesGiveAChannelToOneOpenTicket(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	nodes := make([]channelCaller, 2)
	for i := range nodes {
		g := dbtest.NewGate(t, d.URL)
		nodes[i] = channelCaller{dbtest.Open(t, g.URL).DB, g}
	}
	dbtest.Fill(t, d.DB, twoGuilds)
	for first, a := range wants {
		for second, b := range wants {
			for stop := range 12 {
				dbtest.Exec(t, d.DB, `DELETE FROM tickets`)
				for n, before := range []string{a.before, b.before} {
					if before != "" {
						dbtest.Exec(t, d.DB, `INSERT INTO tickets (guild_id, id, number, opener_id, status, closed_at, channel_id)
							VALUES ('1', 't'||$1, 1000 + $2, '7', `+before+`)`, strconv.Itoa(n), n)
					}
				}
				run := func(n int, get func(context.Context, channelCaller, int) error) *dbtest.Command {
					return &dbtest.Command{Name: "ticket " + strconv.Itoa(n), Gate: nodes[n].gate, Stop: 100, Run: func(ctx context.Context) error {
						return get(ctx, nodes[n], n)
					}}
				}
				held, other := run(0, a.get), run(1, b.get)
				held.Stop = stop
				dbtest.Interleave(t, d.DB, held, other)
				what := fmt.Sprintf("%s, held before statement %d, and %s", first, stop, second)
				if !other.Ran() {
					t.Fatalf("%s: the second call did not run", what)
				}
				wantOneOpen(t, d.DB, what, held.Err, other.Err)
			}
		}
	}
}

// wantOneOpen checks that one open ticket has the channel and that the other call was refused.
func wantOneOpen(t *testing.T, d *db.DB, what string, failed ...error) {
	t.Helper()
	numbers := []int64{}
	if err := d.Reader().SelectContext(t.Context(), &numbers, `
		SELECT number FROM tickets WHERE status = 'open' AND channel_id = '700'`); err != nil {
		t.Fatal(err)
	}
	if len(numbers) != 1 {
		t.Fatalf("%s: the channel has %d open tickets: %v", what, len(numbers), failed)
	}
	err := errors.Join(failed...)
	f, ok := errors.AsType[*fault.Error](err)
	want := channelInUse("700", numbers[0]).Error()
	if failed[0] != nil && failed[1] != nil || !ok || f.Code != "channel_in_use" || f.Error() != want {
		t.Errorf("%s: the calls end with %v, want one of them with %q", what, failed, want)
	}
}
