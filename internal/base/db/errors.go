package db

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"

	"github.com/lib/pq"
)

// Violates reports whether err is a violation of the named constraint. On Citus the constraint's
// name ends with the shard's number, the name may be only in the message, and for COPY even the
// error code is missing.
func Violates(err error, constraint string) bool {
	e, ok := errors.AsType[*pq.Error](err)
	if !ok || e.Code.Class() != "23" && e.Code != "XX000" {
		return false
	}
	if e.Constraint != "" {
		return e.Constraint == constraint
	}
	_, name, _ := strings.Cut(e.Message, `constraint "`)
	number, ok := strings.CutPrefix(name, constraint)
	return ok && shardNumber.MatchString(number)
}

// shardNumber matches what may follow a constraint's name in a message.
var shardNumber = regexp.MustCompile(`^(_\d+)?"`)

// codeOf returns Postgres' error code, or "connection" for an error that did not come from
// Postgres.
func codeOf(err error) string {
	if e, ok := errors.AsType[*pq.Error](err); ok {
		return string(e.Code)
	}
	return "connection"
}

// Missing reports whether err says that a query found no row.
func Missing(err error) bool { return errors.Is(err, sql.ErrNoRows) }

// LockTimeout reports whether err says that a lock was not obtained in time.
func LockTimeout(err error) bool { return codeOf(err) == "55P03" }

// Unavailable reports whether err means that Postgres cannot serve the statement now but may serve
// it later: no connection, shutdown, out of resources, a statement timeout, or a transaction that
// was retried too often.
func Unavailable(err error) bool {
	if retryable(err) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, errUnwanted) {
		return true
	}
	if e, ok := errors.AsType[*pq.Error](err); ok {
		switch e.Code.Class() {
		case "08", "53", "57", "58", "XX":
			return true
		}
		return e.Code == "55P03" || e.Code == "25006"
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// Again is returned by the function of a transaction to make Do retry it: a concurrent change has
// invalidated what the function had read.
var Again = errors.New("db: the unit has met a change that came while it ran") //nolint:revive,staticcheck // it asks for something

func retryable(err error) bool {
	return errors.Is(err, Again) || codeOf(err) == "40P01" || codeOf(err) == "40001"
}

// Uncertain reports whether it is unknown if a change was committed: the connection broke before
// Postgres responded to the COMMIT.
func Uncertain(err error) bool {
	_, ok := errors.AsType[uncertain](err)
	return ok
}

type uncertain struct{ error }

func (u uncertain) Unwrap() error { return u.error }

// unlessRolledBack marks err as uncertain unless it is a response of Postgres which says that the
// transaction was rolled back. A server that shuts down may commit first and then send its shutdown
// error.
func unlessRolledBack(err error) error {
	e, ok := errors.AsType[*pq.Error](err)
	if err == nil || ok && e.Code.Class() != "08" && e.Code != "40003" && !strings.HasPrefix(string(e.Code), "57P") {
		return err
	}
	return uncertain{err}
}

// UndefinedTable reports whether err says that a table does not exist, because the schema is older
// than the statement.
func UndefinedTable(err error) bool { return codeOf(err) == "42P01" }

// ReadOnly reports whether err says that the server refuses writes: it is a standby, or the session
// is read-only.
func ReadOnly(err error) bool { return codeOf(err) == "25006" }

// TakesNoWrites reports whether Postgres refused a write for a lasting reason of its own: no space
// or memory left, a failing disk, a read-only server, or a role without the right to write.
func TakesNoWrites(err error) bool {
	switch code := codeOf(err); code {
	case "25006", "42501":
		return true
	default:
		return strings.HasPrefix(code, "53") || strings.HasPrefix(code, "58")
	}
}

// DiskFull reports whether err says that the server's disk has no space left.
func DiskFull(err error) bool { return codeOf(err) == "53100" }

// ConnectionsTaken reports whether err says that the server, or the role, has reached its limit of
// connections.
func ConnectionsTaken(err error) bool { return codeOf(err) == "53300" }

// WhyNoWrites returns a sentence that tells an operator why the server refuses writes, or "" if
// Postgres' own message says enough.
func WhyNoWrites(err error) string {
	switch {
	case DiskFull(err):
		return "the database's disk is full"
	case ConnectionsTaken(err):
		return "all connections of the database are taken"
	case codeOf(err) == "connection":
		return "the database does not answer"
	}
	return ""
}

// errPooler is the error when a pooler has lost or mixed up the statements that a connection
// prepared.
var errPooler = errors.New("a pooler stands between that keeps no prepared statements: " +
	"set its max_prepared_statements to 512, or with one that has no such setting add binary_parameters=yes to the database URL")

// unkept adds errPooler, with the remedy, to an error that a pooler has caused.
func unkept(err error) error {
	if code := codeOf(err); code == "42P05" || code == "26000" {
		return fmt.Errorf("%w; %w", err, errPooler)
	}
	return err
}
