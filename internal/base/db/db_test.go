package db_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/migrations"
)

func insertGuild(ctx context.Context, tx *db.Tx, id string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO guilds (id, name, owner_id) VALUES ($1, 'g', $1)`, id)
	return err
}

func count(t *testing.T, q db.Querier) int {
	t.Helper()
	var n int
	if err := q.GetContext(context.Background(), &n, `SELECT count(*) FROM guilds`); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestDo(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	ctx := context.Background()
	t.Run("keeps nothing of a unit that fails", func(t *testing.T) {
		oops := errors.New("oops")
		err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			if err := insertGuild(ctx, tx, "1"); err != nil {
				return err
			}
			return oops
		})
		if !errors.Is(err, oops) || count(t, d.Reader()) != 0 {
			t.Fatalf("err %v, %d rows", err, count(t, d.Reader()))
		}
	})
	t.Run("keeps nothing of a unit that panics", func(t *testing.T) {
		func() {
			defer func() { _ = recover() }()
			_ = d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
				if err := insertGuild(ctx, tx, "1"); err != nil {
					return err
				}
				panic("oops")
			})
		}()
		if count(t, d.Reader()) != 0 {
			t.Fatal("a row was kept")
		}
	})
	t.Run("refuses to nest", func(t *testing.T) {
		err := d.Do(ctx, func(ctx context.Context, _ *db.Tx) error {
			return d.Do(ctx, func(context.Context, *db.Tx) error { return nil })
		})
		if err == nil {
			t.Fatal("a unit inside a unit was opened")
		}
	})
	t.Run("hands the transaction to the context", func(t *testing.T) {
		err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			if db.Write(ctx) != tx || db.Read(ctx) != db.Querier(tx) {
				return errors.New("Write and Read find something else")
			}
			a, err := tx.Now(ctx)
			if err != nil {
				return err
			}
			b, err := tx.Now(ctx)
			if err != nil || !a.Equal(b) {
				return fmt.Errorf("now moved within a transaction: %w", err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestAPartIsUndoneWhereItFails(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	oops, runs := errors.New("oops"), 0
	err := d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		failed := tx.Part(ctx, func() error { return errors.Join(insertGuild(ctx, tx, "1"), oops) })
		if !errors.Is(failed, oops) || count(t, tx) != 0 {
			t.Errorf("%v, %d rows", failed, count(t, tx))
		}
		return tx.Part(ctx, func() error {
			if err := insertGuild(ctx, tx, "2"); err != nil {
				return err
			}
			return tx.Part(ctx, func() error { // which gives up once: then the whole is done anew
				if runs++; runs <= 100 {
					return db.Again
				}
				return nil
			})
		})
	})
	if err != nil || runs != 101 || count(t, d.Reader()) != 1 {
		t.Errorf("%v after %d runs, %d rows", err, runs, count(t, d.Reader()))
	}
}

func TestReaderCannotWrite(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	var id string
	err := d.Reader().GetContext(context.Background(), &id, `INSERT INTO guilds (id, name, owner_id) VALUES ($1, 'g', $1) RETURNING id`, "1")
	if err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Fatalf("got %v, want a refusal of the read-only session", err)
	}
}

func TestDoRunsAgainAfterADeadlock(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	ctx := context.Background()
	for _, id := range []string{"1", "2"} {
		if err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error { return insertGuild(ctx, tx, id) }); err != nil {
			t.Fatal(err)
		}
	}
	// On a busy machine one transaction may wait a second longer than the other, so no lock may
	// time out before Postgres has detected the deadlock. The transaction that is retried starts
	// after the other has ended; otherwise the two would deadlock again.
	var first sync.WaitGroup
	first.Add(2)
	ends := map[string]chan struct{}{"1": make(chan struct{}), "2": make(chan struct{})}
	lock := func(one, other string) error {
		runs := 0
		defer close(ends[one])
		return d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			if runs++; runs > 1 {
				<-ends[other]
			}
			if _, err := tx.ExecContext(ctx, `SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0`); err != nil {
				return err
			}
			for _, id := range []string{one, other} {
				if _, err := tx.ExecContext(ctx, `UPDATE guilds SET member_count = member_count + 1 WHERE id = $1`, id); err != nil {
					return err
				}
				if id == one && runs == 1 {
					first.Done()
					first.Wait()
				}
			}
			return nil
		})
	}
	var wg sync.WaitGroup
	for one, other := range map[string]string{"1": "2", "2": "1"} {
		wg.Go(func() {
			if err := lock(one, other); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var sum int
	if err := d.Reader().GetContext(ctx, &sum, `SELECT sum(member_count) FROM guilds`); err != nil || sum != 4 {
		t.Fatalf("the sum is %d (%v), want each change once: 4", sum, err)
	}
}

func TestStatementsArePreparedOncePerConnection(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	d, err := db.Open(db.Config{URL: base.URL, Writers: 1, Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ctx := context.Background()
	for range 5 {
		if err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			var n int
			return tx.GetContext(ctx, &n, `SELECT count(*) FROM guilds WHERE id = $1`, "1")
		}); err != nil {
			t.Fatal(err)
		}
	}
	var kept int
	if err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		return tx.GetContext(ctx, &kept, `SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'SELECT count(*) FROM guilds%'`)
	}); err != nil || kept != 1 {
		t.Fatalf("the connection keeps %d copies of the statement (%v), want 1", kept, err)
	}
}

// RELIABILITY.md, Operation.
func TestCheckSchema(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := dbtest.Empty(t, "template0")
	if _, err := db.CheckSchema(ctx, url); err == nil || !strings.Contains(err.Error(), "guildhall migrate") {
		t.Fatalf("got %v for an empty database, want the command that mends it", err)
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if err := db.Migrate(ctx, url); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if _, err := db.CheckSchema(ctx, url); err != nil {
		t.Fatal(err)
	}
	d, err := db.Open(db.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	dbtest.Exec(t, d, `INSERT INTO goose_db_version (version_id, is_applied, sha256) VALUES ($1, true, '')`, db.SchemaVersion()+1)
	if s, err := db.CheckSchema(ctx, url); err != nil || !s.Newer() || len(s.Invalid) != 0 {
		t.Fatalf("a newer database is %+v, %v, want it to be taken", s, err)
	}
	if err := db.Migrate(ctx, url); err != nil {
		t.Fatalf("migrate on a newer database: %v", err)
	}

	// An interrupted CREATE INDEX CONCURRENTLY leaves such an invalid index.
	dbtest.Exec(t, d, `CREATE INDEX half_made ON guilds (name);
		UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'half_made'::regclass`)
	if s, err := db.CheckSchema(ctx, url); err != nil || len(s.Invalid) != 1 || s.Invalid[0] != "half_made" {
		t.Errorf("invalid indexes: %v, %v", s.Invalid, err)
	}
}

// RELIABILITY.md, Operation.
func TestOldestSchemaIsOneTheStatementsRunOn(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(migrations.Files, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(migrations.Files, name)
		if err != nil {
			t.Fatal(err)
		}
		var number int64
		if _, err := fmt.Sscanf(name, "%d_", &number); err != nil {
			t.Fatal(err)
		}
		if number > db.OldestSchema() && !strings.Contains(string(text), migrations.NotNeeded) {
			t.Errorf("serve starts without %s, which does not say that this may be", name)
		}
	}
	if db.OldestSchema() > db.SchemaVersion() || db.OldestSchema() == 0 {
		t.Errorf("the oldest schema is %d, the newest %d", db.OldestSchema(), db.SchemaVersion())
	}
}

// A migration that meets a lock gives up quickly, so that live traffic does not queue behind it,
// and is retried. RELIABILITY.md, Operation.
func TestMigrateWaitsForALockAndComesAgain(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := dbtest.New(t).URL
	pool, err := db.OpenSQL(url, "test", 2)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, `LOCK TABLE goose_db_version`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- db.Migrate(ctx, url) }()
	for _, want := range []bool{true, false, true} { // an attempt, a pause, another attempt
		testutil.Eventually(t, fmt.Sprintf("waiting for the lock is %v", want), func() bool {
			select {
			case err := <-done:
				t.Fatalf("it did not wait for the lock: %v", err)
			default:
			}
			var waits bool
			err := pool.QueryRowContext(ctx, `
				SELECT EXISTS (SELECT FROM pg_stat_activity
				WHERE datname = current_database() AND application_name LIKE 'guildhall-migrate %' AND wait_event_type = 'Lock')`).Scan(&waits)
			if err != nil {
				t.Fatal(err)
			}
			return waits == want
		})
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := db.CheckSchema(ctx, url); err != nil {
		t.Error(err)
	}
}

// RELIABILITY.md, Operation.
func TestOpenKeepsThePasswordToItself(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://u:hunter2@host:notaport/db", "mysql://u:hunter2@host/db", "postgres://u:hunter2@%zz/db"} {
		if _, err := db.Open(db.Config{URL: url}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("Open(%q) says %v", url, err)
		}
	}
}
