package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"
)

// Querier reads. It has no Exec; the pool behind Read is read-only besides.
type Querier interface {
	GetContext(ctx context.Context, dest any, query string, args ...any) error
	SelectContext(ctx context.Context, dest any, query string, args ...any) error
}

// Doer opens units of work.
type Doer interface {
	Do(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error
}

// Tx is the transaction of one unit of work.
type Tx struct {
	*sqlx.Tx
	now time.Time
}

// Now is the transaction's own time: Postgres' now(), read once when first
// asked.
func (tx *Tx) Now(ctx context.Context) (time.Time, error) {
	if tx.now.IsZero() {
		if err := tx.GetContext(ctx, &tx.now, `SELECT now()`); err != nil {
			return time.Time{}, fmt.Errorf("read the transaction's time: %w", err)
		}
	}
	return tx.now, nil
}

type key int

const (
	writeKey key = iota
	readKey
)

// attempts is how often Do runs a unit that deadlocks.
const attempts = 3

// Do runs fn in a transaction and commits if it returns nil. After a deadlock
// or a serialization failure fn runs again, so it may touch nothing but the
// database. Do refuses to nest.
func (d *DB) Do(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	if ctx.Value(writeKey) != nil {
		return errors.New("db: a unit of work was opened inside another")
	}
	var err error
	for range attempts {
		if err = d.once(ctx, fn); !retryable(err) {
			return err
		}
	}
	return err
}

func (d *DB) once(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) (err error) {
	t, err := d.write.BeginTxx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	// Covers a panic too: the transaction never outlives the unit. After a
	// commit it does nothing.
	defer func() { _ = t.Rollback() }()
	tx := &Tx{Tx: t}
	if err := fn(context.WithValue(ctx, writeKey, tx), tx); err != nil {
		return err
	}
	if err := t.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// Reading returns a context in which Read finds the read-only pool.
func (d *DB) Reading(ctx context.Context) context.Context {
	return context.WithValue(ctx, readKey, Querier(d.read))
}

// Write returns the transaction of the request or job being served. Outside
// one it panics: the first test to reach the line will say so.
func Write(ctx context.Context) *Tx {
	tx, ok := ctx.Value(writeKey).(*Tx)
	if !ok {
		panic("db: Write outside a unit of work")
	}
	return tx
}

// Read returns that transaction, or the read-only pool when nothing changes.
// Outside both it panics.
func Read(ctx context.Context) Querier {
	if tx, ok := ctx.Value(writeKey).(*Tx); ok {
		return tx
	}
	q, ok := ctx.Value(readKey).(Querier)
	if !ok {
		panic("db: Read outside a request or a unit of work")
	}
	return q
}

// Snapshot runs fn in a read-only transaction that sees one state of the
// database throughout, without a statement timeout; for exports.
func (d *DB) Snapshot(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	t, err := d.write.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = t.Rollback() }()
	return fn(ctx, &Tx{Tx: t})
}
