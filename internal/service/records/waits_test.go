package records_test

import (
	"context"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api/apitest"
)

// A call of records waits while a ticket is closed, a giveaway is paused and a member enters
// another one, all after the call began. The call does not change these instants.
func TestInstantsOfWhatChangesWhileACallWaitsStay(t *testing.T) {
	t.Parallel()
	bot, back := bot(t)
	const entry = `{"record":"giveaway_entry","giveaway_id":"h","user_id":"` + one + `"}`
	bot.Do(t, "writeRecords", `{"tell":false,"records":[{"record":"wallet","user_id":"`+one+`","balance":7},
		{"record":"ticket","id":"t","opener_id":"42"},{"record":"giveaway","id":"g","prize":"p","channel_id":"7"},
		{"record":"giveaway","id":"h","prize":"p","channel_id":"7"}]}`).Want(t, 200, "")
	answered := make(chan *apitest.Response, 1)
	dbtest.Do(t, bot.DB(), func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `SELECT FROM wallets WHERE guild_id = $1 FOR UPDATE`, bot.Guild); err != nil {
			return err
		}
		go func() {
			answered <- bot.Do(t, "writeRecords", records(`{"record":"wallet","user_id":"`+one+`","balance":7},
				{"record":"ticket","id":"t","opener_id":"42"},{"record":"giveaway","id":"g","prize":"p"},`+entry))
		}()
		testutil.Eventually(t, "the call waits", func() bool { return dbtest.Waiting(t, bot.DB()) > 0 })
		back.Do(t, "closeTicket", "", apitest.Path("id", "t")).Want(t, 200, "")
		back.Do(t, "pauseGiveaway", "", apitest.Path("id", "g")).Want(t, 200, "")
		bot.Do(t, "writeRecords", records(entry)).Want(t, 200, `{"data":[{"result":"created"}]}`)
		return nil
	})
	(<-answered).Want(t, 200, `{"data":[{"result":"unchanged"},{"record":"ticket","result":"unchanged"},
		{"record":"giveaway","result":"unchanged"},{"record":"giveaway_entry","result":"unchanged"}]}`)
	bot.WantEvent(t, "ticket.closed", "")
	bot.WantEvent(t, "giveaway.paused", "")
	bot.WantNoEvent(t)
}
