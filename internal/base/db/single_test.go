package db_test

import (
	"context"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
)

// A statement that is a whole transaction is sent once. An idle connection that the server has
// closed is replaced first; if the connection breaks while the statement runs, the outcome is
// Uncertain. RELIABILITY.md, Writes.
func TestASingleStatementIsSentOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d, _, writes := single(t)
	ended := writes()
	var gone bool
	if err := d.Reader().GetContext(ctx, &gone, `SELECT pg_terminate_backend($1::int)`, ended); err != nil || !gone {
		t.Fatal(gone, err)
	}
	testutil.Eventually(t, "the backend's end", func() bool {
		var n int
		if err := d.Reader().GetContext(ctx, &n, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, ended); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
	within, leave, err := d.Enter(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var id string
	alone := d.Single()
	err = alone.GetContext(within, &id, `INSERT INTO guilds (id, name, owner_id) VALUES ($1, 'x', '1') RETURNING id`, "1")
	if err != nil || id != "1" {
		t.Errorf("over a connection that had ended: %q, %v", id, err)
	}
	err = alone.GetContext(within, &id, `INSERT INTO guilds (id, name, owner_id) VALUES ($1, 'x', '1') RETURNING id`, "1")
	if err == nil || db.Uncertain(err) {
		t.Errorf("what Postgres refuses: %v", err)
	}
	err = alone.GetContext(within, &id, `SELECT pg_terminate_backend(pg_backend_pid())::text WHERE $1 = 'x'`, "x")
	if !db.Uncertain(err) || !db.Unavailable(err) {
		t.Errorf("a connection that ends under way: %v", err)
	}
	leave()
	if n := count(t, d.Reader()); n != 1 {
		t.Errorf("%d rows of one insert", n)
	}
	if s := d.Stats(); s.Writes.Held != 0 {
		t.Errorf("%d slots are held", s.Writes.Held)
	}
}

// A batch has one timeout for all its statements together: of five that take two seconds each, at
// most three fit into six seconds.
func TestABatchHasOneTimeForAllItsStatements(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	within, leave, err := d.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	made := 0
	for range 5 {
		var slept string
		if err := d.Single().GetContext(within, &slept, `SELECT pg_sleep(2)::text WHERE $1 = 'x'`, "x"); err != nil {
			break
		}
		made++
	}
	if made > 3 {
		t.Errorf("%d statements of two seconds fit into a batch of six", made)
	}
}

// On a database whose sessions are read-only by default, writes still work: in transactions, as
// single statements, over the listener's connection and through libraries.
func TestWhatWritesSaysSo(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	name := dbtest.Value[string](t, base.DB, `SELECT current_database()`)
	dbtest.Exec(t, base.DB, `ALTER DATABASE "`+name+`" SET default_transaction_read_only = on`)
	d, err := db.Open(db.Config{URL: base.URL, Writers: 1, Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	dbtest.AddGuilds(t, d, "1")
	within, leave, err := d.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	var id string
	if err := d.Single().GetContext(within, &id, `UPDATE guilds SET name = 'x' WHERE id = $1 RETURNING id`, "1"); err != nil {
		t.Errorf("a statement alone: %v", err)
	}
	line, err := db.Listen(t.Context(), base.URL, "guildhall-test", "somewhere")
	if err != nil {
		t.Fatal(err)
	}
	defer line.Close()
	if err := line.Exec(t.Context(), `UPDATE guilds SET name = 'y'`); err != nil {
		t.Errorf("over the line: %v", err)
	}
	pool, err := db.OpenSQL(base.URL, "guildhall-test", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.ExecContext(t.Context(), `UPDATE guilds SET name = 'z'`); err != nil {
		t.Errorf("by a library: %v", err)
	}
}
