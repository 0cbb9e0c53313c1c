package db

import (
	"context"
	"database/sql"
	"io/fs"
)

// These are for the tests that need a database of dbtest.
var (
	OlderPrograms = olderPrograms
	MigrationPool = known().migrationPool
	UnlessTold    = unlessTold
)

// MigrateWith is Migrate, and CheckSchema after it, of a program with these
// migrations.
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

// Together is the statement that deletes the expired rows of all guilds.
func (o Expiry) Together(limit int) string { return o.together(limit) }

// OpenAsItIs opens a pool whose sessions are as the URL says, with no setting of ours.
func OpenAsItIs(url string) (*sql.DB, error) { return openPool(url, nil, 1, "", false) }
