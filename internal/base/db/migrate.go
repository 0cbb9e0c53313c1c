package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"guildhall/internal/base/fault"
	"guildhall/migrations"
)

// A migration that meets a lock steps aside and comes again, so that live
// traffic never queues behind it for longer than lockTimeout.
const (
	lockTimeout  = 2 * time.Second
	lockTries    = 10
	lockPause    = 500 * time.Millisecond // before the second try; doubled from try to try
	lockPauseMax = 10 * time.Second
)

// Migrate brings the database at url up to this program's schema. Several at once are safe: one works, the others
// wait. Each statement gives up on a lock after two seconds rather than make
// live traffic queue behind it; Migrate then goes on where it stopped after a
// pause, ten times in all.
//
// It stops, without an error, before a contracting migration while programs are at
// work that do not know it: CheckSchema tells of it.
func Migrate(ctx context.Context, url string) error { return known().migrate(ctx, url) }

func (h history) migrate(ctx context.Context, url string) error {
	pool, err := h.migrationPool(url)
	if err != nil {
		return err
	}
	defer pool.Close()
	unlock, err := lockMigrations(ctx, pool)
	if err != nil {
		return err
	}
	defer unlock()
	err = againWhileLocked(ctx, lockTries, lockPause, func() error {
		return h.up(ctx, pool)
	})
	if err != nil {
		return fault.Wrap(err, "migrate")
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
func (h history) migrationPool(url string) (*sql.DB, error) {
	pool, err := openPool(url, map[string]string{
		"application_name": fmt.Sprint("guildhall-migrate ", h.newest), "lock_timeout": strconv.FormatInt(lockTimeout.Milliseconds(), 10), "timezone": "UTC",
	}, 3, "", false)
	if err == nil {
		pool.SetMaxIdleConns(-1)
	}
	return pool, err
}

// up runs the migrations that may run now: all ordinary migrations, then the contracting
// migrations in their order, up to the first that a running older program does not know.
func (h history) up(ctx context.Context, pool *sql.DB) error {
	if err := h.checkIdentity(ctx, pool); err != nil {
		return err
	}
	ordinary, err := h.provider(pool, h.files, versionTable)
	if err != nil {
		return err
	}
	if _, err := ordinary.Up(ctx); err != nil || len(h.contracts) == 0 {
		return err
	}
	files, err := fs.Sub(h.files, migrations.Contract)
	if err != nil {
		return err
	}
	contracting, err := h.provider(pool, files, contractVersionTable)
	if err != nil {
		return err
	}
	for _, next := range h.contracts {
		have, err := contracting.GetDBVersion(ctx)
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
		// First, since a migration that is cut off has taken a part away.
		if _, err := pool.ExecContext(ctx, `
			UPDATE oldest_program SET schema_version = $1 WHERE schema_version < $1`, next); err != nil {
			return fault.Wrap(err, "note the oldest program")
		}
		if _, err := contracting.UpTo(ctx, next); err != nil {
			return err
		}
	}
	return nil
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
		return nil, fault.Wrap(err, "migrate")
	}
	if err := locker.SessionLock(ctx, conn); err != nil {
		return nil, errors.Join(fault.Wrap(err, "wait for another process that migrates"), conn.Close())
	}
	return func() {
		// A lock that is not given back here ends with its connection.
		_ = errors.Join(locker.SessionUnlock(context.WithoutCancel(ctx), conn), conn.Close())
	}, nil
}

func (h history) provider(pool *sql.DB, files fs.FS, table string) (*goose.Provider, error) {
	store, err := newVersions(table, h.sums)
	if err != nil {
		return nil, err
	}
	p, err := goose.NewProvider(goose.DialectCustom, pool, files, goose.WithStore(store), goose.WithLogger(goose.NopLogger()))
	if errors.Is(err, goose.ErrNoMigrations) {
		return nil, errors.New("migrate: the program carries no migrations")
	}
	return p, err
}
