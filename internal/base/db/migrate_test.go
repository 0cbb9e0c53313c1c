package db_test

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
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

// withMigrations is the program's migrations with other texts for some, or with
// some more.
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

// contracting are the numbers of the migrations that take away what older programs
// need, in their order.
func contracting(t *testing.T) (numbers []int64) {
	t.Helper()
	names, err := fs.Glob(migrations.Files, migrations.Contract+"/*.sql")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		numbers = append(numbers, numberOf(t, name))
	}
	return numbers
}

func numberOf(t *testing.T, name string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(path.Base(name)[:4], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func pooled(t *testing.T, url string) *sql.DB {
	t.Helper()
	pool, err := db.OpenSQL(url, "guildhall-test", 2)
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

// wantFinished wants every migration of a program to have run, and each of them once.
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
	numbers := contracting(t)
	if s.Unfinished() != "" || oldest != numbers[len(numbers)-1] || strings.Join(contracted, " ") != strings.Trim(fmt.Sprint(numbers), "[]") {
		t.Errorf("the schema is at %d, %q; programs have to know %d; the contracting migrations %v have run, of %v",
			s.Version, s.Unfinished(), oldest, contracted, numbers)
	}
}

// An ordinary migration takes the next number and nothing else, whatever contracting
// ones have run or wait.
func TestAnyMigrationCanBeAddedLast(t *testing.T) {
	t.Parallel()
	next := db.SchemaVersion() + 1
	files := withMigrations(t, map[string]string{
		fmt.Sprintf("%04d_added_last.sql", next): "-- +goose Up\nALTER TABLE cases ADD COLUMN added_last text;\n",
	})
	for name, url := range map[string]string{
		"a fresh database":                    dbtest.Empty(t, "template0"),
		"a database of the last release":      dbtest.At(t, dbtest.Released),
		"one on which contracting ones wait":  dbtest.At(t, dbtest.Expanded),
		"one on which all of these have run":  dbtest.Empty(t, ""),
		"one on which some of them have run":  contractedTo(t, 102),
		"one of a build before the release":   ofABuildBefore(t, 0, 101, 102, 103),
		"one of that build, with some to run": ofABuildBefore(t, 0, 101),
		"one of a build with other numbers":   ofABuildBefore(t, 4, 101, 102, 103),
		"one of that build, with some to do":  ofABuildBefore(t, 4, 101, 102),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pooled(t, url)
			s, err := db.MigrateWith(t.Context(), url, pool, files)
			if err != nil {
				t.Fatal(err)
			}
			execAll(t, pool, `SELECT added_last FROM cases`, `SELECT trace FROM webhook_events`)
			if s.Version != next {
				t.Errorf("the schema is at %d, want %d", s.Version, next)
			}
			wantFinished(t, s, pool)
		})
	}
}

// contractedTo is a database at 104, on which the contracting migrations have run up
// to that number.
func contractedTo(t *testing.T, last int64) (url string) {
	t.Helper()
	url = dbtest.At(t, 104)
	files := make(fstest.MapFS)
	for name, file := range withMigrations(t, nil) {
		if n := numberOf(t, name); n <= last || n == 104 {
			files[name] = file
		}
	}
	if s, err := db.MigrateWith(t.Context(), url, pooled(t, url), files); err != nil || s.Waits != 0 {
		t.Fatalf("migration %d waits, %v", s.Waits, err)
	}
	return url
}

// ofABuildBefore is a database of a build before the release, which knew one kind of
// migrations, that has run some of its contracting ones under numbers that were
// smaller by moved.
func ofABuildBefore(t *testing.T, moved int64, ran ...int64) (url string) {
	t.Helper()
	url = contractedTo(t, slices.Max(ran))
	pool := pooled(t, url)
	execAll(t, pool, `DELETE FROM goose_db_version WHERE version_id = 104`, `DROP TABLE goose_contract_version`, `DROP TABLE oldest_program`)
	for _, n := range ran {
		execAll(t, pool, fmt.Sprintf(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (%d, true)`, n-moved))
	}
	if moved > 0 { // it had no 100 either
		execAll(t, pool, `DELETE FROM goose_db_version WHERE version_id = 100`, `ALTER TABLE webhook_events DROP COLUMN trace`)
	}
	return url
}

// While a program of an older release is at work, an added migration runs and the
// contracting ones wait.
// RELIABILITY.md, Operation.
func TestAMigrationIsAddedWhileContractingOnesWait(t *testing.T) {
	t.Parallel()
	url := dbtest.At(t, dbtest.Expanded)
	pool := pooled(t, url)
	files := withMigrations(t, map[string]string{
		fmt.Sprintf("%04d_added_last.sql", db.SchemaVersion()+1): "-- +goose Up\nALTER TABLE cases ADD COLUMN added_last text;\n",
	})
	execAll(t, pool, `INSERT INTO auth_nodes (id, epoch, seen_at) VALUES ('of-old', 0, now() + interval '1 hour')`)
	s, err := db.MigrateWith(t.Context(), url, pool, files)
	if err != nil || s.Waits != contracting(t)[0] || !slices.Contains(s.Older, "node of-old") {
		t.Fatalf("migration %d waits for %v, %v", s.Waits, s.Older, err)
	}
	execAll(t, pool, `SELECT added_last FROM cases`, `DELETE FROM auth_nodes`)
	if s, err = db.MigrateWith(t.Context(), url, pool, files); err != nil {
		t.Fatal(err)
	}
	wantFinished(t, s, pool)
}

// Both kinds of migrations take their numbers from one row: a contracting one runs
// when no program is at work that does not know its number.
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
	if err != nil || len(taken) < 40 {
		t.Fatalf("%d migrations, %v", len(taken), err)
	}
}

// A contracting migration that is cut off has taken away a part of what older
// programs need, so they do not start from its beginning on.
// RELIABILITY.md, Operation.
func TestAContractingMigrationShutsOutOlderProgramsFirst(t *testing.T) {
	t.Parallel()
	url := dbtest.At(t, dbtest.Expanded)
	pool := pooled(t, url)
	names, err := fs.Glob(migrations.Files, migrations.Contract+"/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	broken := withMigrations(t, map[string]string{names[0]: "-- +goose NO TRANSACTION\n-- +goose Up\nSELECT 1/0;\n"})
	if _, err := db.MigrateWith(t.Context(), url, pool, broken); err == nil {
		t.Fatal("a migration that fails has not failed")
	}
	var oldest int64
	err = pool.QueryRowContext(t.Context(), `SELECT schema_version FROM oldest_program`).Scan(&oldest)
	if err != nil || oldest != contracting(t)[0] {
		t.Errorf("programs have to know %d, %v, want %d", oldest, err, contracting(t)[0])
	}
}

// A program that a contracting migration has left behind does not run.
// RELIABILITY.md, Operation.
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

// Settings that a failing migration makes for its session are not there when it comes
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
