package db_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"guildhall/internal/db"
	"guildhall/internal/db/dbtest"
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
	var first sync.WaitGroup
	first.Add(2)
	lock := func(order ...string) error {
		met := false
		return d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			for i, id := range order {
				if _, err := tx.ExecContext(ctx, `UPDATE guilds SET member_count = member_count + 1 WHERE id = $1`, id); err != nil {
					return err
				}
				if i == 0 && !met {
					met = true
					first.Done()
					first.Wait()
				}
			}
			return nil
		})
	}
	var wg sync.WaitGroup
	for _, order := range [][]string{{"1", "2"}, {"2", "1"}} {
		wg.Go(func() {
			if err := lock(order...); err != nil {
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

func TestCheckSchema(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := dbtest.Empty(t, "template0")
	if err := db.CheckSchema(ctx, url); err == nil || !strings.Contains(err.Error(), "guildhall migrate") {
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
	if err := db.CheckSchema(ctx, url); err != nil {
		t.Fatal(err)
	}
	d, err := db.Open(db.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO goose_db_version (version_id, is_applied) VALUES ($1, true)`, db.SchemaVersion()+1)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.CheckSchema(ctx, url); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Fatalf("got %v for a newer database, want a refusal", err)
	}
}

func TestOpenKeepsThePasswordToItself(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://u:hunter2@host:notaport/db", "mysql://u:hunter2@host/db", "postgres://u:hunter2@%zz/db"} {
		if _, err := db.Open(db.Config{URL: url}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("Open(%q) says %v", url, err)
		}
	}
}
