package work_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/giveaways"
)

func giveaway(t testing.TB, api *apitest.API, winners int) string {
	t.Helper()
	ends := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	body := fmt.Sprintf(`{"prize":"A hat","channel_id":"7002","winner_count":%d,"ends_at":%q}`, winners, ends)
	return api.Do(t, "createGiveaway", body).Want(t, 201, `{"data":{"message_id":null}}`).Str(t, "data.id")
}

// entries writes n entries of a giveaway, as the bot does.
func entries(t testing.TB, bot *apitest.API, guild, giveaway string, n int) *apitest.Response {
	t.Helper()
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`{"record":"giveaway_entry","giveaway_id":%q,"user_id":"%d"}`, giveaway, 900+i))
	}
	return bot.In(guild).Do(t, "writeRecords", `{"records":[`+strings.Join(list, ",")+`]}`)
}

// The bot posts a giveaway, writes its entries when asked, announces the winners and edits the
// message. It answers late, twice, or after it has posted and crashed.
func TestAGiveawayIsRunByTheBot(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.ByBot())
	bot, there := api.Bot(t), newWorld()
	node(t, api)
	id := giveaway(t, api, 2)
	a := one(t, bot, "post_giveaway")
	there.carryOut(a) // and crashes before it answers
	dbtest.Exec(t, api.DB(), `UPDATE stream_deliveries SET due_at = now()`)
	a = one(t, bot, "post_giveaway")
	if a.GiveawayID != id || a.ChannelID != "7002" || !strings.Contains(a.Content, "A hat") {
		t.Errorf("asked for is %+v", a)
	}
	for range 2 {
		answer(t, bot, a, there.carryOut(a)).Want(t, 200, `{"data":{"result":"done","message_id":"1000000"}}`)
	}
	testutil.Eventually(t, "the giveaway knows its message", func() bool {
		return dbtest.Value[string](t, api.DB(), `SELECT coalesce(message_id, '') FROM giveaways WHERE id = $1`, id) == "1000000"
	})
	api.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, "")
	var collect asked
	testutil.Eventually(t, "the bot is asked for the entries", func() bool {
		for _, a := range fetch(t, bot, "") {
			if a.Kind == "collect_entries" {
				collect = a
				continue
			}
			if a.Kind != "edit_giveaway" || !strings.Contains(a.Content, "being drawn") {
				t.Errorf("meanwhile the bot is asked for %+v", a)
			}
			answer(t, bot, a, there.carryOut(a)).Want(t, 200, "")
		}
		return collect.Kind != ""
	})
	if collect.GiveawayID != id || collect.ChannelID != "7002" || collect.MessageID != "1000000" {
		t.Errorf("asked for is %+v", collect)
	}
	entries(t, bot, api.Guild, id, 5).Want(t, 200, "")
	answer(t, bot, collect, `{"done":{}}`).Want(t, 200, "")
	entries(t, bot, api.Guild, id, 6).WantError(t, 422, "giveaway_not_active")
	live(t, bot, there, nil)
	testutil.Eventually(t, "the winners are announced and stand in the message", func() bool {
		return len(there.said()) == 2 && strings.Contains(there.now("1000000"), "The winners: ")
	})
	got := dbtest.Value[string](
		t,
		api.DB(),
		`SELECT concat(status, ' ', entry_count, ' ', cardinality(winners), ' ', reactions_missed) FROM giveaways`,
	)
	if got != "ended 5 2 f" {
		t.Errorf("the giveaway is %s", got)
	}
	there.mu.Lock()
	defer there.mu.Unlock()
	if there.replies["1000001"] != "1000000" {
		t.Errorf("the winners are announced in reply to %q", there.replies["1000001"])
	}
}

// Guildhall does not check whether the channel belongs to the guild; the bot does so when it is
// asked to post.
func TestAGiveawayThatTheBotDoesNotPostIsDrawnFromWhatIsThere(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.ByBot())
	bot := api.Bot(t)
	node(t, api)
	live(t, bot, newWorld(), func(a asked) bool {
		answer(t, bot, a, `{"refused":{"reason":"channel_not_allowed"}}`).Want(t, 200, `{"data":{"result":"refused"}}`)
		return true
	})
	id := giveaway(t, api, 1)
	testutil.Eventually(t, "nobody is to post it any more", func() bool {
		return dbtest.Value[int](t, api.DB(), `SELECT count(*) FROM chat_intents`) == 0 &&
			dbtest.Value[int](t, api.DB(), `SELECT count(*) FROM bot_work WHERE result = 'refused'`) == 1
	})
	entries(t, bot, api.Guild, id, 3).Want(t, 200, "")
	api.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, "")
	testutil.Eventually(t, "it is drawn", func() bool {
		return dbtest.Value[string](t, api.DB(), `SELECT concat(status, ' ', cardinality(winners)) FROM giveaways WHERE id = $1`, id) == "ended 1"
	})
}

// If the bot refuses to write the entries, the draw does not wait for them any longer.
func TestEntriesThatTheBotRefusesAreMissed(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.ByBot())
	bot, there := api.Bot(t), newWorld()
	node(t, api)
	live(t, bot, there, func(a asked) bool {
		if a.Kind == "collect_entries" {
			answer(t, bot, a, `{"refused":{"reason":"the message is gone"}}`).Want(t, 200, "")
		}
		return a.Kind == "collect_entries"
	})
	id := giveaway(t, api, 1)
	testutil.Eventually(t, "it is posted", func() bool {
		return dbtest.Value[int](t, api.DB(), `SELECT count(*) FROM giveaways WHERE message_id IS NOT NULL`) == 1
	})
	entries(t, bot, api.Guild, id, 3).Want(t, 200, "")
	api.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, "")
	testutil.Eventually(t, "it is drawn", func() bool {
		return dbtest.Value[string](
			t,
			api.DB(),
			`SELECT concat(status, ' ', cardinality(winners), ' ', reactions_missed) FROM giveaways`,
		) == "ended 1 t"
	})
}

// A request that the bot has not fetched is withdrawn when it is too late; the answer to a fetched
// request is awaited. RELIABILITY.md, Messages.
func TestAGiveawayThatIsOverBeforeTheBotHasSeenItIsNotPosted(t *testing.T) {
	t.Parallel()
	for _, seen := range []bool{false, true} {
		api := apitest.New(t, apitest.ByBot())
		bot := api.Bot(t)
		id := giveaway(t, api, 1)
		post := dbtest.Value[string](t, api.DB(), `SELECT post_id FROM giveaways`)
		if err := giveaways.Announce(background(t), api.DB(), platform(api), api.Guild, post); err != nil {
			t.Fatal(err)
		}
		if seen {
			one(t, bot, "post_giveaway")
		}
		api.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, "")
		err := giveaways.Gather(background(t), api.DB(), platform(api), api.Guild, id)
		pot := dbtest.Value[string](t, api.DB(), `SELECT pot FROM giveaways`)
		if want := map[bool]string{false: "frozen", true: "gathering"}[seen]; pot != want || seen == (err == nil) {
			t.Errorf("seen %v: the entries are %s, %v", seen, pot, err)
		}
		if left := fetch(t, bot, ""); len(left) != 0 {
			t.Errorf("seen %v: the bot is asked for %+v", seen, left)
		}
	}
}

// If the bot has posted a giveaway and answers only after its end, it is still asked for the
// entries. RELIABILITY.md, Messages.
func TestAGiveawayWhosePostIsAnsweredLateIsCollected(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.ByBot())
	bot, there := api.Bot(t), newWorld()
	node(t, api)
	id := giveaway(t, api, 1)
	late := one(t, bot, "post_giveaway")
	api.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, "")
	testutil.Eventually(t, "it is over", func() bool {
		return dbtest.Value[string](t, api.DB(), `SELECT status FROM giveaways`) == "drawing"
	})
	answer(t, bot, late, there.carryOut(late)).Want(t, 200, "")
	live(t, bot, there, func(a asked) bool {
		if a.Kind == "collect_entries" {
			entries(t, bot, a.guild, a.GiveawayID, 3).Want(t, 200, "")
		}
		return false
	})
	testutil.Eventually(t, "it is drawn from those who have entered", func() bool {
		return dbtest.Value[string](
			t,
			api.DB(),
			`SELECT concat(status, ' ', message_id, ' ', entry_count, ' ', cardinality(winners)) FROM giveaways`,
		) == "ended 1000000 3 1"
	})
}

// The message ends with the latest content, because an edit is requested only once the previous one
// is answered.
func TestEditsOfAMessageComeInOrder(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.ByBot())
	bot, there := api.Bot(t), newWorld()
	id := giveaway(t, api, 1)
	dbtest.Exec(t, api.DB(), `UPDATE giveaways SET message_id = '55', status = 'drawing', edit_at = now()`)
	there.contents["55"] = []string{"posted"}
	edit := func() {
		t.Helper()
		dbtest.Exec(t, api.DB(), `UPDATE giveaways SET edit_at = now() WHERE edit_at IS NOT NULL`)
		if err := giveaways.Edit(background(t), api.DB(), platform(api), api.Guild, id); err != nil {
			t.Error(err)
		}
	}
	edit()
	first := one(t, bot, "edit_giveaway")
	dbtest.Exec(t, api.DB(), `UPDATE giveaways SET status = 'ended', ended_at = now(), winners = '{7}', edit_at = now()`)
	edit()
	if more := fetch(t, bot, ""); len(more) != 0 {
		t.Errorf("before the first edit is over the bot is asked for %+v", more)
	}
	answer(t, bot, first, there.carryOut(first)).Want(t, 200, "")
	edit()
	second := one(t, bot, "edit_giveaway")
	answer(t, bot, second, there.carryOut(second)).Want(t, 200, "")
	edit()
	if now := there.now("55"); !strings.Contains(now, "The winner: <@7>") || second.MessageID != "55" {
		t.Errorf("the message says %s", now)
	}
	if n := dbtest.Value[int](t, api.DB(), `SELECT count(*) FROM giveaways WHERE edit_at IS NOT NULL`); n != 0 {
		t.Error("it is to be edited still")
	}
}

// Resumed and rerolled giveaways are announced like giveaways that have ended.
func TestWhatIsSaidOfAGiveawayIsSaidByTheBot(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.ByBot())
	bot, there := api.Bot(t), newWorld()
	node(t, api)
	live(t, bot, there, func(a asked) bool {
		if a.Kind == "collect_entries" {
			entries(t, bot, a.guild, a.GiveawayID, 4).Want(t, 200, "")
		}
		return false
	})
	id := giveaway(t, api, 1)
	testutil.Eventually(t, "it is posted", func() bool { return len(there.said()) == 1 })
	api.Do(t, "pauseGiveaway", "", apitest.Path("id", id)).Want(t, 200, "")
	api.Do(t, "resumeGiveaway", "", apitest.Path("id", id)).Want(t, 200, "")
	api.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, "")
	testutil.Eventually(t, "it is drawn", func() bool {
		return dbtest.Value[string](t, api.DB(), `SELECT status FROM giveaways`) == "ended"
	})
	api.Do(t, "rerollGiveaway", "", apitest.Path("id", id)).Want(t, 200, "")
	testutil.Eventually(t, "all of it is said", func() bool {
		said := there.said()
		has := func(text string) bool {
			return slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, text) })
		}
		return len(said) == 4 && has("runs on") && has("the winner is") && has("was rerolled")
	})
	if said := strings.Join(there.said(), "\n"); strings.Contains(said, "Entered by reaction") {
		t.Errorf("of entries that the bot has written is said:\n%s", said)
	}
}
