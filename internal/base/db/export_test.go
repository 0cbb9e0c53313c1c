package db

import (
	"context"
	"database/sql"
	"io/fs"
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
	if err := h.migrate(ctx, url); err != nil {
		return Schema{}, err
	}
	return h.check(ctx, pool)
}

// Together returns the statement that deletes the expired rows of all guilds.
func (o Expiry) Together(limit int) string { return o.together(limit) }

// OpenAsItIs opens a pool whose sessions have only the settings of the URL.
func OpenAsItIs(url string) (*sql.DB, error) { return openPool(url, nil, 1, "", false) }
