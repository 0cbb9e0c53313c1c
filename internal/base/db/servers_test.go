package db_test

import (
	"context"
	"strings"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
)

// Both pools connect to the server that accepts writes, although the sessions of the read-only pool
// are read-only.
func TestBothPoolsFindTheServerThatTakesWrites(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t).URL
	u := dbtest.OverTCP(t, base)
	u.Host = testutil.Refusing(t) + "," + u.Host // a first host that refuses connections
	raw := u.String() + "&target_session_attrs=read-write"
	d, err := db.Open(db.Config{URL: raw, Writers: 1, Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var one int
	if err := d.Reader().GetContext(t.Context(), &one, `SELECT 1`); err != nil {
		t.Errorf("read: %v", err)
	}
	if err := d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error { return tx.GetContext(ctx, &one, `SELECT 1`) }); err != nil {
		t.Errorf("write: %v", err)
	}
	line, err := db.Listen(t.Context(), raw, "guildhall-test", "somewhere")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	line.Close()

	// If no server accepts writes, the error says that the statement may be retried later.
	pool, err := db.OpenSQL(u.String()+"&target_session_attrs=standby", "guildhall-test", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := pool.PingContext(t.Context()); err == nil {
		t.Error("a primary was taken for a standby")
	}
	only, err := db.OpenAsItIs(base + "&target_session_attrs=read-write&default_transaction_read_only=true")
	if err != nil {
		t.Fatal(err)
	}
	defer only.Close()
	if err := only.PingContext(t.Context()); !db.Unavailable(err) {
		t.Errorf("of a server that only reads: %v", err)
	}
}

// A URL can switch prepared statements off, for poolers that do not support them.
func TestStatementsNeedNotBePrepared(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t).URL
	for url, want := range map[string]int{base: 1, base + "&binary_parameters=yes": 0} {
		pool, err := db.OpenSQL(url, "guildhall-test", 1)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		var bytes []byte
		var text string
		row := pool.QueryRowContext(t.Context(), `SELECT $1::bytea, ($2::jsonb)->>'a'`, []byte{0, 1, 255}, `{"a":"ä"}`)
		if err := row.Scan(&bytes, &text); err != nil || string(bytes) != "\x00\x01\xff" || text != "ä" {
			t.Errorf("%q, %q, %v", bytes, text, err)
		}
		var kept int
		if err := pool.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_prepared_statements`).Scan(&kept); err != nil || kept != want {
			t.Errorf("%d statements are kept, want %d: %v", kept, want, err)
		}
	}
}

// If a pooler shares a connection among clients without tracking their prepared statements, the
// error names the pooler and the remedy.
func TestAPoolerThatKeepsNoStatementsIsNamedWithTheRemedy(t *testing.T) {
	t.Parallel()
	pool, err := db.OpenSQL(dbtest.New(t).URL, "guildhall-test", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ask := func() error { return pool.QueryRowContext(t.Context(), `SELECT $1::int`, 1).Scan(new(int)) }
	for _, another := range []string{
		`PREPARE "1" AS SELECT 1`, // another client has prepared a statement under the driver's first name
		`DEALLOCATE ALL`,          // the pooler has switched to another connection
	} {
		if _, err := pool.ExecContext(t.Context(), another); err != nil {
			t.Fatal(err)
		}
		if err := ask(); err == nil || !strings.Contains(err.Error(), "binary_parameters=yes") {
			t.Errorf("after %s: %v", another, err)
		}
		if err := ask(); err != nil {
			t.Errorf("then, after %s: %v", another, err)
		}
	}
}
