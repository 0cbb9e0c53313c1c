package records_test

import (
	"context"
	"strings"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
)

// A call locks the rows that its records name and waits for no other row, however many the guild
// has.
func TestACallWaitsOnlyForTheRowsThatItsRecordsName(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	const made = `{"record":"ticket","id":"ID","opener_id":"42"},
		{"record":"giveaway","id":"ID","prize":"Nitro","winner_count":1,"channel_id":"300","ends_at":"2099-01-01T00:00:00Z","status":"active"},
		{"record":"giveaway_entry","giveaway_id":"ID","user_id":"` + one + `"},
		{"record":"giveaway_entry","giveaway_id":"ID","user_id":"` + two + `"}`
	for _, id := range []string{"held", "free"} {
		bot.Do(t, "writeRecords", records(strings.ReplaceAll(made, "ID", id))).Want(t, 200, "")
	}
	const changed = `{"record":"ticket","id":"ID","subject":"Roles"},{"record":"giveaway","id":"ID","prize":"Boost"},
		{"record":"giveaway_entry","giveaway_id":"ID","user_id":"` + one + `","entries":2}`
	dbtest.Do(t, bot.DB(), func(ctx context.Context, tx *db.Tx) error {
		for _, rows := range []string{
			`tickets WHERE id = 'held'`, `giveaways WHERE id = 'held'`, `giveaway_entries WHERE (giveaway_id = 'held' OR user_id = '` + two + `')`,
		} {
			if _, err := tx.ExecContext(ctx, `SELECT FROM `+rows+` AND guild_id = $1 FOR UPDATE`, bot.Guild); err != nil {
				return err
			}
		}
		bot.Do(t, "writeRecords", records(strings.ReplaceAll(changed, "ID", "free"))).
			Want(t, 200, `{"data":[{"result":"updated"},{"result":"updated"},{"result":"updated"}]}`)
		return nil
	})
}

// An entry is deleted only from the giveaway that its record names.
func TestAnEntryIsTakenFromItsGiveawayAlone(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	const made = `{"record":"giveaway","id":"ID","prize":"Nitro","winner_count":1,"channel_id":"300","ends_at":"2099-01-01T00:00:00Z",
		"status":"active"},{"record":"giveaway_entry","giveaway_id":"ID","user_id":"` + one + `"}`
	for _, id := range []string{"a", "b"} {
		bot.Do(t, "writeRecords", records(strings.ReplaceAll(made, "ID", id))).Want(t, 200, "")
	}
	bot.Do(t, "writeRecords", records(`{"record":"giveaway_entry","giveaway_id":"a","user_id":"`+one+`","entries":0}`)).Want(t, 200, "")
	for id, want := range map[string]string{"a": `{"data":[]}`, "b": `{"data":[{"user_id":"` + one + `"}]}`} {
		bot.Do(t, "listGiveawayEntries", "", apitest.Path("id", id)).Want(t, 200, want)
	}
}
