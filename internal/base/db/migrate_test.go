package db_test

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/migrations"
)

// withMigrations returns the program's migrations with some files replaced or added.
func withMigrations(t *testing.T, texts map[string]string) fstest.MapFS {
	t.Helper()
	files := make(fstest.MapFS)
	err := fs.WalkDir(migrations.Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(migrations.Files, name)
		files[name] = &fstest.MapFile{Data: text}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range texts {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return files
}

// Versions of two made-up releases: the next release has an ordinary migration and two contracting
// ones, the release after it has another ordinary migration.
var (
	added, first, second = db.SchemaVersion() + 1, db.SchemaVersion() + 2, db.SchemaVersion() + 3
	afterNext            = db.SchemaVersion() + 4
)

// nextRelease returns the migrations of the next release and those in more. It adds the column
// cases.added and drops two columns that this release needs.
func nextRelease(t *testing.T, more map[string]string) fstest.MapFS {
	t.Helper()
	texts := map[string]string{
		fmt.Sprintf("%04d_added.sql", added):            "-- +goose Up\nALTER TABLE cases ADD COLUMN added text;\n",
		fmt.Sprintf("contract/%04d_first.sql", first):   "-- +goose Up\nALTER TABLE cases DROP COLUMN metadata;\n",
		fmt.Sprintf("contract/%04d_second.sql", second): "-- +goose Up\nALTER TABLE tickets DROP COLUMN metadata;\n",
	}
	maps.Copy(texts, more)
	return withMigrations(t, texts)
}

// releaseAfterNext returns nextRelease with an ordinary migration after the contracting ones.
func releaseAfterNext(t *testing.T) fstest.MapFS {
	t.Helper()
	return nextRelease(t, map[string]string{
		fmt.Sprintf("%04d_after_next.sql", afterNext): "-- +goose Up\nALTER TABLE cases ADD COLUMN after_next text;\n",
	})
}

func pooled(t *testing.T, url string) *sql.DB {
	t.Helper()
	pool, err := db.OpenSQL(url, "test", 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

func execAll(t *testing.T, pool *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := pool.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// wantFinished fails the test unless every migration of the made-up releases has run once.
func wantFinished(t *testing.T, s db.Schema, pool *sql.DB) {
	t.Helper()
	var oldest int64
	var contracted db.Strings
	if err := pool.QueryRowContext(t.Context(), `
		SELECT (SELECT schema_version FROM oldest_program),
		       (SELECT array_agg(version_id::text ORDER BY id) FROM goose_contract_version WHERE version_id > 0)`,
	).Scan(&oldest, &contracted); err != nil {
		t.Fatal(err)
	}
	if s.Unfinished() != "" || oldest != second || strings.Join(contracted, " ") != fmt.Sprint(first, second) {
		t.Errorf("the schema is at %d, %q; programs have to know %d; the contracting migrations %v have run, of %d and %d",
			s.Version, s.Unfinished(), oldest, contracted, first, second)
	}
}

// migrated runs the migrations of a release on the database at url.
func migrated(t *testing.T, url string, files fstest.MapFS) db.Schema {
	t.Helper()
	s, err := db.MigrateWith(t.Context(), url, pooled(t, url), files)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// only returns the files without one of them.
func only(files fstest.MapFS, but string) fstest.MapFS {
	delete(files, but)
	return files
}

// An ordinary migration can always take the next number, whichever contracting migrations have run
// or are waiting.
func TestAnyMigrationCanBeAddedLast(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(t *testing.T, url string){
		"an empty database":                  nil,
		"a database of this release":         func(t *testing.T, url string) { migrated(t, url, withMigrations(t, nil)) },
		"one on which contracting ones wait": func(t *testing.T, url string) { waiting(t, url) },
		"one on which all of these have run": func(t *testing.T, url string) { migrated(t, url, nextRelease(t, nil)) },
		"one on which some of them have run": func(t *testing.T, url string) {
			migrated(t, url, only(nextRelease(t, nil), fmt.Sprintf("contract/%04d_second.sql", second)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := dbtest.Empty(t, "template0")
			if before != nil {
				before(t, url)
			}
			s := migrated(t, url, releaseAfterNext(t))
			pool := pooled(t, url)
			execAll(t, pool, `SELECT added, after_next FROM cases`)
			if s.Version != afterNext {
				t.Errorf("the schema is at %d, want %d", s.Version, afterNext)
			}
			wantFinished(t, s, pool)
		})
	}
}

// waiting migrates the database at url as far as the next release can while a node of this release
// runs.
func waiting(t *testing.T, url string) {
	t.Helper()
	migrated(t, url, withMigrations(t, nil))
	pool := pooled(t, url)
	execAll(t, pool, `INSERT INTO auth_nodes (id, epoch, seen_at) VALUES ('of-old', 0, now() + interval '1 hour')`)
	if s := migrated(t, url, nextRelease(t, nil)); s.Waits != first || s.Version != added {
		t.Fatalf("the schema is at %d, migration %d waits", s.Version, s.Waits)
	}
	execAll(t, pool, `DELETE FROM auth_nodes`)
}

// While a program of this release runs, the next release's ordinary migrations run and
// its contracting ones wait: the columns that this release needs stay, and migrate, serve
// and doctor say which program is waited for.
// RELIABILITY.md, Operation.
func TestContractingMigrationsWaitForProgramsOfThisRelease(t *testing.T) {
	t.Parallel()
	url := dbtest.Empty(t, "")
	pool := pooled(t, url)
	beating := `INSERT INTO auth_nodes (id, epoch, seen_at, schema_version) VALUES ('of-old', 0, now() + interval '1 hour', $1)`
	if _, err := pool.ExecContext(t.Context(), beating, db.SchemaVersion()); err != nil {
		t.Fatal(err)
	}
	waits := func(name string, files fstest.MapFS) {
		t.Helper()
		s := migrated(t, url, files)
		if s.Waits != first || !slices.Contains(s.Older, name) || !strings.Contains(s.Unfinished(), name) {
			t.Fatalf("migration %d waits for %v: %s", s.Waits, s.Older, s.Unfinished())
		}
		execAll(t, pool, `SELECT added, metadata FROM cases`)
	}
	waits("node of-old", nextRelease(t, nil))
	waits("node of-old", releaseAfterNext(t))
	execAll(t, pool, `SELECT after_next FROM cases`, `DELETE FROM auth_nodes`)

	// A worker process has connections but no heartbeat.
	worker, err := pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("guildhall-worker %d", db.SchemaVersion())
	if _, err := worker.ExecContext(t.Context(), `SELECT set_config('application_name', $1, false)`, name); err != nil {
		t.Fatal(err)
	}
	waits(name, releaseAfterNext(t))
	if _, err := worker.ExecContext(t.Context(), `RESET application_name`); err != nil {
		t.Fatal(err)
	}
	if err := worker.Close(); err != nil {
		t.Fatal(err)
	}
	wantFinished(t, migrated(t, url, releaseAfterNext(t)), pool)
	if _, err := db.CheckSchema(t.Context(), url); !errors.Is(err, db.ErrProgramTooOld) {
		t.Errorf("this release starts on the contracted database: %v", err)
	}
}

// Both kinds of migrations share one sequence of numbers: a contracting migration runs when every
// running program knows its number.
func TestNoNumberOfAMigrationIsTakenTwice(t *testing.T) {
	t.Parallel()
	taken := make(map[string]string)
	err := fs.WalkDir(migrations.Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		number := path.Base(name)[:4]
		if other := taken[number]; other != "" {
			t.Errorf("%s and %s have one number", other, name)
		}
		taken[number] = name
		return nil
	})
	if err != nil || len(taken) < 15 {
		t.Fatalf("%d migrations, %v", len(taken), err)
	}
}

// An interrupted contracting migration may have removed a part of what older programs need, so
// older programs must not start once it has begun. RELIABILITY.md, Operation.
func TestAContractingMigrationShutsOutOlderProgramsFirst(t *testing.T) {
	t.Parallel()
	url := dbtest.Empty(t, "")
	pool := pooled(t, url)
	broken := nextRelease(t, map[string]string{
		fmt.Sprintf("contract/%04d_first.sql", first): "-- +goose NO TRANSACTION\n-- +goose Up\nSELECT 1/0;\n",
	})
	if _, err := db.MigrateWith(t.Context(), url, pool, broken); err == nil {
		t.Fatal("a migration that fails has not failed")
	}
	var oldest int64
	err := pool.QueryRowContext(t.Context(), `SELECT schema_version FROM oldest_program`).Scan(&oldest)
	if err != nil || oldest != first {
		t.Errorf("programs have to know %d, %v, want %d", oldest, err, first)
	}
}

// A program that is older than a contracting migration allows does not run. RELIABILITY.md,
// Operation.
func TestAProgramBelowTheOldestThatMayRunIsRefused(t *testing.T) {
	t.Parallel()
	url := dbtest.Empty(t, "")
	pool := pooled(t, url)
	for oldest, refused := range map[int64]bool{db.SchemaVersion(): false, db.SchemaVersion() + 1: true} {
		if _, err := pool.ExecContext(t.Context(), `UPDATE oldest_program SET schema_version = $1`, oldest); err != nil {
			t.Fatal(err)
		}
		_, err := db.CheckSchema(t.Context(), url)
		if errors.Is(err, db.ErrProgramTooOld) != refused || (err != nil) != refused {
			t.Errorf("where programs have to know %d: %v", oldest, err)
		}
		if err != nil && !strings.Contains(err.Error(), strconv.FormatInt(oldest, 10)) {
			t.Errorf("%v does not name %d", err, oldest)
		}
	}
}

// Settings that a failing migration makes for its session do not exist when the migration is
// retried.
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

// A node that is started with --migrate runs the ordinary migrations at its start, and the
// contracting ones later: until then the release before starts on the database, also with
// --migrate. On a new database nothing waits.
// RELIABILITY.md, Operation.
func TestANodeThatMigratesLeavesTheWayBackOpen(t *testing.T) {
	t.Parallel()
	url := dbtest.Empty(t, "template0")
	pool := pooled(t, url)
	expand := func(files fstest.MapFS) db.Schema {
		t.Helper()
		s, err := db.ExpandWith(t.Context(), url, pool, files)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	expand(withMigrations(t, nil))
	if s := expand(nextRelease(t, nil)); s.Waits != first || s.Version != added {
		t.Fatalf("the schema is at %d, migration %d waits", s.Version, s.Waits)
	}
	if s := expand(withMigrations(t, nil)); !s.Newer() {
		t.Errorf("the release before finds the schema at %d", s.Version)
	}
	execAll(t, pool, `SELECT added, metadata FROM cases`,
		`INSERT INTO auth_nodes (id, epoch, seen_at) VALUES ('of-old', 0, now() + interval '1 hour')`)
	var waits []int64
	err := db.FinishWith(t.Context(), url, nextRelease(t, nil), func(s db.Schema, err error) {
		if err != nil {
			t.Error(err)
		}
		if waits = append(waits, s.Waits); len(waits) == 2 {
			execAll(t, pool, `DELETE FROM auth_nodes`)
		}
	})
	if err != nil || !slices.Equal(waits, []int64{first, first, 0}) {
		t.Errorf("after the tries %v wait, %v", waits, err)
	}
	fresh := dbtest.Empty(t, "template0")
	if s, err := db.ExpandWith(t.Context(), fresh, pooled(t, fresh), nextRelease(t, nil)); err != nil || s.Waits != 0 {
		t.Errorf("on a new database migration %d waits, %v", s.Waits, err)
	}
}
