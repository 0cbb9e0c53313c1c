package db

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/pressly/goose/v3/database"

	"guildhall/internal/base/fault"
)

// The version tables: of the ordinary migrations, and of the contracting ones.
const (
	versionTable         = "goose_db_version"
	contractVersionTable = "goose_contract_version"
)

// ErrUnreleased is returned for a database whose migrations are not those of this
// program, nor of a newer release.
var ErrUnreleased = errors.New("the database was made by an unreleased program: export there, import here")

// versions is goose's store of applied versions, with the SHA-256 of each version's
// file beside the version. A migration that runs in a transaction stores both in it.
type versions struct {
	database.Store
	sums map[int64][]byte
}

func newVersions(table string, sums map[int64][]byte) (versions, error) {
	s, err := database.NewStore(database.DialectPostgres, table)
	return versions{s, sums}, err
}

// CreateVersionTable creates goose's table with a column for the sums.
func (v versions) CreateVersionTable(ctx context.Context, q database.DBTxConn) error {
	if err := v.Store.CreateVersionTable(ctx, q); err != nil {
		return err
	}
	_, err := q.ExecContext(ctx, `ALTER TABLE `+v.Tablename()+` ADD COLUMN sha256 bytea`)
	return fault.Wrap(err, "create the version table")
}

// Insert stores a version with the sum of its file. Version 0, which goose stores in a
// new table, has no file.
func (v versions) Insert(ctx context.Context, q database.DBTxConn, r database.InsertRequest) error {
	_, err := q.ExecContext(ctx, `INSERT INTO `+v.Tablename()+` (version_id, is_applied, sha256) VALUES ($1, true, $2)`,
		r.Version, v.sums[r.Version])
	return fault.Wrap(err, "store the version")
}

// TableExists reports whether the version table exists, so that goose need not find out
// by a statement that fails.
func (v versions) TableExists(ctx context.Context, q database.DBTxConn) (exists bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT to_regclass($1) IS NOT NULL`, v.Tablename()).Scan(&exists)
	return exists, err
}

// applied returns the newest applied version of a version table, 0 where the table does
// not exist. It returns ErrUnreleased when an applied version has no sum, or another sum
// than this program's file of that version. A version above this program's newest was
// applied by a newer release.
func (h history) applied(ctx context.Context, q rowQuerier, table string) (newest int64, err error) {
	var exists, summed bool
	err = q.QueryRowContext(ctx, `
		SELECT to_regclass($1) IS NOT NULL,
		       EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = 'sha256' AND NOT attisdropped)`,
		table).Scan(&exists, &summed)
	switch {
	case err != nil:
		return 0, fault.Wrap(err, "read the schema version")
	case !exists:
		return 0, nil
	case !summed:
		return 0, fmt.Errorf("%w (its migrations have no sums)", ErrUnreleased)
	}
	var numbers, sums Strings
	for number, sum := range h.sums {
		numbers, sums = append(numbers, strconv.FormatInt(number, 10)), append(sums, hex.EncodeToString(sum))
	}
	var other int64
	err = q.QueryRowContext(ctx, `
		SELECT max(version_id), coalesce(min(version_id) FILTER (
		           WHERE version_id > 0 AND (sha256 IS NULL OR version_id <= $3 AND encode(sha256, 'hex') IS DISTINCT FROM known.sum)), 0)
		FROM `+table+`
		LEFT JOIN unnest($1::text[], $2::text[]) AS known (number, sum) ON known.number = version_id::text
		WHERE is_applied`, numbers, sums, h.newest).Scan(&newest, &other)
	if err == nil && other > 0 {
		err = fmt.Errorf("%w (its migration %d is not this program's)", ErrUnreleased, other)
	}
	return newest, fault.Wrap(err, "read the schema version")
}

// checkIdentity returns ErrEncoding or ErrUnreleased for a database that Migrate must not
// touch.
func (h history) checkIdentity(ctx context.Context, q rowQuerier) error {
	if err := checkEncoding(ctx, q); err != nil {
		return err
	}
	for _, table := range []string{versionTable, contractVersionTable} {
		if _, err := h.applied(ctx, q, table); err != nil {
			return err
		}
	}
	return nil
}

// CheckIdentity returns ErrUnreleased when the database at url was migrated by an
// unreleased program, and ErrEncoding when it is not UTF8. An empty database passes.
func CheckIdentity(ctx context.Context, url string) error {
	pool, err := openPool(url, map[string]string{"application_name": "guildhall-check"}, 1, "", false)
	if err != nil {
		return err
	}
	defer pool.Close()
	return withRights(ctx, pool, known().checkIdentity(ctx, pool))
}
