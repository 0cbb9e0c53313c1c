//go:build slow

package work_test

import (
	"context"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/server/api/apitest"
)

// An answer that is sent to one node is seen on another within half a second.
func TestAnAnswerIsSeenOnAnotherNode(t *testing.T) {
	t.Parallel()
	one := apitest.New(t, apitest.ByBot())
	id := ticket(t, one, "t1")
	posted := inBackground(t, one, id, `{"content":"Hello"}`)
	testutil.Eventually(t, "the bot is asked", func() bool { return dbtest.Value[int](t, one.DB(), `SELECT count(*) FROM bot_work`) == 1 })
	work := dbtest.Value[string](t, one.DB(), `SELECT id FROM bot_work`)
	began := time.Now()
	dbtest.Do(t, one.DB(), func(ctx context.Context, tx *db.Tx) error { // a direct write, which wakes no node
		_, _, err := chat.AnswerWork(ctx, tx, one.Guild, work, "bk_x", chat.Answer{MessageID: "12"})
		return err
	})
	(<-posted).Want(t, 201, "")
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it has taken %v", took)
	}
}

// A ticket's message is posted while its caller waits, and a caller waits ten seconds for
// a bot that does not come.
func TestACallerWaitsForTheBotAsLongAsTheBotTakes(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.ByBot())
	bot, there, id := api.Bot(t), newWorld(), ticket(t, api, "t1")
	began := time.Now()
	posted := inBackground(t, api, id, `{"content":"Hello","author_id":"5"}`)
	a := one(t, bot, "post_message")
	answer(t, bot, a, there.carryOut(a)).Want(t, 200, "")
	(<-posted).Want(t, 201, "")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it has taken %v", took)
	}
	began = time.Now()
	api.Do(t, "createTicketMessage", `{"content":"Nobody comes back","author_id":"5"}`, apitest.Path("id", id)).
		WantError(t, 502, "discord_send_failed")
	if took := time.Since(began); took > 10500*time.Millisecond {
		t.Errorf("the caller has waited for %v", took)
	}
}
