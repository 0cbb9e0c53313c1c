package db_test

import (
	"testing"

	"guildhall/internal/db"
	"guildhall/internal/db/dbtest"
)

// A build before the release had migrations 101 to 103 as 97 to 99. Where they have
// run under those numbers, in part or all of them, they do not run again: on
// distributed tables they could not.
func TestMigrationsThatWereRenumberedRunOnce(t *testing.T) {
	t.Parallel()
	url := dbtest.New(t).URL
	pool, err := db.OpenSQL(url, "guildhall-test", 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	for _, statement := range []string{
		`DELETE FROM goose_db_version WHERE version_id = 100`,
		`UPDATE goose_db_version SET version_id = version_id - 4 WHERE version_id IN (101, 102, 103)`,
		`ALTER TABLE webhook_events DROP COLUMN trace`,
	} {
		if _, err := pool.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := db.Migrate(t.Context(), url); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := db.CheckSchema(t.Context(), url); err != nil || s.Version != db.SchemaVersion() || s.Unfinished() != "" {
		t.Errorf("the schema is at %d, %q, %v", s.Version, s.Unfinished(), err)
	}
	var traced bool
	err = pool.QueryRowContext(t.Context(), `
		SELECT EXISTS (SELECT FROM information_schema.columns WHERE table_name = 'webhook_events' AND column_name = 'trace')`).Scan(&traced)
	if err != nil || !traced {
		t.Errorf("events have no trace: %v", err)
	}
}

// What a migration that fails has set for its session is not there when it comes
// again.
func TestEachTryOfAMigrationHasItsOwnSession(t *testing.T) {
	t.Parallel()
	pool, err := db.MigrationPool(dbtest.New(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	for range 2 {
		conn, err := pool.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var limit string
		if err := conn.QueryRowContext(t.Context(), `SHOW lock_timeout`).Scan(&limit); err != nil || limit != "2s" {
			t.Errorf("lock_timeout is %q, %v", limit, err)
		}
		if _, err := conn.ExecContext(t.Context(), `SET lock_timeout = '60s'`); err != nil {
			t.Error(err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}
