package db_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/lib/pq"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

func TestViolationsOnAShardAreRecognised(t *testing.T) {
	t.Parallel()
	words := func(message string) error { return &pq.Error{Code: "23503", Message: message} }
	const prefix = `insert or update on table "dashboard_links_102008" violates foreign key constraint "`
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&pq.Error{Code: "23503", Constraint: "links_fkey"}, true},
		{&pq.Error{Code: "23503", Constraint: "links_fkey_2"}, false},
		{words(prefix + `links_fkey_102008"`), true},
		{words(prefix + `links_fkey"`), true},
		{words(prefix + `links_fkey_more_102008"`), false},
		{words("something else"), false},
		{&pq.Error{Code: "XX000", Message: `duplicate key value violates unique constraint "links_fkey_102008"`}, true}, // from a COPY
		{&pq.Error{Code: "XX000", Message: "something else"}, false},
		{errors.New(prefix + `links_fkey"`), false},
	} {
		if got := db.Violates(c.err, "links_fkey"); got != c.want {
			t.Errorf("%v: %t", c.err, got)
		}
	}
}

// The refused row of a COPY is found by its line number, or on Citus by the key in the message.
func TestTheRefusedRowOfACopyIsFound(t *testing.T) {
	t.Parallel()
	type row struct {
		Guild  string `db:"guild_id"`
		Number *int   `db:"number"`
	}
	one, two := 1, 2
	rows := []row{{"1", &one}, {"2", &one}, {"1", &two}, {"2", &one}, {"3", nil}}
	key := func(names, values string) error {
		return &pq.Error{Code: "XX000", Detail: "Key (" + names + ")=(" + values + ") already exists."}
	}
	err := dbtest.New(t).DB.Do(t.Context(), func(_ context.Context, tx *db.Tx) error {
		for i, c := range []struct {
			err  error
			want int // -1: no row is named
		}{
			{&pq.Error{Where: "COPY cases, line 4, column id: x"}, 3},
			{&pq.Error{Where: "COPY cases, line 6"}, -1}, // there are only five rows
			{key("guild_id, number", "2, 1"), 3},         // the second row with that key
			{key("guild_id, number", "1, 2"), 2},         // a row with that key was stored before
			{key("guild_id, number", "1, 9"), -1},
			{key("guild_id, other", "1, 9"), -1},
			{&pq.Error{Detail: "something else"}, -1},
			{errors.New("Key (guild_id, number)=(2, 1) already exists."), -1},
		} {
			if got, ok := db.Refused(tx, c.err, rows); ok != (c.want >= 0) || ok && got != c.want {
				t.Errorf("case %d: row %d, %t; want %d", i, got, ok, c.want)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// The outcome of a COMMIT is uncertain unless Postgres says that it was rolled back: a server that
// shuts down or terminates the session may report that after it has committed.
func TestACommitIsUncertainUnlessPostgresSaysOtherwise(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err       error
		uncertain bool
	}{
		{&pq.Error{Code: "57P01"}, true}, // terminated by an administrator
		{&pq.Error{Code: "57P02"}, true}, // a crash
		{&pq.Error{Code: "57P03"}, true}, // the server starts up or shuts down
		{&pq.Error{Code: "08006"}, true}, // the connection failed
		{&pq.Error{Code: "40003"}, true}, // completion unknown
		{errors.New("EOF"), true},
		{&pq.Error{Code: "57014"}, false}, // cancelled
		{&pq.Error{Code: "40P01"}, false}, // a deadlock
		{&pq.Error{Code: "23505"}, false}, // a duplicate key
		{nil, false},
	} {
		if got := db.Uncertain(db.UnlessRolledBack(c.err)); got != c.uncertain {
			t.Errorf("%v is uncertain: %t", c.err, got)
		}
	}
}

// For a database that refuses writes, the message says what to check.
func TestWhatKeepsADatabaseFromWritingIsTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want string
	}{
		{&pq.Error{Code: "53100"}, "the database's disk is full"},
		{&pq.Error{Code: "53300"}, "all connections of the database are taken"},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, "the database does not answer"},
		{context.DeadlineExceeded, "the database does not answer"},
		{&pq.Error{Code: "42501"}, ""},
	} {
		if got := db.WhyNoWrites(fmt.Errorf("begin: %w", c.err)); got != c.want {
			t.Errorf("%v is told as %q, want %q", c.err, got, c.want)
		}
	}
}
