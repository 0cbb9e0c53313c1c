package removal_test

import (
	"context"
	"sync"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
)

// A member is forgotten while a sweep adds up what the member gained: the request waits for the
// sums, and deletes them.
// RELIABILITY.md, Guilds.
func TestSumsThatAreBeingAddedUpAreForgotten(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, guild)
	dbtest.Exec(t, d, `INSERT INTO xp_moves (guild_id, at, timezone, users, deltas)
		VALUES ($1, now(), 'UTC', ARRAY[$2, '7'], '{1,2}'), ($1, now(), 'UTC', ARRAY[$2], '{2}')`, guild, member)
	var forgetting sync.WaitGroup
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		if _, err := db.Exec(ctx, tx, `DELETE FROM xp_moves WHERE guild_id = $1`, guild); err != nil {
			return err
		}
		forgetting.Go(func() { forget(t, d, true) })
		testutil.Eventually(t, "the request waits", func() bool { return dbtest.Waiting(t, d) == 1 })
		_, err := db.Exec(ctx, tx, `INSERT INTO xp_periods (guild_id, user_id, kind, starts, xp, kept_until)
			SELECT $1, u, 'week', '2026-06-01', 2, '2027-08-01' FROM unnest(ARRAY[$2, '7']) u`, guild, member)
		return err
	})
	forgetting.Wait()
	if got := dbtest.Value[string](t, d, `SELECT string_agg(user_id, ' ') FROM xp_periods`); got != "7" {
		t.Errorf("the sums are of %s", got)
	}
}
