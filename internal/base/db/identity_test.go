package db_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// A database is refused, and nothing in it changes, when its migrations are not this
// program's: an unpublished program has other files under the same numbers, or no sums.
// RELIABILITY.md, Operation.
func TestADatabaseOfAnUnreleasedProgramIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		arrange string
		names   string
	}{
		"another sum":                {`UPDATE goose_db_version SET sha256 = '\x00' WHERE version_id = 2`, "migration 2"},
		"a version without a sum":    {`UPDATE goose_db_version SET sha256 = NULL WHERE version_id = 3`, "migration 3"},
		"a table without sums":       {`ALTER TABLE goose_db_version DROP COLUMN sha256`, "no sums"},
		"a newer one without a sum":  {`INSERT INTO goose_db_version (version_id, is_applied) VALUES (9000, true)`, "migration 9000"},
		"contracting ones, unsummed": {`CREATE TABLE goose_contract_version (version_id bigint, is_applied boolean)`, "no sums"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := dbtest.Empty(t, "")
			pool := pooled(t, url)
			execAll(t, pool, c.arrange, `DROP TABLE facts_turn`)
			_, checked := db.CheckSchema(t.Context(), url)
			for what, err := range map[string]error{
				"CheckSchema": checked, "CheckIdentity": db.CheckIdentity(t.Context(), url), "Migrate": db.Migrate(t.Context(), url),
			} {
				if !errors.Is(err, db.ErrUnreleased) || !strings.Contains(err.Error(), c.names) {
					t.Errorf("%s: %v", what, err)
				}
			}
			var back bool
			if err := pool.QueryRowContext(t.Context(), `SELECT to_regclass('facts_turn') IS NOT NULL`).Scan(&back); err != nil || back {
				t.Errorf("the database was changed, %v", err)
			}
		})
	}
}

// An empty database, a database on which a part of this program's migrations has run, and
// one that a newer release has migrated are this program's.
// RELIABILITY.md, Operation.
func TestADatabaseOfThisProgramIsTaken(t *testing.T) {
	t.Parallel()
	part := make(fstest.MapFS)
	for name, file := range withMigrations(t, nil) {
		if name < "0004" {
			part[name] = file
		}
	}
	for name, files := range map[string]fstest.MapFS{
		"empty": nil, "partly migrated": part, "of the next release": nextRelease(t, nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.WithoutCancel(t.Context())
			url := dbtest.Empty(t, "template0")
			if files != nil {
				if _, err := db.MigrateWith(ctx, url, pooled(t, url), files); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.CheckIdentity(ctx, url); err != nil {
				t.Error(err)
			}
			if err := db.Migrate(ctx, url); err != nil {
				t.Error(err)
			}
			if s, err := db.CheckSchema(ctx, url); err != nil && !errors.Is(err, db.ErrProgramTooOld) {
				t.Error(fmt.Sprint(s), err)
			}
		})
	}
}
