// Package dbtest gives each test its own migrated database on a real Postgres. Only tests may
// import it.
package dbtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/embedded"
	"guildhall/internal/base/fault"
	"guildhall/migrations"
)

// Variable is the environment variable with the URL of an existing server to use instead of
// starting one. The databases that the tests create there are dropped afterwards.
const Variable = "GUILDHALL_TEST_DATABASE_URL"

// Database is a migrated, empty database for one test.
type Database struct {
	URL string
	DB  *db.DB
}

// New creates a database and drops it when the test ends. On a machine without Postgres programs it
// skips the test; on CI it fails it.
func New(t testing.TB) *Database {
	t.Helper()
	return Open(t, Empty(t, ""))
}

// Open opens the pools of a database.
func Open(t testing.TB, url string) *Database {
	t.Helper()
	pool, err := db.Open(db.Config{URL: url, Writers: 16, Readers: 8, Name: "guildhall-test", Distributed: Coordinator(t)})
	if err != nil {
		t.Fatalf("open the test database: %v", err)
	}
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Errorf("close the test database: %v", err)
		}
	})
	return &Database{URL: url, DB: pool}
}

// Empty is New without the pools. from names the database to copy: "" is the migrated template,
// template0 is a database without tables.
func Empty(t testing.TB, from string) string {
	t.Helper()
	s, err := sharedServer()
	if errors.Is(err, embedded.ErrNoPrograms) && os.Getenv("CI") == "" {
		t.Skipf("needs Postgres: %v", err)
	}
	if err != nil {
		t.Fatalf("start the test server: %v", err)
	}
	s.skipApart(t)
	if from == "" {
		from = s.template
	}
	name := "guildhall_test_" + strings.ToLower(rand.Text())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// A copy of the template's files costs half of wal_log: 52 ms of CPU instead of 99 for a database with three
	// sessions, since the copy's pages are not dirty when DROP DATABASE makes a checkpoint.
	if err := s.everywhere(ctx, fmt.Sprintf(`CREATE DATABASE %s TEMPLATE %s STRATEGY file_copy`, name, from)); err != nil {
		t.Fatalf("make the test database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if s.cluster == nil {
			wantForms(ctx, t, urlOfDatabase(s.url, name), name)
		}
		if err := s.drop(ctx, name); err != nil {
			t.Errorf("drop the test database: %v", err)
		}
		wantRules(t, name)
	})
	return urlOfDatabase(s.url, name)
}

// OverTCP returns the URL of a test's database with an address and a port, for tests that put something between
// the program and its database. Other tests use the server's Unix socket, which is cheaper.
func OverTCP(t testing.TB, database string) *url.URL {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	if strings.HasPrefix(q.Get("host"), "/") {
		u.Host = net.JoinHostPort("127.0.0.1", cmp.Or(q.Get("port"), "5432"))
		q.Del("host")
		q.Del("port")
		u.RawQuery = q.Encode()
	}
	return u
}

// server is the Postgres server that all tests of the process share. If the process started the
// server, the server's guard stops it when the process ends.
type server struct {
	url      string
	admin    *sql.DB
	template string
	cluster  *cluster // nil for plain Postgres
}

var sharedServer = sync.OnceValues(func() (*server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	s := &server{url: os.Getenv(Variable)}
	if s.url == "" {
		own, err := embedded.Start(ctx, embedded.Config{Fast: true, TCP: true, Memory: true})
		if err != nil {
			return nil, err
		}
		s.url = own.Local
	}
	var err error
	if s.admin, err = db.OpenSQL(s.url, "guildhall-dbtest", 4); err != nil {
		return nil, err
	}
	if s.cluster, err = coordinated(ctx, s.admin, s.url); err != nil {
		return nil, fault.Wrap(err, "look for the nodes of the cluster")
	}
	if err := s.prepare(ctx); err != nil {
		return nil, fault.Wrap(err, "prepare the template database")
	}
	return s, nil
})

// prepare creates the migrated template, unless the tests of another package have already created
// it on this server. An advisory lock lets one process at a time do so.
func (s *server) prepare(ctx context.Context) error {
	version, err := schema()
	if err != nil {
		return err
	}
	s.template = "guildhall_template_" + version
	conn, err := s.admin.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	key := fnv.New32()
	key.Write([]byte("guildhall template"))
	if _, err := conn.ExecContext(ctx, `SELECT pg_advisory_lock($1)`, int64(key.Sum32())); err != nil {
		return err
	}
	defer func() { _, _ = conn.ExecContext(ctx, `SELECT pg_advisory_unlock_all()`) }()
	var exists bool
	err = conn.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)`, s.template).Scan(&exists)
	if err != nil || exists {
		return err
	}
	draft := s.template + "_draft"
	for _, statement := range []string{`DROP DATABASE IF EXISTS ` + draft + ` WITH (FORCE)`, `CREATE DATABASE ` + draft} {
		if err := s.everywhere(ctx, statement); err != nil {
			return err
		}
	}
	if err := s.fill(ctx, draft); err != nil {
		return err
	}
	// The first session after a migration caches the catalog's descriptions in a file, which is copied with the
	// template: the first session of a copy need not write it.
	if err := once(ctx, urlOfDatabase(s.url, draft), `SELECT 1`); err != nil {
		return err
	}
	// The coordinator's template is created last: if it exists, all nodes have theirs.
	pools := s.servers()
	slices.Reverse(pools)
	for _, pool := range pools {
		if err := seal(ctx, pool, draft, s.template); err != nil {
			return err
		}
	}
	return nil
}

// fill migrates the draft of the template and, on a coordinator, distributes its tables.
func (s *server) fill(ctx context.Context, draft string) error {
	if s.cluster == nil {
		return db.Migrate(ctx, urlOfDatabase(s.url, draft))
	}
	if err := s.join(ctx, draft); err != nil {
		return err
	}
	_, err := db.Distribute(ctx, urlOfDatabase(s.url, draft))
	return err
}

// seal turns the draft into a template. The migration's sessions are closed, but Postgres needs a
// moment to end them, and neither statement works while a session is connected; so seal also
// terminates the connections that Citus keeps.
func seal(ctx context.Context, pool *sql.DB, draft, template string) error {
	for _, statement := range []string{
		`DROP DATABASE IF EXISTS ` + template + ` WITH (FORCE)`,
		`ALTER DATABASE ` + draft + ` ALLOW_CONNECTIONS false`,
		`ALTER DATABASE ` + draft + ` RENAME TO ` + template,
	} {
		if err := undisturbed(ctx, pool, draft, statement); err != nil {
			return err
		}
	}
	return nil
}

// drop drops a database on every node, the coordinator's first: that ends the coordinator's
// connections to the workers' databases.
func (s *server) drop(ctx context.Context, name string) error {
	for _, pool := range s.servers() {
		if err := undisturbed(ctx, pool, name, `DROP DATABASE IF EXISTS `+name+` WITH (FORCE)`); err != nil {
			return err
		}
	}
	return nil
}

// undisturbed runs a statement that requires that no session is connected to the database. It
// terminates the sessions that are.
func undisturbed(ctx context.Context, pool *sql.DB, database, statement string) error {
	for {
		_, err := pool.ExecContext(ctx, statement)
		if err == nil || !strings.Contains(err.Error(), "being accessed by other users") || ctx.Err() != nil {
			return err
		}
		if _, err := pool.ExecContext(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1`, database); err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// schema returns a hash of the migrations' text, by which the template is named.
func schema() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(migrations.Files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := migrations.Files.ReadFile(path)
		fmt.Fprintf(sum, "%s %d\n%s", path, len(text), text)
		return err
	})
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// urlOfDatabase returns the URL of another database on the same server.
func urlOfDatabase(server, name string) string {
	u, err := url.Parse(server)
	if err != nil {
		panic(err) // cannot fail: the pool was opened with this URL
	}
	u.Path = "/" + name
	return u.String()
}
