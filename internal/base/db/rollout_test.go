package db_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// A program of an older release is recognised by the application_name of its connections, while one
// of them is in use. A pooler keeps connections open under that name after the program has ended.
// RELIABILITY.md, Operation.
func TestOlderProgramsAreSeenByTheirConnections(t *testing.T) {
	t.Parallel()
	pool, err := db.OpenSQL(dbtest.New(t).URL, "guildhall-test", 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	older := func(silence time.Duration) db.Strings {
		t.Helper()
		found, err := db.OlderPrograms(t.Context(), pool, db.SchemaVersion(), silence)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if got := older(time.Hour); len(got) != 0 {
		t.Fatalf("among connections of this program: %v", got)
	}
	conn, err := pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		found bool
	}{
		{"guildhall-worker", true},
		{"guildhall", true},
		{"guildhall-jobs 12", true},
		{"guildhall-jobs 100000", false},
		{"psql", false},
		{"guildhalls", false},
	} {
		if _, err := conn.ExecContext(t.Context(), `SELECT set_config('application_name', $1, false)`, c.name); err != nil {
			t.Fatal(err)
		}
		if got := older(time.Hour); slices.Contains(got, c.name) != c.found {
			t.Errorf("with a connection of %q there are %v", c.name, got)
		}
	}
	if _, err := conn.ExecContext(t.Context(), `SET application_name = 'guildhall-worker'; BEGIN`); err != nil {
		t.Fatal(err)
	}
	if got := older(0); len(got) != 1 {
		t.Errorf("with a unit of an older program under way there are %v", got)
	}
	if _, err := conn.ExecContext(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	by, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for len(older(time.Millisecond)) > 0 { // until the connection has been idle for long enough
		if by.Err() != nil {
			t.Fatal("an idle connection still counts")
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
}
