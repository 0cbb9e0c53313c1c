package dbtest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/base/db"
)

// WantNoCircle checks that concurrent changes of referenced rows do not deadlock. Five goroutines
// call change `each` times, while two others insert rows with foreign keys to the changed rows
// without pause; an insert locks the row that it refers to. Postgres ends a deadlock after a second
// and the transaction is retried, so the test fails if more transactions begin than changes were
// asked for. change makes `changes` changes, each in a transaction of its own.
func WantNoCircle(t *testing.T, d *db.DB, insert func(context.Context, *db.Tx) error, each, changes int, change func(db.Doer) error) {
	t.Helper()
	done := make(chan struct{})
	var inserting, changing sync.WaitGroup
	for range 2 {
		inserting.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				err := d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
					err := insert(ctx, tx)
					time.Sleep(2 * time.Millisecond) // stands for further statements of the transaction
					return err
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	const workers = 5
	counted := &begun{Doer: d}
	for range workers {
		changing.Go(func() {
			for range each {
				if err := change(counted); err != nil {
					t.Error(err)
				}
			}
		})
	}
	changing.Wait()
	close(done)
	inserting.Wait()
	if n, want := counted.n.Load(), int64(workers*each*changes); n != want {
		t.Errorf("%d changes took %d transactions: Postgres has ended some", want, n)
	}
}

// begun counts the transactions that begin, including retries.
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

// NeedTriggers skips a test that puts a trigger on a guild's table if the tables are distributed,
// since such a table cannot have triggers.
func NeedTriggers(t *testing.T, d *db.DB) {
	t.Helper()
	if d.Distributed() {
		t.Skip("a distributed table has no triggers")
	}
}

// Changed records the order in which the rows of a table change from now on. The returned function
// reads the order: the values of an SQL expression over NEW, separated by spaces. It needs triggers
// (NeedTriggers).
func Changed(t *testing.T, d *db.DB, table, expression string) (order func() string) {
	t.Helper()
	NeedTriggers(t, d)
	Exec(t, d, `CREATE TABLE seen (n serial, said text)`)
	Exec(t, d, `CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql
		AS $$BEGIN INSERT INTO seen (said) VALUES (`+expression+`); RETURN NULL; END$$`)
	Exec(t, d, `CREATE TRIGGER see AFTER UPDATE ON `+table+` FOR EACH ROW EXECUTE FUNCTION see()`)
	return func() string {
		t.Helper()
		return Value[string](t, d, `SELECT string_agg(said, ' ' ORDER BY n) FROM seen`)
	}
}
