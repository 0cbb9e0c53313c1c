package db_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
)

// single opens a database with one connection in each pool, and returns functions that read each
// connection's process id.
func single(t *testing.T) (d *db.DB, reads, writes func() int) {
	t.Helper()
	d, err := db.Open(db.Config{URL: dbtest.New(t).URL, Writers: 1, Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	reads = func() (pid int) {
		if err := d.Reader().GetContext(t.Context(), &pid, `SELECT pg_backend_pid()`); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	writes = func() (pid int) {
		if err := d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return tx.GetContext(ctx, &pid, `SELECT pg_backend_pid()`)
		}); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	return d, reads, writes
}

var somebody = db.Caller{Token: "t", Guild: "g"}

// busy keeps both connections of d busy for half a second. It returns when they are.
func busy(t *testing.T, d *db.DB) {
	t.Helper()
	go func() { _ = sleep(t.Context(), d.Reader(), 0.5) }()
	go func() {
		_ = d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error { return sleep(ctx, tx, 0.5) })
	}()
	testutil.Eventually(t, "the connections are busy", func() bool {
		s := d.Stats()
		return s.Read.InUse > 0 && s.Write.InUse > 0
	})
}

func sleep(ctx context.Context, q db.Querier, seconds float64) error {
	var nothing any
	return q.GetContext(ctx, &nothing, `SELECT pg_sleep($1)::text`, seconds)
}

// RELIABILITY.md, Overload.
func TestARequestThatExpiresWhileItWaitsCostsNoConnection(t *testing.T) {
	t.Parallel()
	d, reads, writes := single(t)
	reader, writer := reads(), writes()
	busy(t, d)
	ctx, cancel := context.WithTimeout(db.As(t.Context(), somebody), 100*time.Millisecond)
	defer cancel()
	if err := sleep(ctx, d.Reader(), 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the read ends with %v", err)
	}
	begun := false
	err := d.Do(ctx, func(context.Context, *db.Tx) error {
		begun = true
		return nil
	})
	if !errors.Is(err, context.DeadlineExceeded) || begun {
		t.Errorf("the write ends with %v, begun %v", err, begun)
	}
	if r, w := reads(), writes(); r != reader || w != writer {
		t.Errorf("connections were lost: read %d, then %d; write %d, then %d", reader, r, writer, w)
	}
}

// RELIABILITY.md, Overload.
func TestACallerThatHangsUpCostsNoConnection(t *testing.T) {
	t.Parallel()
	d, reads, writes := single(t)
	reader, writer := reads(), writes()

	ctx, hangUp := context.WithCancel(db.As(t.Context(), somebody))
	time.AfterFunc(100*time.Millisecond, hangUp)
	if err := sleep(ctx, d.Reader(), 0.3); err != nil {
		t.Errorf("a read that was under way ends with %v", err)
	}
	ctx, hangUp = context.WithCancel(db.As(t.Context(), somebody))
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := insertGuild(ctx, tx, "1"); err != nil {
			return err
		}
		time.AfterFunc(100*time.Millisecond, hangUp)
		return sleep(ctx, tx, 0.3)
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("left during the last statement: %v", err)
	}
	ctx, hangUp = context.WithCancel(db.As(t.Context(), somebody))
	err = d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		hangUp()
		return insertGuild(ctx, tx, "2")
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("left between two statements: %v", err)
	}
	if n := count(t, d.Reader()); n != 0 {
		t.Errorf("%d changes were kept", n)
	}
	if r, w := reads(), writes(); r != reader || w != writer {
		t.Errorf("connections were lost: read %d, then %d; write %d, then %d", reader, r, writer, w)
	}
}

// When its context ends, database/sql rolls the transaction back in the background, and its Commit
// then only returns ErrTxDone.
func TestACommitThatComesTooLateSaysWhy(t *testing.T) {
	t.Parallel()
	d, _, _ := single(t)
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		err := d.Do(ctx, func(context.Context, *db.Tx) error {
			cancel()
			return nil
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, sql.ErrTxDone) {
			t.Fatalf("the unit ends with %v", err)
		}
	}
}

// RELIABILITY.md, Operation.
func TestAConnectionThatOnlyReadsIsThrownAway(t *testing.T) {
	t.Parallel()
	d, _, writes := single(t)
	before := writes()
	err := d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `SET TRANSACTION READ ONLY`); err != nil {
			return err
		}
		return insertGuild(ctx, tx, "1")
	})
	if !db.Unavailable(err) {
		t.Errorf("the write ends with %v", err)
	}
	if after := writes(); after == before {
		t.Error("the connection is still used")
	}
}

// With one connection slot: a request that has queued (Queue) reads in the slot it got, its later
// statements queue as other requests' do, and Unqueue releases the slot of a request that read
// nothing.
func TestARequestQueuesBeforeItReads(t *testing.T) {
	t.Parallel()
	d, _, _ := single(t)
	one, another := db.As(t.Context(), somebody), db.As(t.Context(), db.Caller{Token: "u", Guild: "h"})
	if err := d.Queue(one); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(another, 50*time.Millisecond)
	defer cancel()
	if err := d.Queue(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("another request has a slot too: %v", err)
	}
	for range 2 {
		if err := sleep(one, d.Reader(), 0); err != nil {
			t.Fatal(err)
		}
	}
	db.Unqueue(one)
	if err := d.Queue(another); err != nil {
		t.Fatal(err)
	}
	db.Unqueue(another)
	if err := sleep(one, d.Reader(), 0); err != nil {
		t.Fatal(err)
	}
	db.Unqueue(one)
}
