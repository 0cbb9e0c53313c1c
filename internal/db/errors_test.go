package db_test

import (
	"errors"
	"testing"

	"github.com/lib/pq"

	"guildhall/internal/db"
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
		{&pq.Error{Code: "XX000", Message: `duplicate key value violates unique constraint "links_fkey_102008"`}, true}, // of a COPY
		{&pq.Error{Code: "XX000", Message: "something else"}, false},
		{errors.New(prefix + `links_fkey"`), false},
	} {
		if got := db.Violates(c.err, "links_fkey"); got != c.want {
			t.Errorf("%v: %t", c.err, got)
		}
	}
}
