package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"github.com/riverqueue/river/rivermigrate"

	"guildhall/migrations"
)

// SchemaVersion is the version this program works on: its newest migration.
func SchemaVersion() int64 {
	names, err := fs.Glob(migrations.Files, "*.sql")
	if err != nil {
		panic(err)
	}
	var newest int64
	for _, n := range names {
		number, _, _ := strings.Cut(path.Base(n), "_")
		if v, err := strconv.ParseInt(number, 10, 64); err == nil && v > newest {
			newest = v
		}
	}
	return newest
}

// Migrate brings the database at url up to this program's schema, and the job
// engine's own tables with it. Several at once are safe: one works, the others
// wait. Each statement gives up on a lock after two seconds rather than make
// live traffic queue behind it.
func Migrate(ctx context.Context, url string) error {
	pool, err := openPool(url, map[string]string{
		"application_name": "guildhall-migrate", "lock_timeout": "2000", "timezone": "UTC",
	}, 3)
	if err != nil {
		return err
	}
	defer pool.Close()
	p, err := provider(pool)
	if err != nil {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	jobs, err := rivermigrate.New(riverdatabasesql.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return fmt.Errorf("migrate the job tables: %w", err)
	}
	if _, err := jobs.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate the job tables: %w", err)
	}
	return nil
}

// CheckSchema returns an error that names the mending command when the
// database at url is on another schema than this program's.
func CheckSchema(ctx context.Context, url string) error {
	pool, err := openPool(url, map[string]string{"application_name": "guildhall-check"}, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	var have sql.NullInt64
	err = pool.QueryRowContext(ctx, `SELECT max(version_id) FROM goose_db_version WHERE is_applied`).Scan(&have)
	want := SchemaVersion()
	switch {
	case err != nil && undefinedTable(err), err == nil && have.Int64 < want:
		return fmt.Errorf("the database schema is at version %d, this program needs %d: run `guildhall migrate`, or start with --migrate", have.Int64, want)
	case err != nil:
		return fmt.Errorf("read the schema version: %w", err)
	case have.Int64 > want:
		return fmt.Errorf("the database schema is at version %d, newer than the %d of this program: install the newer guildhall", have.Int64, want)
	}
	return nil
}

func provider(pool *sql.DB) (*goose.Provider, error) {
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, pool, migrations.Files,
		goose.WithSessionLocker(locker), goose.WithLogger(goose.NopLogger()))
	if errors.Is(err, goose.ErrNoMigrations) {
		return nil, errors.New("migrate: the program carries no migrations")
	}
	return p, err
}
