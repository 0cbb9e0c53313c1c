// Package dbtest gives each test a migrated database of its own, on a real
// Postgres. Only tests may import it.
package dbtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
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

// Variable names a server to use in place of one of the test's own. The
// databases made there are dropped again.
const Variable = "GUILDHALL_TEST_DATABASE_URL"

// Database is a migrated, empty database that no other test sees.
type Database struct {
	URL string
	DB  *db.DB
}

// New makes a database and drops it when the test ends. Without Postgres
// programs on the machine it skips the test, or fails it on CI.
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

// Empty is New without the pools. From names the database to copy: empty means
// the migrated one, template0 one without any table.
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
	if err := s.everywhere(ctx, fmt.Sprintf(`CREATE DATABASE %s TEMPLATE %s STRATEGY wal_log`, name, from)); err != nil {
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

// server is what all tests of the process share. A server of its own ends with
// the process: its guard sees to that.
type server struct {
	url      string
	admin    *sql.DB
	template string
	cluster  *cluster // nil on plain Postgres
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
		s.url = own.URL
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

// prepare makes the migrated template unless another package's tests have made
// it on this server already. An advisory lock lets one of them do it.
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
	// The coordinator's comes last: where it is, all are.
	pools := s.servers()
	slices.Reverse(pools)
	for _, pool := range pools {
		if err := seal(ctx, pool, draft, s.template); err != nil {
			return err
		}
	}
	return nil
}

// fill migrates the draft of the template, and distributes it on a coordinator.
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

// seal makes a template of the draft. The sessions of the migration are closed,
// but Postgres takes a moment to end them, and neither statement works while one
// is there; what Citus keeps connected is told to go.
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

// drop drops a database on every node. The coordinator's goes first: what it keeps
// connected to those of its workers ends with it.
func (s *server) drop(ctx context.Context, name string) error {
	for _, pool := range s.servers() {
		if err := undisturbed(ctx, pool, name, `DROP DATABASE IF EXISTS `+name+` WITH (FORCE)`); err != nil {
			return err
		}
	}
	return nil
}

// undisturbed runs a statement that wants nobody else connected to a database, and tells
// those who are to go.
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

// schema names the state that the migrations lead to: ours by their text, the
// job engine's by its version.
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

// urlOfDatabase is the URL of another database on the same server.
func urlOfDatabase(server, name string) string {
	u, err := url.Parse(server)
	if err != nil {
		panic(err) // the pool was opened with it
	}
	u.Path = "/" + name
	return u.String()
}
