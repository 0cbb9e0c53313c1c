package dbtest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/base/db"
)

// WantNoCircle has five goroutines make changes, so many each, beside rows that refer to
// what they change, which two others insert without pause. Such a row holds the row that it
// refers to, and changes must not wait for one another in a circle then, which Postgres ends
// after a second: change makes a number of changes, of one transaction each, and none may
// take another.
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

// Changed notes in which order the rows of a table are changed from now on, and returns how
// to read it: what an SQL expression over NEW has said of each, with spaces between. Where
// the table is distributed the test is skipped, since such a table has no triggers.
func Changed(t *testing.T, d *db.DB, table, expression string) (order func() string) {
	t.Helper()
	if d.Distributed() {
		t.Skip("a distributed table has no triggers")
	}
	Exec(t, d, `CREATE TABLE seen (n serial, said text)`)
	Exec(t, d, `CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql
		AS $$BEGIN INSERT INTO seen (said) VALUES (`+expression+`); RETURN NULL; END$$`)
	Exec(t, d, `CREATE TRIGGER see AFTER UPDATE ON `+table+` FOR EACH ROW EXECUTE FUNCTION see()`)
	return func() string {
		t.Helper()
		return Value[string](t, d, `SELECT string_agg(said, ' ' ORDER BY n) FROM seen`)
	}
}
