package db

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/lib/pq"

	"guildhall/internal/base/tracing"
)

// maxPrepared bounds how many statements a connection keeps prepared. The program's own statements
// are literals and far fewer; the bound is for statements that libraries compose.
const maxPrepared = 512

// connector makes connections that prepare every statement with arguments once and keep it: for an
// unprepared statement with arguments lib/pq makes a second round trip each time.
//
// With binary_parameters=yes in the URL no statement is prepared, and the driver sends each
// statement whole in one round trip, for poolers that do not support prepared statements. Postgres
// then plans each execution anew.
type connector struct {
	inner    driver.Connector
	prepares bool
	database string
	planning string // settings of a session that keeps prepared statements
	together bool   // the guilds' tables are on one server: statements are prepared as written
}

// byIndex makes the planner use an index wherever there is one. A connection keeps a generic plan
// for half an hour. A plan made while a table had two pages would be a sequential scan and would
// read the whole table when it has thousands of pages: keyed writes took three times as long in the
// first minute after a quiet night. A list whose plan serves every guild must not read and sort all
// rows of a large guild, as a bitmap scan does. The checks of foreign keys keep their plans in the
// same way. jit is off because a query that has to read a whole table now looks so expensive to the
// planner that Postgres would compile it.
const byIndex = `SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off`

// inspect is set in tests only.
var inspect func(database, statement string) error

// InspectStatements is for tests: f then sees every statement, as it is written, before it is
// prepared or run, with the name of the database. If f returns an error, the statement fails with
// that error. It must be called before the first connection is made.
func InspectStatements(f func(database, statement string) error) { inspect = f }

func newConnector(dsn, planning string, together bool) (driver.Connector, error) {
	inner, err := pq.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	inner.Dialer(&dialer{})
	cfg, err := pq.NewConfig(dsn)
	if err != nil {
		return nil, err
	}
	return connector{inner, !cfg.BinaryParameters, cfg.Database, planning, together}, nil
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	wire := &socket{}
	if by, ok := ctx.Deadline(); ok {
		wire.connectBy = by
	}
	inner, err := c.inner.Connect(context.WithValue(ctx, socketKey{}, wire))
	if err != nil {
		return nil, unwanted(err)
	}
	pc, ok := inner.(pqConn)
	if !ok {
		inner.Close()
		return nil, errors.New("the database driver's connection lacks an interface that db relies on")
	}
	if c.prepares {
		// These are SET statements and not parameters of the connection, since poolers refuse
		// parameters that they do not know.
		if _, err := pc.ExecContext(ctx, setReliedOn+"; "+c.planning, nil); err != nil {
			inner.Close()
			return nil, err
		}
	}
	if err := wire.connected(); err != nil {
		inner.Close()
		return nil, err
	}
	return &conn{pqConn: pc, wire: wire, database: c.database, prepares: c.prepares, together: c.together, prepared: make(map[string]driver.Stmt)}, nil
}

// errUnwanted says that servers respond but none of them has the role that target_session_attrs
// asks for, as between the failure of a primary and the promotion of its standby.
var errUnwanted = errors.New("no server takes writes now")

// unwanted wraps err in errUnwanted if the driver reports this case, for which it has only a text.
func unwanted(err error) error {
	for _, words := range []string{"session is read-only", "server is in hot standby mode"} {
		if strings.Contains(err.Error(), words) {
			return fmt.Errorf("%w: %w", errUnwanted, err)
		}
	}
	return err
}

func (c connector) Driver() driver.Driver { return c.inner.Driver() }

// pqConn is the set of interfaces of a lib/pq connection that database/sql uses.
type pqConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	driver.NamedValueChecker
}

type conn struct {
	pqConn
	wire     *socket
	database string
	prepares bool // prepare statements with arguments
	together bool // the tables of guilds are on one server
	prepared map[string]driver.Stmt
	readOnly bool // the server has become a standby
}

// IsValid reports whether the pool may reuse the connection. A connection to a server that has
// become read-only is closed, so that the next one can find the new primary.
func (c *conn) IsValid() bool { return !c.readOnly && c.pqConn.IsValid() }

// ResetSession is called by database/sql with the context of the caller that takes the connection
// from the pool.
func (c *conn) ResetSession(ctx context.Context) error {
	c.wire.workFor(ctx)
	return c.pqConn.ResetSession(ctx)
}

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.wire.workFor(ctx)
	span := beginSpan(ctx, "BEGIN")
	tx, err := c.pqConn.BeginTx(ctx, opts)
	endSpan(span, err)
	if err == nil && tracing.Within(ctx) {
		tx = tracedTx{tx, ctx}
	}
	return tx, c.noteReadOnly(err, true)
}

// noteReadOnly records whether err says that the server is read-only. For BEGIN that error has a
// code of its own, because the driver always adds READ WRITE.
func (c *conn) noteReadOnly(err error, begin bool) error {
	if e, ok := errors.AsType[*pq.Error](err); ok && (e.Code == "25006" || begin && e.Code == "0A000") {
		c.readOnly = true
		e.Code = "25006"
	}
	return err
}

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.wire.workFor(ctx)
	if err := c.inspected(query); err != nil {
		return nil, err
	}
	return c.pqConn.PrepareContext(ctx, c.form(query))
}

// form returns the form of the statement that the database needs.
func (c *conn) form(query string) string {
	if c.together {
		return query
	}
	return Distributed(query)
}

func (c *conn) inspected(statement string) error {
	if inspect == nil {
		return nil
	}
	return inspect(c.database, statement)
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	span := beginSpan(ctx, query)
	rows, err := c.query(ctx, query, args)
	endSpan(span, err)
	return rows, err
}

func (c *conn) query(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.wire.workFor(ctx)
	if len(args) > 0 {
		s, err := c.stmt(ctx, query)
		if err != nil {
			return nil, err
		}
		if s, ok := s.(driver.StmtQueryContext); ok {
			rows, err := s.QueryContext(ctx, args)
			return rows, c.forgetStale(query, err)
		}
	}
	if err := c.inspected(query); err != nil {
		return nil, err
	}
	rows, err := c.pqConn.QueryContext(ctx, c.form(query), args)
	return rows, c.noteReadOnly(err, false)
}

// stmt returns the connection's prepared statement for query, or nil when the connection keeps as
// many as it may.
func (c *conn) stmt(ctx context.Context, query string) (driver.Stmt, error) {
	if s, ok := c.prepared[query]; ok {
		return s, nil
	}
	if !c.prepares || len(c.prepared) >= maxPrepared {
		return nil, nil
	}
	s, err := c.PrepareContext(ctx, query)
	if err != nil {
		return nil, unkept(err)
	}
	c.prepared[query] = s
	return s, nil
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	span := beginSpan(ctx, query)
	res, err := c.exec(ctx, query, args)
	endSpan(span, err)
	return res, err
}

func (c *conn) exec(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.wire.workFor(ctx)
	if len(args) > 0 {
		s, err := c.stmt(ctx, query)
		if err != nil {
			return nil, err
		}
		if s, ok := s.(driver.StmtExecContext); ok {
			res, err := s.ExecContext(ctx, args)
			return res, c.forgetStale(query, err)
		}
	}
	if err := c.inspected(query); err != nil {
		return nil, err
	}
	res, err := c.pqConn.ExecContext(ctx, c.form(query), args)
	return res, c.noteReadOnly(err, false)
}

// forgetStale drops a prepared statement that a schema change has invalidated, so that the next use
// prepares it again.
func (c *conn) forgetStale(query string, err error) error {
	if e, ok := errors.AsType[*pq.Error](err); ok && (e.Code == "0A000" || e.Code == "26000") {
		// The statement is not closed on the server, which would require a healthy transaction. It
		// is freed with the connection.
		delete(c.prepared, query)
	}
	return unkept(c.noteReadOnly(err, false))
}

func (c *conn) Close() error {
	clear(c.prepared)
	c.wire.sayGoodbye()
	return c.pqConn.Close()
}
