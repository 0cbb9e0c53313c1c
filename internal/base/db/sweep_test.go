package db_test

import (
	"context"
	"errors"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// A guild that fails does not stop the others, locked rows are left alone, and rows that cannot be
// worked on now do not keep the sweep running.
func TestASweepGoesThroughAllGuilds(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Exec(t, d, `CREATE TABLE todo (guild_id text, id text, PRIMARY KEY (guild_id, id))`)
	dbtest.Exec(t, d, `INSERT INTO todo SELECT g, n FROM generate_series(1, 3) g, generate_series(1, 7) n`)
	broken := errors.New("broken")
	sweep := db.Sweep{
		What: "things", Due: `SELECT guild_id, id FROM todo ORDER BY id, guild_id LIMIT $1`, Look: 6, Chunk: 2, AtOnce: 2,
		Do: func(ctx context.Context, tx *db.Tx, guild string, ids []string) (int, error) {
			if len(ids) > 2 {
				t.Errorf("%d rows in one transaction", len(ids))
			}
			n, err := db.Exec(ctx, tx, `DELETE FROM todo WHERE guild_id = $1 AND id = ANY ($2) AND id <> '7'`, guild, db.Array(ids))
			if guild == "2" {
				return n, broken
			}
			return n, err
		},
	}
	left := func(want int) {
		t.Helper()
		if n := dbtest.Value[int](t, d, `SELECT count(*) FROM todo`); n != want {
			t.Errorf("%d are left, want %d", n, want)
		}
	}
	if err := sweep.Run(t.Context(), d); !errors.Is(err, broken) {
		t.Errorf("it ends with %v", err)
	}
	left(17) // two rows of each other guild
	sweep.Look = 100
	if err := sweep.Run(t.Context(), d); !errors.Is(err, broken) {
		t.Errorf("it ends with %v", err)
	}
	left(9) // left are seven rows of the failing guild, and two rows that Sweep cannot process
	dbtest.Exec(t, d, `DELETE FROM todo WHERE guild_id = '2'`)
	sweep.Look = 1
	if err := sweep.Run(t.Context(), d); err != nil {
		t.Error(err)
	}
	left(2)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := sweep.Run(gone, d); err == nil {
		t.Error("it looks for a caller that is gone")
	}
}
