package records_test

import (
	"context"
	"strings"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// A call holds the rows that its records name and waits for no other, however many the
// guild has.
func TestACallWaitsOnlyForTheRowsThatItsRecordsName(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	const made = `{"record":"ticket","id":"ID","opener_id":"42"},
		{"record":"giveaway","id":"ID","prize":"Nitro","winner_count":1,"channel_id":"300","ends_at":"2099-01-01T00:00:00Z","status":"active"}`
	for _, id := range []string{"held", "free"} {
		bot.Do(t, "writeRecords", records(strings.ReplaceAll(made, "ID", id))).Want(t, 200, "")
	}
	const changed = `{"record":"ticket","id":"ID","subject":"Roles"},{"record":"giveaway","id":"ID","prize":"Boost"}`
	dbtest.Do(t, bot.DB(), func(ctx context.Context, tx *db.Tx) error {
		for _, table := range []string{"tickets", "giveaways"} {
			if _, err := tx.ExecContext(ctx, `SELECT FROM `+table+` WHERE id = 'held' FOR UPDATE`); err != nil {
				return err
			}
		}
		bot.Do(t, "writeRecords", records(strings.ReplaceAll(changed, "ID", "free"))).Want(t, 200, `{"data":[{"result":"updated"},{"result":"updated"}]}`)
		return nil
	})
}
