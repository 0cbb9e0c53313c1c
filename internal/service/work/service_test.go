package work_test

import (
	"strings"
	"testing"

	"guildhall/internal/base/db/dbtest"
	server "guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/giveaways"
	"guildhall/internal/service/tickets"
)

// closing makes the bot be asked to close a channel, and returns that request.
func closing(t *testing.T, api, bot *apitest.API) asked {
	t.Helper()
	id := ticket(t, api, "closing")
	api.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, "")
	if err := tickets.SyncChannel(background(t), api.DB(), platform(api), api.Guild, id); err != nil {
		t.Fatal(err)
	}
	return one(t, bot, "close_channel")
}

func TestAKeyAnswersTheWorkOfItsGuildsOnly(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.ByBot())
	api.Next(t)
	a := closing(t, api, api.Bot(t))
	dbtest.Exec(t, api.DB(), `UPDATE stream_deliveries SET due_at = now()`)
	neighbour := api.Bot(t, apitest.Neighbour)
	if got := fetch(t, neighbour, ""); len(got) != 0 {
		t.Errorf("a key gets work of a guild that it does not serve: %+v", got)
	}
	answer(t, neighbour, a, `{"done":{}}`).WantError(t, 404, "not_found")
	api.Do(t, "answerBotWork", `{"done":{}}`, apitest.Path("id", a.WorkID)).WantError(t, 403, "insufficient_scope")
	answer(t, api.Bot(t, api.Guild), a, `{"done":{}}`).Want(t, 200, `{"data":{"result":"done"}}`)
}

// The bot moves a closed ticket to another channel before it answers that the old channel is
// closed: it is also asked to close the new one. RELIABILITY.md, Messages.
func TestWorkOnAChannelIsNotAnsweredByWorkOnAnother(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.ByBot())
	bot := api.Bot(t)
	old := closing(t, api, bot)
	bot.In(api.Guild).Do(t, "writeRecords", `{"records":[{"record":"ticket","id":"closing","channel_id":"7002"}]}`).
		Want(t, 200, `{"data":[{"result":"updated"}]}`)
	answer(t, bot, old, `{"done":{}}`).Want(t, 200, `{"data":{"result":"done"}}`)
	if err := tickets.SyncChannel(background(t), api.DB(), platform(api), api.Guild, "closing"); err != nil {
		t.Fatal(err)
	}
	if a := one(t, bot, "close_channel"); old.ChannelID != "7001" || a.ChannelID != "7002" || a.WorkID == old.WorkID {
		t.Errorf("after %+v the bot is asked for %+v", old, a)
	}
}

// When the bot answers, the giveaway has another message with the same text: that message is edited
// too, and its entries are requested. RELIABILITY.md, Giveaways.
func TestWorkOnAMessageIsNotAnsweredByWorkOnAnother(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.ByBot())
	bot := api.Bot(t)
	dbtest.Exec(t, api.DB(), `
		INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, message_id, starts_at, ends_at,
			source, pot, drawing_at, redraw_at, edit_at)
		VALUES ($1, 'one', 'drawing', 'A hat', 1, '7002', '800', now(), now(), 'api', 'gathering', now(), now(), now())`, api.Guild)
	for _, message := range []string{"800", "801"} {
		dbtest.Exec(t, api.DB(), `UPDATE giveaways SET message_id = $1, redraw_at = now(), edit_at = now()`, message)
		if err := giveaways.Gather(background(t), api.DB(), platform(api), api.Guild, "one"); err != nil {
			t.Fatal(err)
		}
		list := fetch(t, bot, `,"wait":5`)
		if len(list) != 2 {
			t.Fatalf("for message %s asked for is %+v", message, list)
		}
		for _, a := range list {
			if a.MessageID != message {
				t.Errorf("asked for is %+v, want it of message %s", a, message)
			}
			answer(t, bot, a, `{"done":{}}`).Want(t, 200, `{"data":{"result":"done"}}`)
		}
	}
}

// After an import from another guild's file, two guilds may contain things with the same ids. An
// answer that is sent twice counts for one guild only.
func TestWorkOfEqualThingsInTwoGuildsIsAnsweredInEach(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.ByBot())
	bot, next := api.Bot(t), api.Next(t)
	for _, guild := range []string{api.Guild, next.Guild} {
		dbtest.Exec(t, api.DB(), `
			INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, message_id, starts_at, ends_at,
				source, pot, drawing_at, redraw_at)
			VALUES ($1, 'same', 'drawing', 'A hat', 1, '7002', '800', now(), now(), 'api', 'gathering', now(), now())`, guild)
		if err := giveaways.Gather(background(t), api.DB(), platform(api), guild, "same"); err != nil {
			t.Fatal(err)
		}
	}
	list := fetch(t, bot, `,"wait":5`)
	if len(list) != 2 {
		t.Fatalf("asked for is %+v", list)
	}
	for i, a := range list {
		for range 2 {
			answer(t, bot, a, `{"done":{}}`).Want(t, 200, `{"data":{"result":"done"}}`)
		}
		if n := dbtest.Value[int](t, api.DB(), `SELECT count(result) FROM bot_work`); n != i+1 {
			t.Errorf("after the answers to %d pieces of work %d are answered", i+1, n)
		}
	}
}

func TestAnswersThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.ByBot())
	bot := api.Bot(t)
	a := closing(t, api, bot)
	for _, id := range []string{"x", strings.Repeat("x", 64), a.TicketID, "%00", "\u2603", "0"} {
		bot.Do(t, "answerBotWork", `{"done":{}}`, apitest.Path("id", id)).WantError(t, 404, "not_found")
	}
	for _, body := range []string{
		`{}`, `[]`, `null`, `{"done":null}`, `{"done":{},"refused":{"reason":"x"}}`, `{"done":{"message_id":"x"}}`, `{"done":{"message_id":5}}`,
		`{"done":{"message_id":"12"}}`, `{"done":{"channel_id":"12"}}`, `{"refused":{}}`, `{"refused":{"reason":""}}`,
		`{"refused":{"reason":"` + strings.Repeat("x", 501) + `"}}`, `{"refused":{"reason":"a\u0000"}}`, `{"refused":"no"}`, `{"undone":{}}`,
	} {
		answer(t, bot, a, body).WantError(t, 400, "invalid_request")
	}
	for _, body := range []string{`{}`, `{"done":null}`, `{"done":{},"refused":{"reason":"x"}}`} {
		const want = "body: must have exactly one of the members done, refused"
		if got := answer(t, bot, a, body).Str(t, "error.message"); got != want {
			t.Errorf("the answer %s is answered %q, want %q", body, got, want)
		}
	}
	posted := inBackground(t, api, ticket(t, api, "t"), `{"content":"Hello","author_id":"5"}`)
	m := one(t, bot, "post_message")
	answer(t, bot, m, `{"done":{}}`).WantError(t, 400, "invalid_request")
	answer(t, bot, m, `{"done":{"message_id":"12"}}`).Want(t, 200, "")
	(<-posted).Want(t, 201, "")
	answer(t, bot, a, `{"done":{}}`).Want(t, 200, `{"data":{"work_id":"`+a.WorkID+`","result":"done","message_id":null}}`)
}

// RELIABILITY.md, Messages.
func TestWhatNobodyAnswersUntilItsDeadlineIsRefused(t *testing.T) {
	t.Parallel()
	for _, swept := range []bool{true, false} {
		api := apitest.New(t, apitest.ByBot())
		bot := api.Bot(t)
		a := closing(t, api, bot)
		if err := server.Work().Expire(t.Context(), api.DB()); err != nil {
			t.Fatal(err)
		}
		dbtest.Exec(t, api.DB(), `UPDATE bot_work SET `+dbtest.Earlier(`interval '24 hours'`, "deadline"))
		if swept {
			if err := server.Work().Expire(t.Context(), api.DB()); err != nil {
				t.Fatal(err)
			}
			if n := dbtest.Value[int](t, api.DB(), `SELECT count(*) FROM stream_deliveries`); n != 0 {
				t.Errorf("%d events wait still", n)
			}
		}
		answer(t, bot, a, `{"done":{}}`).Want(t, 200, `{"data":{"result":"refused"}}`)
		if err := tickets.SyncChannel(background(t), api.DB(), platform(api), api.Guild, a.TicketID); err != nil {
			t.Error(err)
		}
		if left := dbtest.Value[string](t, api.DB(), `SELECT concat(channel_id, ' ', channel_due_at) FROM tickets`); left != "7001 " {
			t.Errorf("the ticket has %q", left)
		}
	}
}
