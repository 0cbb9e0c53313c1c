package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"guildhall/internal/base/fault"
)

// Querier reads rows. It has no Exec, and the pool behind Read is also read-only.
type Querier interface {
	GetContext(ctx context.Context, dest any, query string, args ...any) error
	SelectContext(ctx context.Context, dest any, query string, args ...any) error
}

// Get reads one row. If there is no row, the error is Missing.
func Get[T any](ctx context.Context, q Querier, query string, args ...any) (row T, err error) {
	err = q.GetContext(ctx, &row, query, args...)
	return row, err
}

// Select reads all rows.
func Select[T any](ctx context.Context, q Querier, query string, args ...any) (rows []T, err error) {
	err = q.SelectContext(ctx, &rows, query, args...)
	return rows, err
}

// Exec runs a statement and returns the number of changed rows.
func Exec(ctx context.Context, tx *Tx, query string, args ...any) (int, error) {
	res, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// Doer runs transactions. *DB implements it.
type Doer interface {
	Do(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error
}

// Tx is the transaction of one unit of work.
type Tx struct {
	*sqlx.Tx
	Distributed bool // DB.Distributed

	now time.Time
	ctx context.Context // the caller's context: when it or EndBy's deadline ends, the transaction ends before its next statement
}

// begins returns an error if no further statement may begin in the transaction.
func (tx *Tx) begins() error {
	if err := tx.ctx.Err(); err != nil {
		return err
	}
	return late(tx.ctx)
}

// GetContext implements Querier.
func (tx *Tx) GetContext(ctx context.Context, dest any, query string, args ...any) error {
	if err := tx.begins(); err != nil {
		return err
	}
	return getOne(ctx, tx.Tx, dest, query, args...)
}

// SelectContext implements Querier.
func (tx *Tx) SelectContext(ctx context.Context, dest any, query string, args ...any) error {
	if err := tx.begins(); err != nil {
		return err
	}
	return selectAll(ctx, tx.Tx, dest, query, args...)
}

// ExecContext runs a statement that returns no rows.
func (tx *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := tx.begins(); err != nil {
		return nil, err
	}
	return tx.Tx.ExecContext(ctx, query, args...)
}

// TakeTime sets the rest of the transaction's statement timeout, and its timeout between two
// statements, to limit; 0 means no timeout. It is for work whose size grows with the guild and not
// with the request.
func (tx *Tx) TakeTime(ctx context.Context, limit time.Duration) error {
	ms := limit.Milliseconds()
	_, err := tx.ExecContext(ctx, fmt.Sprintf(`SET LOCAL statement_timeout = %d; SET LOCAL idle_in_transaction_session_timeout = %d`, ms, ms))
	return fault.Wrap(err, "take time for a unit")
}

// WaitLess limits how long the rest of the transaction waits for a lock. A coordinator passes SET
// LOCAL on to its workers, but not a setting that a statement makes for itself, as statements do on
// a single server.
func (tx *Tx) WaitLess(ctx context.Context, limit time.Duration) error {
	set := fmt.Sprintf(`SET LOCAL lock_timeout = %d`, limit.Milliseconds())
	if tx.Distributed {
		set = `SET LOCAL citus.propagate_set_commands = 'local'; ` + set
	}
	_, err := tx.ExecContext(ctx, set)
	return fault.Wrap(err, "limit how long a unit waits for locks")
}

// Part runs fn as a part of the transaction. If fn fails, only the part is rolled back, and it is
// retried for the errors for which Do would retry the transaction. Part is for work whose input can
// be read only once. fn may touch nothing but the database. Part costs a savepoint, and a
// transaction with more than 64 savepoints that have written slows down other transactions.
func (tx *Tx) Part(ctx context.Context, fn func() error) (err error) {
	for range maxPartRuns {
		if _, err := tx.ExecContext(ctx, `SAVEPOINT part`); err != nil {
			return fault.Wrap(err, "begin a part of a unit")
		}
		if err = fn(); err == nil {
			_, err = tx.ExecContext(ctx, `RELEASE part`)
			return fault.Wrap(err, "end a part of a unit")
		}
		// The savepoint is also released, since nested parts use the same name.
		_, undo := tx.ExecContext(ctx, `ROLLBACK TO part; RELEASE part`)
		if !retryable(err) {
			return err
		}
		if undo != nil {
			return errors.Join(err, fault.Wrap(undo, "undo a part of a unit"))
		}
	}
	return err
}

// Now returns the transaction's time, Postgres' now(). It is queried once, at the first call.
func (tx *Tx) Now(ctx context.Context) (time.Time, error) {
	if tx.now.IsZero() {
		if err := tx.GetContext(ctx, &tx.now, `SELECT now()`); err != nil {
			return time.Time{}, fault.Wrap(err, "read the transaction's time")
		}
	}
	return tx.now, nil
}

type key int

const (
	writeKey key = iota
	readKey
	callerKey
	slotKey
)

// maxRuns is how often Do runs a transaction that deadlocks. maxPartRuns is how often Part runs its
// part, which is more: its caller cannot retry, and each failure has another cause.
const maxRuns, maxPartRuns = 3, 100

// Do runs fn in a transaction and commits if fn returns nil. After a deadlock or a serialization
// failure, and when fn returns Again, Do runs fn again, so fn may touch nothing but the database.
// Do returns an error when nested. If the connection breaks before Postgres has responded to the
// COMMIT, the error is Uncertain.
//
// In a request (As) Do waits for a connection slot in turn with other callers. When ctx ends, the
// transaction is rolled back before its next statement, never in the middle of one, which would
// cost the connection.
func (d *DB) Do(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	if ctx.Value(writeKey) != nil {
		return errors.New("db: a unit of work was opened inside another")
	}
	var err error
	for range maxRuns {
		if err = d.once(ctx, fn); !retryable(err) {
			return err
		}
	}
	return err
}

func (d *DB) once(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) (err error) {
	work, release, err := enter(ctx, d.writes)
	if err != nil {
		return fault.Wrap(err, "begin")
	}
	defer release()
	t, err := d.write.BeginTxx(work, nil)
	if err != nil {
		return fault.Wrap(err, "begin")
	}
	// This covers a panic too: no transaction outlives Do. After a commit it does nothing.
	defer func() { _ = t.Rollback() }()
	tx := &Tx{Tx: t, Distributed: d.distributed, ctx: ctx}
	if err := fn(context.WithValue(work, writeKey, tx), tx); err != nil {
		return err
	}
	if err := tx.begins(); err != nil {
		return fault.Wrap(err, "commit")
	}
	if err := t.Commit(); err != nil {
		if errors.Is(err, sql.ErrTxDone) && ctx.Err() != nil {
			return fault.Wrap(ctx.Err(), "commit") // database/sql has rolled the transaction back
		}
		return fault.Wrap(unlessRolledBack(err), "commit")
	}
	return nil
}

// enter acquires a connection slot. Statements run with the context that it returns.
func enter(ctx context.Context, slots *Slots) (work context.Context, release func(), err error) {
	request := accountOf(ctx)
	if request == nil {
		release, err = slots.Acquire(ctx, Caller{})
		return ctx, release, err
	}
	switch {
	case ctx.Value(slotKey) == slots:
		release = func() {}
	case request.early == slots:
		release, request.early, request.giveUp = request.giveUp, nil, nil
	default:
		if release, err = slots.Acquire(ctx, request.caller); err != nil {
			return nil, nil, err
		}
	}
	if err := late(ctx); err != nil {
		release()
		return nil, nil, err
	}
	return steady{ctx, request.by}, release, nil
}

// steady is a context that is never done, for statements that run to their end. The driver can
// cancel a statement only by closing its connection, and needs three goroutines to wait for that.
// Postgres itself ends a statement by statement_timeout. The deadline is the one of a statement
// that starts now, or the request's if that is earlier, so that a read from the socket always ends.
type steady struct {
	context.Context
	by time.Time
}

func (s steady) Deadline() (time.Time, bool) {
	at := time.Now().Add(statementTimeout)
	if by := s.by.Add(-grace); !s.by.IsZero() && by.Before(at) { // the socket adds the grace to the deadline
		at = by
	}
	return at, true
}

func (steady) Done() <-chan struct{} { return nil }
func (steady) Err() error            { return nil }

// reader reads through the read-only pool.
type reader struct{ db *DB }

// GetContext implements Querier.
func (r reader) GetContext(ctx context.Context, dest any, query string, args ...any) error {
	work, release, err := enter(ctx, r.db.reads)
	if err != nil {
		return err
	}
	defer release()
	return getOne(work, r.db.read, dest, query, args...)
}

// SelectContext implements Querier.
func (r reader) SelectContext(ctx context.Context, dest any, query string, args ...any) error {
	work, release, err := enter(ctx, r.db.reads)
	if err != nil {
		return err
	}
	defer release()
	return selectAll(work, r.db.read, dest, query, args...)
}

// Reading returns a context in which Read returns the read-only pool.
func (d *DB) Reading(ctx context.Context) context.Context {
	return context.WithValue(ctx, readKey, d.Reader())
}

// Queue acquires the connection slot of a request's first read before the request is
// served; Unqueue releases the slot if nothing was read. Where thousands of requests wait,
// each waits with the small stack that it has here, half of what it needs later.
func (d *DB) Queue(ctx context.Context) error {
	request := accountOf(ctx)
	if request == nil {
		return nil
	}
	release, err := d.reads.Acquire(ctx, request.caller)
	if err != nil {
		return err
	}
	request.early, request.giveUp = d.reads, release
	return nil
}

// Unqueue releases the connection slot that Queue acquired, if the request has begun no transaction
// with it.
func Unqueue(ctx context.Context) {
	if request := accountOf(ctx); request != nil && request.early != nil {
		request.giveUp()
		request.early, request.giveUp = nil, nil
	}
}

// Enter acquires a connection slot for writes of several callers. The slot counts for no
// caller: otherwise the work of all would use up one caller's share. Statements with the
// returned context run one after the other in that slot and to their end, six seconds at
// most.
func (d *DB) Enter(ctx context.Context) (within context.Context, leave func(), err error) {
	return enterTogether(ctx, d.writes)
}

// EnterReading is Enter for reads.
func (d *DB) EnterReading(ctx context.Context) (within context.Context, leave func(), err error) {
	return enterTogether(ctx, d.reads)
}

func enterTogether(ctx context.Context, slots *Slots) (within context.Context, leave func(), err error) {
	ctx = As(ctx, Caller{})
	leave, err = slots.Acquire(ctx, Caller{})
	if err != nil {
		return nil, nil, err
	}
	EndBy(ctx, time.Now().Add(batchTimeout))
	return context.WithValue(ctx, slotKey, slots), leave, nil
}

// batchTimeout is the timeout of a batch, that of one statement. When a batch starts, its callers
// have more than that left.
const batchTimeout = statementTimeout + grace

// Single returns a Querier for statements that are transactions of their own. Each is sent once,
// over a connection that is held for it, so database/sql cannot send it again. If the connection
// breaks meanwhile, the error is Uncertain.
func (d *DB) Single() Querier { return single{d} }

type single struct{ db *DB }

// GetContext implements Querier.
func (s single) GetContext(ctx context.Context, dest any, query string, args ...any) error {
	return s.db.single(ctx, func(ctx context.Context, q *sqlx.Conn) error { return getOne(ctx, q, dest, query, args...) })
}

// SelectContext implements Querier.
func (s single) SelectContext(ctx context.Context, dest any, query string, args ...any) error {
	return s.db.single(ctx, func(ctx context.Context, q *sqlx.Conn) error { return selectAll(ctx, q, dest, query, args...) })
}

func (d *DB) single(ctx context.Context, run func(context.Context, *sqlx.Conn) error) error {
	if ctx.Value(writeKey) != nil {
		return errors.New("db: a single statement was run inside a unit of work")
	}
	work, release, err := enter(ctx, d.writes)
	if err != nil {
		return err
	}
	defer release()
	c, err := d.alive(work)
	if err != nil {
		return err
	}
	defer c.Close()
	return unlessRolledBack(run(work, c))
}

// alive returns a connection that the server has not closed while it was idle. A transaction would
// find that out at BEGIN, where a retry does no harm; for a statement that is the whole transaction
// it would be too late.
func (d *DB) alive(ctx context.Context) (*sqlx.Conn, error) {
	for {
		c, err := d.write.Connx(ctx)
		if err != nil {
			return nil, err
		}
		err = c.Raw(func(over any) error {
			if c, ok := over.(*conn); ok && c.wire.ended() {
				return driver.ErrBadConn
			}
			return nil
		})
		if err == nil {
			return c, nil
		}
		c.Close()
		if !errors.Is(err, driver.ErrBadConn) {
			return nil, err
		}
	}
}

// Write returns the transaction of the current request or job. It panics outside one, so the first
// test of a wrong call finds it.
func Write(ctx context.Context) *Tx {
	tx := Unit(ctx)
	if tx == nil {
		panic("db: Write outside a unit of work")
	}
	return tx
}

// Unit returns the transaction of the current request or job, or nil outside one.
func Unit(ctx context.Context) *Tx {
	tx, _ := ctx.Value(writeKey).(*Tx)
	return tx
}

// Read returns the transaction of the current request or job, or the read-only pool for a request
// that only reads. It panics outside both.
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

// Snapshot runs fn in a read-only REPEATABLE READ transaction without a statement timeout, so that
// all its statements see one state of the database; for exports.
func (d *DB) Snapshot(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	release, err := d.writes.Acquire(ctx, Caller{})
	if err != nil {
		return fault.Wrap(err, "begin")
	}
	defer release()
	t, err := d.write.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return fault.Wrap(err, "begin")
	}
	defer func() { _ = t.Rollback() }()
	return fn(ctx, &Tx{Tx: t, Distributed: d.distributed, ctx: ctx})
}
