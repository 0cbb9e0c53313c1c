package db_test

import (
	"fmt"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

type place struct{ Street string }

type member struct {
	place
	ID   int64   `db:"id"`
	Name *string `db:"name"`
}

func TestRowsAreReadIntoListsOfAllKinds(t *testing.T) {
	t.Parallel()
	q, ctx := dbtest.New(t).DB.Reader(), t.Context()
	const rows = `SELECT n AS id, CASE WHEN n <> 2 THEN 'm' || n END AS name, 'Elm' AS street FROM generate_series(1, $1::int) n ORDER BY n`
	reused := []member{{ID: 9, place: place{"gone"}}, {}, {}, {}, {}}
	if err := q.SelectContext(ctx, &reused, rows, 3); err != nil {
		t.Fatal(err)
	}
	if len(reused) != 3 || reused[0].ID != 1 || *reused[0].Name != "m1" || reused[1].Name != nil || *reused[2].Name != "m3" ||
		reused[2].Street != "Elm" {
		t.Errorf("the rows are %+v", reused)
	}
	var pointers []*member
	if err := q.SelectContext(ctx, &pointers, rows, 3); err != nil || len(pointers) != 3 || pointers[0].ID != 1 || pointers[2].ID != 3 {
		t.Errorf("as pointers the rows are %v, %v", pointers, err)
	}
	var none []member
	if err := q.SelectContext(ctx, &none, rows, 0); err != nil || len(none) != 0 {
		t.Errorf("no rows are %v, %v", none, err)
	}
	var values []string
	if err := q.SelectContext(ctx, &values, `SELECT n::text FROM generate_series(1, 9) n`); err != nil ||
		fmt.Sprint(values) != "[1 2 3 4 5 6 7 8 9]" {
		t.Errorf("values are %v, %v", values, err)
	}
	var instants []time.Time
	if err := q.SelectContext(ctx, &instants, `SELECT timestamptz '2026-01-02T03:04:05Z'`); err != nil || len(instants) != 1 ||
		instants[0].Unix() != 1767323045 {
		t.Errorf("instants are %v, %v", instants, err)
	}
	if err := q.SelectContext(ctx, &none, `SELECT 1 AS id, 2 AS unknown`); err == nil {
		t.Error("a column without a field is no failure")
	}
	if err := q.SelectContext(ctx, &values, `SELECT 'a', 'b'`); err == nil {
		t.Error("two columns for single values are no failure")
	}
}

// getOne reads a row as selectAll does, returns an error if there is no row, and ignores rows after
// the first.
func TestARowIsReadIntoValuesOfAllKinds(t *testing.T) {
	t.Parallel()
	q, ctx := dbtest.New(t).DB.Reader(), t.Context()
	const row = `SELECT n AS id, CASE WHEN n <> 2 THEN 'm' || n END AS name, 'Elm' AS street
		FROM generate_series(1, 3) n WHERE n >= $1 ORDER BY n`
	for range 2 { // first without, then with the cache
		m, err := db.Get[member](ctx, q, row, 1)
		if err != nil || m.ID != 1 || *m.Name != "m1" || m.Street != "Elm" {
			t.Errorf("the row is %+v, %v", m, err)
		}
	}
	if _, err := db.Get[member](ctx, q, row, 9); !db.Missing(err) {
		t.Errorf("no row is %v", err)
	}
	if n, err := db.Get[*int](ctx, q, `SELECT NULL::int`); n != nil || err != nil {
		t.Errorf("null is %v, %v", n, err)
	}
	if at, err := db.Get[time.Time](ctx, q, `SELECT timestamptz '2026-01-02T03:04:05Z'`); err != nil || at.Unix() != 1767323045 {
		t.Errorf("an instant is %v, %v", at, err)
	}
	if _, err := db.Get[int](ctx, q, `SELECT 1 / n FROM generate_series(0, 1) n`); err == nil {
		t.Error("a statement that fails is no failure")
	}
	if _, err := db.Get[member](ctx, q, `SELECT 1 AS id, 2 AS unknown`); err == nil {
		t.Error("a column without a field is no failure")
	}
	if _, err := db.Get[string](ctx, q, `SELECT 'a', 'b'`); err == nil {
		t.Error("two columns for a single value are no failure")
	}
}
