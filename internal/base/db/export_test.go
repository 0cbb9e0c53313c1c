package db

import (
	"context"
	"database/sql"
	"io/fs"
	"time"
)

// Exported for tests that use dbtest.
var (
	OlderPrograms    = olderPrograms
	MigrationPool    = known().migrationPool
	UnlessRolledBack = unlessRolledBack
)

// MigrateWith runs Migrate and CheckSchema as a program with these migrations would.
func MigrateWith(ctx context.Context, url string, pool *sql.DB, files fs.FS) (Schema, error) {
	h, err := readHistory(files)
	if err != nil {
		return Schema{}, err
	}
	if err := h.migrate(ctx, url, true); err != nil {
		return Schema{}, err
	}
	return h.check(ctx, pool)
}

// ExpandWith runs Expand and then CheckSchema, like a program with the migrations in files.
func ExpandWith(ctx context.Context, url string, pool *sql.DB, files fs.FS) (Schema, error) {
	h, err := readHistory(files)
	if err != nil {
		return Schema{}, err
	}
	if err := h.migrate(ctx, url, false); err != nil {
		return Schema{}, err
	}
	return h.check(ctx, pool)
}

// FinishWith is Finish of a program with these migrations.
func FinishWith(ctx context.Context, url string, files fs.FS, tried func(Schema, error)) error {
	h, err := readHistory(files)
	if err == nil {
		h.finish(ctx, url, 10*time.Millisecond, tried)
	}
	return err
}

// Together returns the statement that deletes the expired rows of all guilds.
func (o Expiry) Together(limit int) string { return o.together(limit) }

// OpenAsItIs opens a pool whose sessions have only the settings of the URL.
func OpenAsItIs(url string) (*sql.DB, error) { return openPool(url, nil, 1, "", false) }
