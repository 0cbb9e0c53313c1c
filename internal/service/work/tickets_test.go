package work_test

import (
	"context"
	"errors"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/tickets"
)

func TestATicketMessageIsPostedByTheBot(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.ByBot())
	bot, there, id := api.Bot(t), newWorld(), ticket(t, api, "t1")
	posted := inBackground(t, api, id, `{"content":"Hello","author_id":"5"}`)
	a := one(t, bot, "post_message")
	if a.TicketID != id || a.ChannelID != "7001" || a.Content != "Hello" || len(a.WorkID) > 25 || a.guild != api.Guild {
		t.Errorf("asked for is %+v", a)
	}
	body := there.carryOut(a)
	answer(t, bot, a, body).Want(t, 200, `{"data":{"work_id":"`+a.WorkID+`","result":"done","message_id":"1000000"}}`)
	(<-posted).Want(t, 201, `{"data":{"content":"Hello","channel_message_id":"1000000"}}`)
	if n := dbtest.Value[int](t, api.DB(), `SELECT count(*) FROM stream_deliveries`); n != 0 {
		t.Errorf("%d events wait that were answered", n)
	}
	// The first answer counts.
	answer(t, bot, a, `{"refused":{"reason":"no"}}`).Want(t, 200, `{"data":{"result":"done","message_id":"1000000"}}`)
	answer(t, bot, a, `{"done":{"message_id":"77"}}`).Want(t, 200, `{"data":{"result":"done","message_id":"1000000"}}`)
	api.WantEvent(t, "work.requested", `{"data":{"kind":"post_message"}}`)
	api.WantEvent(t, "ticket.message", `{"data":{"channel_message_id":"1000000"}}`)
}

// transcript returns the texts of a ticket's transcript and their message ids on the platform.
func transcript(t *testing.T, api *apitest.API, ticket string) string {
	t.Helper()
	return dbtest.Value[string](t, api.DB(), `
		SELECT coalesce(string_agg(content || ' ' || channel_message_id, ', ' ORDER BY content), '')
		FROM ticket_messages WHERE ticket_id = $1 AND kind = 'message'`, ticket)
}

// sweep finishes messages whose senders have disappeared.
func sweep(t *testing.T, api *apitest.API) {
	t.Helper()
	if err := tickets.SweepIntents(background(t), messages(api)); err != nil {
		t.Error(err)
	}
}

func TestAMessageThatIsAnsweredLateStandsInTheTranscript(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.ByBot())
	bot, there, id := api.Bot(t), newWorld(), ticket(t, api, "t1")
	keyed := api.Key("k")
	body := `{"content":"Hello","author_id":"5"}`
	api.Do(t, "createTicketMessage", `{"content":"Nobody comes back","author_id":"5"}`, apitest.Path("id", id)).
		WantError(t, 502, "discord_send_failed")
	late := one(t, bot, "post_message")
	posted := inBackground(t, keyed, id, body)
	a := one(t, bot, "post_message")
	(<-posted).WantError(t, 502, "discord_send_failed")
	sweep(t, api)
	if got := transcript(t, api, id); got != "" {
		t.Errorf("the transcript says %s", got)
	}
	for _, a := range []asked{late, a} {
		answer(t, bot, a, there.carryOut(a)).Want(t, 200, "")
	}
	sweep(t, api)
	if got := transcript(t, api, id); got != "Hello 1000001, Nobody comes back 1000000" {
		t.Errorf("the transcript says %s", got)
	}
	keyed.Do(t, "createTicketMessage", body, apitest.Path("id", id)).Want(t, 201, `{"data":{"channel_message_id":"1000001"}}`)
	if n := len(there.byNonce); n != 2 {
		t.Errorf("%d messages were posted", n)
	}
}

// The bot mirrors the message that it has posted before it answers, and answers late: a repeat of
// the request gets the transcript entry that the bot has made. RELIABILITY.md, Messages.
func TestAMessageThatIsMirroredBeforeALateAnswerIsShown(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.ByBot())
	bot, there, id := api.Bot(t), newWorld(), ticket(t, api, "t1")
	keyed, body := api.Key("k"), `{"content":"Hello","author_id":"5"}`
	posted := inBackground(t, keyed, id, body)
	a := one(t, bot, "post_message")
	(<-posted).WantError(t, 502, "discord_send_failed")
	done := there.carryOut(a)
	entry := bot.In(api.Guild).Do(t, "writeRecords",
		`{"records":[{"record":"ticket_message","ticket_id":"`+id+`","channel_message_id":"1000000","content":"Hello","author_id":"5"}]}`).
		Want(t, 200, `{"data":[{"result":"created"}]}`).All(t, "id")[0]
	answer(t, bot, a, done).Want(t, 200, "")
	sweep(t, api)
	keyed.Do(t, "createTicketMessage", body, apitest.Path("id", id)).
		Want(t, 201, `{"data":{"id":"`+entry+`","author_id":"5","channel_message_id":"1000000"}}`)
	if got := transcript(t, api, id); got != "Hello 1000000" {
		t.Errorf("the transcript says %s", got)
	}
}

// The bot opens a ticket in the channel that it is asked to close for the ticket before. It is then asked
// to open the channel again, or the opened ticket has no channel where the bot has deleted it.
// RELIABILITY.md, Messages.
func TestTheBotOpensATicketInAChannelThatItIsToClose(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"archive", "delete"} {
		api := apitest.New(t, apitest.ByBot())
		dbtest.Exec(t, api.DB(), `UPDATE guild_settings SET close_action = $1`, action)
		bot, there := api.Bot(t), newWorld()
		a := closing(t, api, bot)
		bot.In(api.Guild).Do(t, "writeRecords",
			`{"records":[{"record":"ticket","id":"second","number":9,"opener_id":"6","channel_id":"`+a.ChannelID+`"}]}`).
			Want(t, 200, `{"data":[{"result":"created"}]}`)
		want, last := `{"data":{"status":"open","channel_id":null}}`, "delete"
		for _, kind := range map[string][]string{"archive": {"close_channel", "reopen_channel"}, "delete": {"close_channel"}}[action] {
			if kind == "reopen_channel" {
				want, last = `{"data":{"status":"open","channel_id":"`+a.ChannelID+`"}}`, "restore"
				a = one(t, bot, kind)
			}
			answer(t, bot, a, there.carryOut(a)).Want(t, 200, "")
			if err := tickets.SyncChannel(background(t), api.DB(), platform(api), api.Guild, "closing"); err != nil {
				t.Fatal(err)
			}
		}
		if got := there.channels[a.ChannelID]; got != last {
			t.Errorf("%s: the last action on the channel is %q", action, got)
		}
		api.Do(t, "getTicket", "", apitest.Path("id", "second")).Want(t, 200, want)
		due := dbtest.Value[bool](t, api.DB(), `SELECT bool_or(channel_due_at IS NOT NULL) FROM tickets`)
		if list := fetch(t, bot, ""); len(list) != 0 || due {
			t.Errorf("%s: the bot is asked for %+v, or a channel is still due", action, list)
		}
	}
}

func TestTheSameKeyResumesTheSameWork(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.ByBot())
	bot, there, id := api.Bot(t), newWorld(), ticket(t, api, "t1")
	keyed, body := api.Key("k"), `{"content":"Hello","author_id":"5"}`
	keyed.Do(t, "createTicketMessage", body, apitest.Path("id", id)).WantError(t, 502, "discord_send_failed")
	// The platform itself would have forgotten the nonce by now.
	dbtest.Exec(t, api.DB(), `UPDATE chat_intents SET `+dbtest.Earlier(`interval '10 minutes'`, "first_sent_at", "created_at"))
	posted := inBackground(t, keyed, id, body)
	a := one(t, bot, "post_message")
	testutil.Eventually(t, "the repeat waits", func() bool {
		return dbtest.Value[int](t, api.DB(), `SELECT count(*) FROM chat_intents WHERE state = 'sending'`) == 1
	})
	answer(t, bot, a, there.carryOut(a)).Want(t, 200, "")
	(<-posted).Want(t, 201, `{"data":{"channel_message_id":"1000000"}}`)
	if n := dbtest.Value[int](t, api.DB(), `SELECT count(*) FROM webhook_events WHERE type = 'work.requested'`); n != 1 {
		t.Errorf("the bot was asked %d times", n)
	}
}

func TestWhatTheBotRefusesIsNotPosted(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.ByBot())
	bot, id := api.Bot(t), ticket(t, api, "t1")
	keyed, body := api.Key("k"), `{"content":"Hello","author_id":"5"}`
	posted := inBackground(t, keyed, id, body)
	a := one(t, bot, "post_message")
	answer(t, bot, a, `{"refused":{"reason":"channel_not_allowed"}}`).Want(t, 200, `{"data":{"result":"refused","message_id":null}}`)
	(<-posted).WantError(t, 502, "discord_send_failed")
	keyed.Do(t, "createTicketMessage", body, apitest.Path("id", id)).WantError(t, 502, "discord_send_failed")
	answer(t, bot, a, `{"done":{"message_id":"1"}}`).Want(t, 200, `{"data":{"result":"refused","message_id":null}}`)
	sweep(t, api)
	if got := transcript(t, api, id); got != "" {
		t.Errorf("the transcript says %s", got)
	}
	if left := fetch(t, bot, ""); len(left) != 0 {
		t.Errorf("there is more work: %+v", left)
	}
}

// A bot that crashes between posting and answering gets the same work again. RELIABILITY.md,
// Messages.
func TestWorkThatIsNotAnsweredComesAgain(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.ByBot())
	bot, there, id := api.Bot(t), newWorld(), ticket(t, api, "t1")
	posted := inBackground(t, api, id, `{"content":"Hello","author_id":"5"}`)
	there.carryOut(one(t, bot, "post_message"))
	dbtest.Exec(t, api.DB(), `UPDATE stream_deliveries SET due_at = now()`)
	a := one(t, bot, "post_message")
	answer(t, bot, a, there.carryOut(a)).Want(t, 200, "")
	(<-posted).Want(t, 201, `{"data":{"channel_message_id":"1000000"}}`)
	if n := len(there.byNonce); n != 1 {
		t.Errorf("%d messages were posted", n)
	}
}

// The answer commits between the sender's timeout and the transaction that records the timeout.
// RELIABILITY.md, Messages.
func TestAnAnswerThatComesAsTheSenderGivesUpIsNotLost(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.ByBot())
	bot, there, id := api.Bot(t), newWorld(), ticket(t, api, "t1")
	var in chat.Intent
	dbtest.Do(t, api.DB(), func(ctx context.Context, tx *db.Tx) (err error) {
		in, err = chat.Prepare(
			ctx,
			tx,
			chat.Intent{GuildID: api.Guild, Kind: chat.KindTicketMessage, SubjectID: id, ChannelID: "7001", Content: "Hello"},
		)
		if err == nil {
			in, err = chat.Take(ctx, tx, in.GuildID, in.ID)
		}
		return err
	})
	if _, err := chat.Deliver(background(t), api.DB(), platform(api), &in, "7001"); !errors.Is(err, chat.ErrAsked) ||
		in.Outcome(err) != chat.Unknown {
		t.Fatalf("the bot is asked with %v", err)
	}
	a := one(t, bot, "post_message")
	answer(t, bot, a, there.carryOut(a)).Want(t, 200, "")
	dbtest.Do(t, api.DB(), func(ctx context.Context, tx *db.Tx) error {
		_, err := chat.RecordResult(ctx, tx, in, chat.Unknown, "")
		return err
	})
	dbtest.Exec(t, api.DB(), `UPDATE chat_intents SET lease_until = now()`)
	sweep(t, api)
	if got := transcript(t, api, id); got != "Hello 1000000" {
		t.Errorf("the transcript says %s", got)
	}
}

func TestAChannelFollowsItsTicketInOrder(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"archive", "delete"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			api := apitest.New(t, apitest.ByBot())
			bot, there, id := api.Bot(t), newWorld(), ticket(t, api, "t1")
			dbtest.Exec(t, api.DB(), `
				INSERT INTO guild_settings (guild_id, close_action) VALUES ($1, $2)
				ON CONFLICT (guild_id) DO UPDATE SET close_action = $2`, api.Guild, action)
			sync := func() {
				t.Helper()
				if err := tickets.SyncChannel(background(t), api.DB(), platform(api), api.Guild, id); err != nil {
					t.Error(err)
				}
			}
			api.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
			sync()
			sync()
			a := one(t, bot, "close_channel")
			if a.Action != action || a.TicketID != id || a.ChannelID != "7001" {
				t.Errorf("asked for is %+v", a)
			}
			api.Do(t, "reopenTicket", "", apitest.Path("id", id)).Want(t, 200, "")
			sync()
			if more := fetch(t, bot, ""); len(more) != 0 {
				t.Errorf("before the channel is closed the bot is asked for %+v", more)
			}
			answer(t, bot, a, there.carryOut(a)).Want(t, 200, `{"data":{"result":"done","message_id":null}}`)
			tried := dbtest.Value[bool](t, api.DB(), `SELECT channel_try_at IS NOT NULL FROM tickets WHERE id = $1`, id)
			if tried != (action == "archive") {
				t.Errorf("after the answer the channel is tried again: %v", tried)
			}
			sync()
			if action == "delete" { // the ticket is open, and a deleted channel is no longer its channel
				api.Do(t, "getTicket", "", apitest.Path("id", id)).Want(t, 200, `{"data":{"status":"open","channel_id":null}}`)
				due := dbtest.Value[bool](t, api.DB(), `SELECT channel_due_at IS NOT NULL FROM tickets WHERE id = $1`, id)
				if due || there.channels["7001"] != action {
					t.Errorf("the channel is due, or its last word is %s", there.channels["7001"])
				}
				if more := fetch(t, bot, ""); len(more) != 0 {
					t.Errorf("after the channel is deleted the bot is asked for %+v", more)
				}
				return
			}
			a = one(t, bot, "reopen_channel")
			answer(t, bot, a, there.carryOut(a)).Want(t, 200, "")
			sync()
			api.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
			sync()
			a = one(t, bot, "close_channel")
			answer(t, bot, a, there.carryOut(a)).Want(t, 200, "")
			sync()
			left := dbtest.Value[string](t, api.DB(), `SELECT concat(channel_id, ' ', channel_due_at) FROM tickets WHERE id = $1`, id)
			if left != "7001 " || there.channels["7001"] != action {
				t.Errorf("the ticket has %q, and the channel's last word is %s", left, there.channels["7001"])
			}
		})
	}
}

// hasty is a worker's chat platform on which the bot answers before the worker has released the
// channel, and whose answer is followed up at once.
type hasty struct {
	*chat.Work
	beside func()
}

// ArchiveChannel asks the bot, which answers at once.
func (h hasty) ArchiveChannel(ctx context.Context, c chat.Channel, l chat.Lock) error {
	defer h.beside()
	return h.Work.ArchiveChannel(ctx, c, l)
}

// The follow-up of an answer finds the channel leased by the worker that has asked; that worker
// continues. RELIABILITY.md, Messages.
func TestAnAnswerBesideTheWorkerIsFollowed(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.ByBot())
	bot, there, id := api.Bot(t), newWorld(), ticket(t, api, "t1")
	sync := func(p chat.Platform) {
		t.Helper()
		if err := tickets.SyncChannel(background(t), api.DB(), p, api.Guild, id); err != nil {
			t.Error(err)
		}
	}
	answered := func() {
		for _, a := range fetch(t, bot, "") {
			answer(t, bot, a, there.carryOut(a)).Want(t, 200, "")
			sync(platform(api))
		}
	}
	due := func() bool { return dbtest.Value[bool](t, api.DB(), `SELECT channel_due_at IS NOT NULL FROM tickets`) }
	// The bot closes the channel at once.
	api.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
	sync(hasty{platform(api), answered})
	if there.channels["7001"] != "archive" || due() {
		t.Errorf("the channel's last word is %q", there.channels["7001"])
	}
	// The bot is asked to open the channel, and answers when the ticket is closed again.
	api.Do(t, "reopenTicket", "", apitest.Path("id", id)).Want(t, 200, "")
	sync(platform(api))
	api.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
	sync(hasty{platform(api), answered})
	answered() // the requests that follow
	if there.channels["7001"] != "archive" || due() {
		t.Errorf("at the end the channel's last word is %q", there.channels["7001"])
	}
}

func TestAChannelThatTheBotRefusesIsLeftAlone(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.ByBot())
	bot, id := api.Bot(t), ticket(t, api, "t1")
	api.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
	for range 2 {
		if err := tickets.SyncChannel(background(t), api.DB(), platform(api), api.Guild, id); err != nil {
			t.Error(err)
		}
		for _, a := range fetch(t, bot, "") {
			answer(t, bot, a, `{"refused":{"reason":"no"}}`).Want(t, 200, "")
		}
	}
	if left := dbtest.Value[string](t, api.DB(), `SELECT concat(channel_id, ' ', channel_due_at) FROM tickets`); left != "7001 " {
		t.Errorf("the ticket has %q", left)
	}
}
