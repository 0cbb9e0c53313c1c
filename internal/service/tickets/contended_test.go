package tickets

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// A row that refers to the ticket holds the ticket's row too, so that it stays. Changes of
// the ticket then must not wait for one another in a circle, which Postgres ends after a
// second.
func TestChangesOfATicketAndItsMessagesDoNotBlockOneAnother(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Fill(t, d, twoGuilds, `INSERT INTO tickets (guild_id, id, number, opener_id, channel_id, channel_due_at)
		VALUES ('1', 't', 1, '7', '700', now())`)
	done := make(chan struct{})
	var writing, working sync.WaitGroup
	for range 2 {
		writing.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				err := d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
					_, err := tx.ExecContext(ctx, `
						INSERT INTO ticket_messages (guild_id, ticket_id, id, author_type, content)
						VALUES ('1', 't', $1, 'opener', 'Hello')`, db.NewID())
					time.Sleep(2 * time.Millisecond) // the transaction has more to do
					return err
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	const workers, each = 5, 10
	counted := &begun{Doer: d}
	for range workers {
		working.Go(func() {
			for range each {
				if _, err := takeChannel(t.Context(), counted, "1", "t"); err != nil {
					t.Error(err)
				}
				lost := channelWork{GuildID: "1", TicketID: "t", LeaseGen: -1}
				if _, err := lost.settle(t.Context(), counted, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	working.Wait()
	close(done)
	writing.Wait()
	if n := counted.n.Load(); n != 2*workers*each {
		t.Errorf("%d changes took %d transactions: Postgres has ended some", 2*workers*each, n)
	}
}

// begun counts the transactions that are begun, those once more that are begun again.
type begun struct {
	db.Doer
	n atomic.Int64
}

func (b *begun) Do(ctx context.Context, f func(context.Context, *db.Tx) error) error {
	return b.Doer.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		b.n.Add(1)
		return f(ctx, tx)
	})
}
