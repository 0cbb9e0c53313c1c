package db_test

import (
	"context"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// On its own the driver would wait for a dead link for 15 minutes. RELIABILITY.md, Overload.
func TestDeadLink(t *testing.T) {
	t.Parallel()
	link := dbtest.NewLink(t, dbtest.New(t).URL)
	d, err := db.Open(db.Config{URL: link.URL, Readers: 2, Writers: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	use := func(ctx context.Context, prepared bool) (read, write error) {
		query, args := `SELECT 1`, []any(nil)
		if prepared {
			query, args = `SELECT $1::int`, []any{1}
		}
		var n int
		read = d.Reader().GetContext(ctx, &n, query, args...)
		write = d.Do(ctx, func(ctx context.Context, tx *db.Tx) error { return tx.GetContext(ctx, &n, query, args...) })
		return read, write
	}
	if read, write := use(t.Context(), true); read != nil || write != nil {
		t.Fatal(read, write)
	}
	link.Freeze()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The first round uses the existing connections, the second has to open new ones.
		for i := range 2 {
			for _, prepared := range []bool{true, false} {
				ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
				if read, write := use(ctx, prepared); read == nil || write == nil {
					t.Errorf("round %d over a dead link: %v, %v", i, read, write)
				}
				cancel()
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("somebody is waiting for a dead link")
	}
	link.Thaw()
	// New connections do not inherit the deadline of the dead ones.
	for range 4 {
		if read, write := use(context.Background(), true); read != nil || write != nil {
			t.Fatal(read, write)
		}
	}
}

// A deadline ends with the statement it was set for.
func TestDeadlineIsForgotten(t *testing.T) {
	t.Parallel()
	d, err := db.Open(db.Config{URL: dbtest.New(t).URL, Readers: 1, Writers: 1})
	if err != nil {
		t.Fatal(err)
	}
	pid := func(ctx context.Context) (n int) {
		if err := d.Reader().GetContext(ctx, &n, `SELECT pg_backend_pid()`); err != nil {
			t.Error(err)
		}
		return n
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	first := pid(ctx)
	<-ctx.Done()
	time.Sleep(1200 * time.Millisecond) // the time for cancelling the statement has passed too
	if again := pid(context.Background()); again != first {
		t.Errorf("the connection was lost: served by %d, then by %d", first, again)
	}
	short, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	pid(short)
	<-short.Done()
	time.Sleep(1200 * time.Millisecond)
	if err := d.Close(); err != nil {
		t.Errorf("the connection did not end in order: %v", err)
	}
}
