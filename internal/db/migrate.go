package db

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"github.com/riverqueue/river/rivermigrate"

	"guildhall/internal/fault"
	"guildhall/migrations"
)

// SchemaVersion is the version that Migrate brings a database to: this
// program's newest migration.
func SchemaVersion() int64 { return known().newest }

// OldestSchema is the oldest version this program's statements run on: its
// newest migration that does not say they can do without it. A program is rolled
// out while the one before it still runs, and rolled back over the newer schema.
func OldestSchema() int64 { return known().oldest }

// history is what the program knows of its migrations, by their numbers.
type history struct {
	newest, oldest int64
	afterRollout   []int64 // ascending
}

var known = sync.OnceValue(func() (h history) {
	names, err := fs.Glob(migrations.Files, "*.sql")
	if err != nil {
		panic(err)
	}
	for _, n := range names { // in the order of the numbers, which are four digits each
		number, _, _ := strings.Cut(path.Base(n), "_")
		v, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			continue
		}
		text, err := fs.ReadFile(migrations.Files, n)
		if err != nil {
			panic(err) // it is part of the program
		}
		h.newest = v
		if !bytes.Contains(text, []byte(migrations.NotNeeded)) {
			h.oldest = v
		}
		if bytes.Contains(text, []byte(migrations.AfterRollout)) {
			h.afterRollout = append(h.afterRollout, v)
		}
	}
	return h
})

// A migration that meets a lock steps aside and comes again, so that live
// traffic never queues behind it for longer than lockTimeout.
const (
	lockTimeout  = 2 * time.Second
	lockTries    = 10
	lockPause    = 500 * time.Millisecond // before the second try; doubled from try to try
	lockPauseMax = 10 * time.Second
)

// Migrate brings the database at url up to this program's schema, and the job
// engine's own tables with it. Several at once are safe: one works, the others
// wait. Each statement gives up on a lock after two seconds rather than make
// live traffic queue behind it; Migrate then goes on where it stopped after a
// pause, ten times in all.
//
// It stops, without an error, before a migration that waits until nodes of the
// release before have stopped, while there are any: CheckSchema tells of it.
func Migrate(ctx context.Context, url string) error {
	pool, err := migrationPool(url)
	if err != nil {
		return err
	}
	defer pool.Close()
	unlock, err := lockMigrations(ctx, pool)
	if err != nil {
		return err
	}
	defer unlock()
	p, err := provider(pool)
	if err != nil {
		return err
	}
	err = againWhileLocked(ctx, lockTries, lockPause, func() error {
		return up(ctx, pool, p)
	})
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	jobs, err := rivermigrate.New(riverdatabasesql.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return fmt.Errorf("migrate the job tables: %w", err)
	}
	err = againWhileLocked(ctx, lockTries, lockPause, func() error {
		_, err := jobs.Migrate(ctx, rivermigrate.DirectionUp, nil)
		return err
	})
	if err != nil {
		return fmt.Errorf("migrate the job tables: %w", err)
	}
	// Where tables are distributed, those that a migration has made follow: nobody
	// uses them yet.
	if distributed, err := isDistributed(ctx, pool); err != nil || !distributed {
		return err
	}
	_, err = distribute(ctx, pool)
	return err
}

// migrationPool gives each try a session of its own: what a migration sets for a
// statement that waits longer, it does not take back when it fails.
func migrationPool(url string) (*sql.DB, error) {
	pool, err := openPool(url, map[string]string{
		"application_name": "guildhall-migrate", "lock_timeout": strconv.FormatInt(lockTimeout.Milliseconds(), 10), "timezone": "UTC",
	}, 3, "", false)
	if err == nil {
		pool.SetMaxIdleConns(-1)
	}
	return pool, err
}

// up runs the migrations that may run now.
func up(ctx context.Context, pool *sql.DB, p *goose.Provider) error {
	for _, next := range known().afterRollout {
		if _, err := p.UpTo(ctx, next-1); err != nil {
			return err
		}
		have, err := p.GetDBVersion(ctx)
		if err != nil {
			return err
		}
		if have >= next {
			continue
		}
		older, err := olderPrograms(ctx, pool, next, nodeTimeout)
		if err != nil || len(older) > 0 {
			return err
		}
	}
	_, err := p.Up(ctx)
	return err
}

// nodeTimeout is longer than anybody who lives is silent: nodes send a heartbeat twice a second,
// workers look for work every second or more often.
const nodeTimeout = time.Minute

// olderPrograms names who works on the database with a program that does not
// know the migration: nodes by their heartbeats, and whatever else there is
// (workers, commands) by the names of connections, which say the program's
// version from this release on. Behind a pooler a connection outlives whoever
// used it and keeps the name, so one that has been idle for as long as silence
// says nothing.
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

// againWhileLocked repeats do while it meets a lock that somebody holds, or a deadlock:
// live statements take the tables of a migration in orders of their own.
func againWhileLocked(ctx context.Context, tries int, pause time.Duration, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		if !LockTimeout(err) && !retryable(err) {
			return err
		}
		if try == tries {
			return fmt.Errorf("%d times in a row a lock was not to be had within %v, or there was a deadlock: "+
				"a long transaction holds it (see pg_stat_activity); what was done is kept, run it again: %w", tries, lockTimeout, err)
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(pause):
		}
		pause = min(2*pause, lockPauseMax)
	}
}

// Schema is what a database was found to be on.
type Schema struct {
	Version int64
	// Invalid names indexes that a migration, cut off while it made them, has
	// left unusable. They cost every write and serve no read.
	Invalid Strings
	// Waits is the first migration that waits until programs of an older release
	// have stopped, 0 when there is none; Older names those that run.
	Waits int64
	Older Strings
	// Distributed is whether the tables of guilds are spread over the nodes of a
	// Citus cluster.
	Distributed bool
}

// Unfinished says what an upgrade that is not at its end waits for; empty when
// there is none.
func (s Schema) Unfinished() string {
	switch {
	case s.Waits == 0:
		return ""
	case len(s.Older) == 0:
		return fmt.Sprintf("the upgrade is unfinished: migrations from %d on waited for programs of an older release, which have stopped; run `guildhall migrate` again", s.Waits)
	}
	return fmt.Sprintf("the upgrade is unfinished: migrations from %d on wait for programs of an older release (%s); run `guildhall migrate` again when they have stopped",
		s.Waits, strings.Join(s.Older, ", "))
}

// Newer reports whether a newer program has migrated the database.
func (s Schema) Newer() bool { return s.Version > SchemaVersion() }

// CheckSchema returns what the database at url is on, or an error that names the
// mending command when this program's statements do not run there.
func CheckSchema(ctx context.Context, url string) (Schema, error) {
	pool, err := openPool(url, map[string]string{"application_name": "guildhall-check"}, 1, "", false)
	if err != nil {
		return Schema{}, err
	}
	defer pool.Close()
	var have sql.NullInt64
	err = pool.QueryRowContext(ctx, `SELECT max(version_id) FROM goose_db_version WHERE is_applied`).Scan(&have)
	s := Schema{Version: have.Int64}
	need := OldestSchema()
	switch {
	case err != nil && UndefinedTable(err), err == nil && have.Int64 < need:
		return s, fmt.Errorf("the database schema is at version %d, this program needs %d: run `guildhall migrate`, or start with --migrate", have.Int64, need)
	case err != nil:
		return s, fmt.Errorf("read the schema version: %w", err)
	}
	err = pool.QueryRowContext(ctx, `
		SELECT array_agg(c.relname ORDER BY c.relname)
		FROM pg_index AS i
		JOIN pg_class AS c ON c.oid = i.indexrelid
		WHERE NOT i.indisvalid AND c.relnamespace = current_schema()::regnamespace`).Scan(&s.Invalid)
	if err != nil {
		return s, fmt.Errorf("look for invalid indexes: %w", err)
	}
	if s.Distributed, err = isDistributed(ctx, pool); err != nil {
		return s, fmt.Errorf("see whether the tables are distributed: %w", err)
	}
	for _, next := range known().afterRollout {
		if next > s.Version {
			s.Waits = next
			s.Older, err = olderPrograms(ctx, pool, next, nodeTimeout)
			break
		}
	}
	return s, err
}

// lockMigrations waits, for an hour at most, until no other process migrates the
// database. It asks once a second and does not queue: a session that queues for
// a lock holds a snapshot, which CREATE INDEX CONCURRENTLY would wait for. One
// lock is over goose's migrations and the job engine's, which have none.
func lockMigrations(ctx context.Context, pool *sql.DB) (unlock func(), err error) {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 3600))
	if err != nil {
		return nil, err
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	if err := locker.SessionLock(ctx, conn); err != nil {
		return nil, errors.Join(fmt.Errorf("wait for another process that migrates: %w", err), conn.Close())
	}
	return func() {
		// A lock that is not given back here ends with its connection.
		_ = errors.Join(locker.SessionUnlock(context.WithoutCancel(ctx), conn), conn.Close())
	}, nil
}

func provider(pool *sql.DB) (*goose.Provider, error) {
	p, err := goose.NewProvider(goose.DialectPostgres, pool, migrations.Files, goose.WithLogger(goose.NopLogger()))
	if errors.Is(err, goose.ErrNoMigrations) {
		return nil, errors.New("migrate: the program carries no migrations")
	}
	return p, err
}
