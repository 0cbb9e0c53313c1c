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

// A migration that meets a lock gives up after lockTimeout and is retried, so that live traffic
// never queues behind it for longer.
const (
	lockTimeout  = 2 * time.Second
	lockTries    = 10
	lockPause    = 500 * time.Millisecond // pause before the first retry; doubled after each retry
	lockPauseMax = 10 * time.Second
)

// Migrate brings the database at url to this program's schema. Concurrent calls are safe: one
// migrates, the others wait. Each statement gives up waiting for a lock after two seconds, so that
// live traffic does not queue behind it; Migrate then pauses and continues where it stopped, ten
// times in all.
//
// Before a contracting migration it stops without an error while programs run that do not know the
// migration; CheckSchema reports that.
func Migrate(ctx context.Context, url string) error { return known().migrate(ctx, url, true) }

// Expand is Migrate for a node that starts: on a database that is in use it leaves out the
// contracting migrations, so that the release before can still be started instead. Finish
// runs them.
func Expand(ctx context.Context, url string) error { return known().migrate(ctx, url, false) }

// Finish calls Migrate at each interval until no contracting migration waits any more, or
// until ctx ends. After each try it calls tried with the schema that it found, or with the
// error.
func Finish(ctx context.Context, url string, interval time.Duration, tried func(Schema, error)) {
	known().finish(ctx, url, interval, tried)
}

func (h history) finish(ctx context.Context, url string, interval time.Duration, tried func(Schema, error)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var s Schema
		err := h.migrate(ctx, url, true)
		if err == nil {
			s, err = h.checkAt(ctx, url)
		}
		if ctx.Err() != nil {
			return
		}
		tried(s, err)
		if err == nil && s.Waits == 0 {
			return
		}
	}
}

func (h history) migrate(ctx context.Context, url string, contract bool) error {
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
		return h.up(ctx, pool, contract)
	})
	if err != nil {
		return fault.Wrap(withRights(ctx, pool, err), "migrate")
	}
	// With distributed tables, the tables that a migration has created are distributed here, before
	// anything uses them.
	if distributed, err := isDistributed(ctx, pool); err != nil || !distributed {
		return err
	}
	_, err = distribute(ctx, pool)
	return err
}

// migrationPool opens a pool that gives each attempt a new session: a migration that fails does not
// reset the settings that it has made for its session.
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
// Where contract is false, contracting migrations run on a new database only.
func (h history) up(ctx context.Context, pool *sql.DB, contract bool) error {
	if err := h.checkIdentity(ctx, pool); err != nil {
		return err
	}
	ordinary, err := h.provider(pool, h.files, versionTable)
	if err != nil {
		return err
	}
	before, err := ordinary.GetDBVersion(ctx)
	if err != nil {
		return err
	}
	if _, err := ordinary.Up(ctx); err != nil || len(h.contracts) == 0 || before > 0 && !contract {
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
		// This comes first, since even a migration that is interrupted may have removed something
		// that older programs need.
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

// againWhileLocked retries do while it fails by a lock timeout or a deadlock: live statements lock
// the tables of a migration in other orders.
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

// lockMigrations waits, at most an hour, until no other process migrates the database. It polls the
// lock once a second and does not queue: a session that queues for a lock holds a snapshot, for
// which CREATE INDEX CONCURRENTLY would wait.
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
		// If the unlock fails, the lock ends with its connection.
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
