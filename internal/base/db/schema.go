package db

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"guildhall/internal/base/fault"
	"guildhall/migrations"
)

// SchemaVersion is the version that Migrate brings a database to: this
// program's newest migration.
func SchemaVersion() int64 { return known().newest }

// OldestSchema returns the oldest schema version on which this program's statements run: the newest
// ordinary migration that is not marked as one the program runs without. A release is rolled out
// while the release before it still runs, and may be rolled back on the newer schema.
func OldestSchema() int64 { return known().oldest }

// history is the program's list of migrations.
type history struct {
	files          fs.FS
	newest, oldest int64
	contracts      []int64          // versions of the contracting migrations, ascending
	sums           map[int64][]byte // SHA-256 of each migration's file
}

var known = sync.OnceValue(func() history {
	h, err := readHistory(migrations.Files)
	if err != nil {
		panic(err) // cannot fail: the files are part of the program
	}
	return h
})

func readHistory(files fs.FS) (history, error) {
	h := history{files: files, sums: make(map[int64][]byte)}
	for _, pattern := range []string{"*.sql", migrations.Contract + "/*.sql"} {
		names, err := fs.Glob(files, pattern)
		if err != nil {
			return h, err
		}
		for _, n := range names { // file names begin with four digits, so this is the order of the versions
			number, _, _ := strings.Cut(path.Base(n), "_")
			v, err := strconv.ParseInt(number, 10, 64)
			if err != nil {
				continue
			}
			text, err := fs.ReadFile(files, n)
			if err != nil {
				return h, err
			}
			sum := sha256.Sum256(text)
			h.newest, h.sums[v] = max(h.newest, v), sum[:]
			if path.Dir(n) == migrations.Contract {
				h.contracts = append(h.contracts, v)
				continue
			}
			if !bytes.Contains(text, []byte(migrations.NotNeeded)) {
				h.oldest = v
			}
		}
	}
	return h, nil
}

// nodeTimeout is how long a node or worker may be silent before it counts as gone. A node sends a
// heartbeat twice a second, and a worker polls at least once a second.
const nodeTimeout = time.Minute

// olderPrograms lists the running programs that do not know the given migration: nodes by their
// heartbeats, and workers and commands by the application_name of their connections, which contains
// the program's schema version. Behind a pooler a connection outlives the program and keeps the
// name, so a connection that has been idle for longer than silent does not count.
func olderPrograms(ctx context.Context, pool *sql.DB, migration int64, silent time.Duration) (Strings, error) {
	var found Strings
	err := pool.QueryRowContext(ctx, `
		SELECT array_agg(DISTINCT name ORDER BY name)
		FROM (
			SELECT 'node ' || id AS name
			FROM auth_nodes
			WHERE seen_at > now() - make_interval(secs => $2) AND coalesce(schema_version, 0) < $1
			UNION ALL
			SELECT application_name
			FROM pg_stat_activity
			WHERE datname = current_database()
			  AND application_name ~ '^guildhall(-[a-z-]+)?( [0-9]+)?$'
			  AND coalesce(substring(application_name FROM ' ([0-9]+)$')::bigint, 0) < $1
			  AND (state IS DISTINCT FROM 'idle' OR state_change > now() - make_interval(secs => $2))
		) AS programs`, migration, silent.Seconds()).Scan(&found)
	return found, fault.Wrap(err, "look for programs of an older release")
}

// Schema describes the state of a database's schema.
type Schema struct {
	Version int64 // the newest migration that has run
	// Invalid names indexes that an interrupted migration has left invalid. They slow every write
	// and serve no read.
	Invalid Strings
	// Waits is the first contracting migration that has not run, or 0; Older names the running
	// programs that do not know it.
	Waits int64
	Older Strings
	// Distributed says whether the tables of guilds are distributed over a Citus cluster.
	Distributed bool
}

// Unfinished says what an unfinished upgrade waits for, or returns "" if none is unfinished.
func (s Schema) Unfinished() string {
	switch {
	case s.Waits == 0:
		return ""
	case len(s.Older) == 0:
		return fmt.Sprintf("the upgrade is unfinished: contracting migrations from %d on waited for programs of an older release, which have stopped; run `guildhall migrate` again"+orWait, s.Waits)
	}
	return fmt.Sprintf("the upgrade is unfinished: contracting migrations from %d on wait for programs of an older release (%s); run `guildhall migrate` again when they have stopped"+orWait,
		s.Waits, strings.Join(s.Older, ", "))
}

// orWait says who finishes an upgrade without a command.
const orWait = "; a node that was started with --migrate does that by itself, an hour after its start"

// Newer reports whether a newer program has migrated the database.
func (s Schema) Newer() bool { return s.Version > SchemaVersion() }

// ErrProgramTooOld is returned when this program can no longer run on its database, because a
// contracting migration has removed something it needs.
var ErrProgramTooOld = errors.New("this program is too old for the database")

const readOldestProgram = `SELECT schema_version FROM oldest_program`

func (h history) judge(oldest int64) error {
	if have := h.newest; oldest > have {
		return fmt.Errorf("%w: a newer guildhall has taken away what it needs; run one that knows schema version %d, this one knows %d",
			ErrProgramTooOld, oldest, have)
	}
	return nil
}

// CheckProgram returns an error that wraps ErrProgramTooOld when this program can no longer run on
// its database.
func CheckProgram(ctx context.Context, tx *Tx) error {
	oldest, err := OldestProgram(ctx, tx)
	if err != nil {
		return err
	}
	return known().judge(oldest)
}

// OldestProgram returns the schema version that every running program must know.
func OldestProgram(ctx context.Context, q Querier) (int64, error) {
	oldest, err := Get[int64](ctx, q, readOldestProgram)
	return oldest, fault.Wrap(err, "read which programs may run")
}

// CheckSchema returns the schema state of the database at url. If this program cannot run on the
// database, it returns an error that names the command to run.
func CheckSchema(ctx context.Context, url string) (Schema, error) {
	return known().checkAt(ctx, url)
}

func (h history) checkAt(ctx context.Context, url string) (Schema, error) {
	pool, err := openPool(url, map[string]string{"application_name": "guildhall-check"}, 1, "", false)
	if err != nil {
		return Schema{}, err
	}
	defer pool.Close()
	s, err := h.check(ctx, pool)
	return s, withRights(ctx, pool, err)
}

func (h history) check(ctx context.Context, pool *sql.DB) (s Schema, err error) {
	if err := checkEncoding(ctx, pool); err != nil {
		return s, err
	}
	if s.Version, err = h.applied(ctx, pool, versionTable); err != nil {
		return s, err
	}
	if s.Version < h.oldest {
		return s, fmt.Errorf("the database schema is at version %d, this program needs %d: run `guildhall migrate`, or start with --migrate", s.Version, h.oldest)
	}
	contracted, err := h.applied(ctx, pool, contractVersionTable)
	if err != nil {
		return s, err
	}
	s.Version = max(s.Version, contracted)
	var oldest int64
	if err := pool.QueryRowContext(ctx, readOldestProgram).Scan(&oldest); err != nil {
		return s, fault.Wrap(err, "read which programs may run")
	}
	if err := h.judge(oldest); err != nil {
		return s, err
	}
	err = pool.QueryRowContext(ctx, `
		SELECT array_agg(c.relname ORDER BY c.relname)
		FROM pg_index AS i
		JOIN pg_class AS c ON c.oid = i.indexrelid
		WHERE NOT i.indisvalid AND c.relnamespace = current_schema()::regnamespace`).Scan(&s.Invalid)
	if err != nil {
		return s, fault.Wrap(err, "look for invalid indexes")
	}
	if s.Distributed, err = isDistributed(ctx, pool); err != nil {
		return s, fault.Wrap(err, "see whether the tables are distributed")
	}
	for _, next := range h.contracts {
		if next > contracted {
			s.Waits = next
			s.Older, err = olderPrograms(ctx, pool, next, nodeTimeout)
			break
		}
	}
	return s, err
}
