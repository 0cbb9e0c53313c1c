package dbtest_test

import (
	"context"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

func TestNew(t *testing.T) {
	t.Parallel()
	ctx := context.Background()

	t.Run("is on the program's schema", func(t *testing.T) {
		t.Parallel()
		if _, err := db.CheckSchema(ctx, dbtest.New(t).URL); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("gives each test its own", func(t *testing.T) {
		t.Parallel()
		a, b := dbtest.New(t), dbtest.New(t)
		dbtest.Exec(t, a.DB, `CREATE TABLE only_here ()`)
		for d, want := range map[*dbtest.Database]bool{a: true, b: false} {
			got := dbtest.Value[bool](t, d.DB, `SELECT to_regclass('only_here') IS NOT NULL`)
			if got != want {
				t.Errorf("table seen: %v, want %v", got, want)
			}
		}
	})
	t.Run("drops it when the test ends", func(t *testing.T) {
		t.Parallel()
		var gone string
		t.Run("inner", func(t *testing.T) { gone = dbtest.New(t).URL })
		if _, err := db.CheckSchema(ctx, gone); err == nil {
			t.Error("the database is still there")
		}
	})
}
