package db_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
)

// The read-only pool asks for the server that takes writes, too: its sessions
// are read-only by our own doing.
func TestBothPoolsFindTheServerThatTakesWrites(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t).URL
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = testutil.Refusing(t) + "," + u.Host // no server is there any more
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

	// Where no server takes writes, they may be sent again later.
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

// A URL may ask for no prepared statements, for poolers that know none.
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

// A pooler that hands one connection to several clients, and knows nothing of what
// they prepare, is named with what is to be done.
func TestAPoolerThatKeepsNoStatementsIsNamedWithTheRemedy(t *testing.T) {
	t.Parallel()
	pool, err := db.OpenSQL(dbtest.New(t).URL, "guildhall-test", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ask := func() error { return pool.QueryRowContext(t.Context(), `SELECT $1::int`, 1).Scan(new(int)) }
	for _, another := range []string{
		`PREPARE "1" AS SELECT 1`, // the driver's first name, of another client
		`DEALLOCATE ALL`,          // the connection is another one now
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
