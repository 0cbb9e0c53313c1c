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

// Violates reports whether err is the violation of the named constraint. A shard's
// has its number behind the name, and a coordinator tells of it in words only, of
// one that a COPY met even without the code.
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

// shardNumber is what may follow a constraint's name in a message.
var shardNumber = regexp.MustCompile(`^(_\d+)?"`)

// codeOf is Postgres' code for what went wrong; "connection" when it has said nothing.
func codeOf(err error) string {
	if e, ok := errors.AsType[*pq.Error](err); ok {
		return string(e.Code)
	}
	return "connection"
}

// Missing reports whether err says that a query found no row.
func Missing(err error) bool { return errors.Is(err, sql.ErrNoRows) }

// LockTimeout reports whether err is a lock that was waited for in vain.
func LockTimeout(err error) bool { return codeOf(err) == "55P03" }

// Unavailable reports whether err means that Postgres cannot serve now, though
// it may serve the same statement later: no connection, shutting down, out of
// resources, a statement that ran out of its time, a unit that others overtook each time.
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

// Again is what a unit returns to make Do run it anew: it has met a row that came
// while it ran.
var Again = errors.New("db: the unit has met a change that came while it ran") //nolint:revive,staticcheck // it asks for something

func retryable(err error) bool {
	return errors.Is(err, Again) || codeOf(err) == "40P01" || codeOf(err) == "40001"
}

// Uncertain reports whether err leaves open what became of a change: the
// connection broke before Postgres had said whether it is committed.
func Uncertain(err error) bool {
	_, ok := errors.AsType[uncertain](err)
	return ok
}

type uncertain struct{ error }

func (u uncertain) Unwrap() error { return u.error }

// unlessTold marks an error as uncertain unless Postgres says in it that the
// transaction is undone. It can be committed before a server that is being shut
// down says goodbye.
func unlessTold(err error) error {
	e, ok := errors.AsType[*pq.Error](err)
	if err == nil || ok && e.Code.Class() != "08" && e.Code != "40003" && !strings.HasPrefix(string(e.Code), "57P") {
		return err
	}
	return uncertain{err}
}

// UndefinedTable reports whether err says that a table is not there: the schema
// is older than the statement.
func UndefinedTable(err error) bool { return codeOf(err) == "42P01" }

// ReadOnly reports whether err says that the server takes no writes: it is a
// standby, or its sessions are read-only.
func ReadOnly(err error) bool { return codeOf(err) == "25006" }

// TakesNoWrites reports whether Postgres has refused a change for a reason that is
// its own and stays: no space or no memory left, a disk that fails, a server that
// only reads, a role that may not write there.
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

// ConnectionsTaken reports whether err says that the server, or the role, has no
// connection left to give.
func ConnectionsTaken(err error) bool { return codeOf(err) == "53300" }

// WhyNoWrites says in words why a write came to err, where an operator has to look
// elsewhere than at what was written; empty where Postgres' own words say it.
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

// errPooler is told where a pooler has lost, or mixed up, what a connection had
// prepared.
var errPooler = errors.New("a pooler stands between that keeps no prepared statements: " +
	"set its max_prepared_statements to 512, or with one that has no such setting add binary_parameters=yes to the database URL")

// unkept says what is to be done where err is a pooler's doing.
func unkept(err error) error {
	if code := codeOf(err); code == "42P05" || code == "26000" {
		return fmt.Errorf("%w; %w", err, errPooler)
	}
	return err
}
