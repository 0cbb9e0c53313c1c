package records_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/giveaways"
)

const hat = `{"record":"giveaway","id":"g","prize":"A hat","channel_id":"500","ends_at":"2040-01-01T00:00:00Z"`

// A giveaway that the bot runs goes from its creation to its winners by records alone, and can be
// rerolled from what the bot has sent.
func TestTheBotRunsAGiveawayByRecords(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	at := apitest.Path("id", "g")
	bot.Do(t, "writeRecords", records(hat+`,"status":"scheduled","starts_at":"2039-01-01T00:00:00Z","metadata":{"a":"b"}}`)).
		Want(t, 200, `{"data":[{"id":"g","result":"created"}]}`)
	bot.WantEvent(t, "giveaway.created", `{"origin":{"type":"bot"},"data":{"id":"g","status":"scheduled","metadata":{"a":"b"}}}`)
	bot.Do(t, "writeRecords", records(`{"record":"giveaway","id":"g","status":"active","prize":"Two hats","winner_count":2}`)).
		Want(t, 200, `{"data":[{"result":"updated"}]}`)
	bot.WantEvent(t, "giveaway.updated", `{"data":{"status":"active","prize":"Two hats","changed":["prize","winner_count"]}}`)
	bot.WantEvent(t, "giveaway.started", `{"data":{"status":"active","winner_count":2}}`)
	bot.Do(t, "writeRecords", records(`{"record":"giveaway","id":"g","status":"paused"}`)).Want(t, 200, "")
	bot.WantEvent(t, "giveaway.paused", "")
	bot.Do(t, "writeRecords", records(`{"record":"giveaway","id":"g","status":"active"}`)).Want(t, 200, "")
	bot.WantEvent(t, "giveaway.resumed", `{"data":{"ends_at":"2040-01-01T00:00:00.000Z"}}`)

	entry := func(user, rest string) string {
		return `{"record":"giveaway_entry","giveaway_id":"g","user_id":"` + user + `"` + rest + `}`
	}
	const entryOfAnother = `{"record":"giveaway_entry","giveaway_id":"h","user_id":"2"}`
	bot.Do(t, "writeRecords", records(strings.Replace(hat, `"g"`, `"h"`, 1)+`},`+entryOfAnother)).Want(t, 200, "")
	bot.WantEvent(t, "giveaway.created", `{"data":{"id":"h","entrant_count":1}}`)
	bot.Do(t, "writeRecords", records(entry("1", `,"entries":3`)+","+entry("2", "")+","+entry("3", "")+","+entry("4", `,"entries":0`))).
		Want(t, 200, `{"data":[{"id":"1","result":"created"},{"result":"created"},{"result":"created"},{"id":"4","result":"unchanged",
			"updated_at":null}]}`)
	bot.Do(t, "writeRecords", records(entry("1", `,"entries":5`)+","+entry("2", `,"entries":0`)+","+entry("3", ""))).
		Want(t, 200, `{"data":[{"result":"updated"},{"result":"updated"},{"result":"unchanged"}]}`)
	bot.Do(t, "getGiveaway", "", at).Want(t, 200, `{"data":{"entrant_count":2,"entry_count":6}}`)
	bot.Do(t, "writeRecords", records(entryOfAnother)).Want(t, 200, `{"data":[{"result":"unchanged"}]}`)
	bot.WantNoEvent(t)

	bot.Do(t, "endGiveaway", "", at).Want(t, 202, "")
	bot.WantEvent(t, "giveaway.drawing", "")
	if err := giveaways.Draw(context.Background(), bot.DB(), bot.Guild, "g"); err != nil {
		t.Fatal(err)
	}
	bot.Do(t, "writeRecords", records(entry("7", "")+`,{"record":"giveaway","id":"g","status":"ended","winners":["1","9"]}`)).
		Want(t, 200, `{"data":[{"result":"created"},{"result":"updated"}]}`)
	bot.WantEvent(t, "giveaway.ended",
		`{"origin":{"type":"bot"},"data":{"status":"ended","winners":["1","9"],"entrant_count":3,"entry_count":7}}`)
	bot.Do(t, "listGiveawayDraws", "", at).Want(t, 200, `{"data":[]}`)
	bot.Do(t, "writeRecords", records(entry("8", ""))).WantError(t, 422, "giveaway_not_active")
	bot.Do(t, "writeRecords", records(entry("8", `,"entries":3`))).WantError(t, 422, "giveaway_not_active")
	bot.Do(t, "writeRecords", records(entry("1", `,"entries":6`))).WantError(t, 422, "giveaway_not_active")
	bot.Do(t, "writeRecords", records(entry("1", `,"entries":0`))).WantError(t, 422, "giveaway_not_active")
	bot.Do(t, "writeRecords", records(entry("1", `,"entered_at":"2024-01-01T00:00:00Z"`))).WantError(t, 422, "giveaway_not_active")
	// A queue that repeats records that have arrived is not blocked by them.
	bot.Do(t, "writeRecords", records(entry("1", `,"entries":5`)+","+entry("3", "")+","+entry("8", `,"entries":0`))).
		Want(t, 200, `{"data":[{"result":"unchanged"},{"result":"unchanged"},{"result":"unchanged"}]}`)
	bot.Do(t, "writeRecords", records(`{"record":"giveaway","id":"g","winners":["3"]}`)).WantError(t, 422, "giveaway_not_active")
	bot.Do(t, "rerollGiveaway", `{"count":2}`, at).Want(t, 200, "")
	bot.WantEvent(t, "giveaway.rerolled", "")
	bot.Do(t, "listGiveawayDraws", "", at).
		Want(t, 200, `{"data":[{"round":2,"excluded_user_ids":[],"replaced_user_ids":["1","9"],"entry_count":2}]}`)
	bot.WantNoEvent(t)
}

// Instants are stored more precisely than they are shown: sending back an instant that was read is
// no change.
func TestTheInstantsOfAGiveawayThatAreSentAsTheyAreShownAreUnchanged(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	bot.Do(t, "writeRecords", records(hat+`,"starts_at":"2024-01-01T00:00:00Z"}`)).Want(t, 200, "")
	bot.WantEvent(t, "giveaway.created", "")
	ends := dbtest.Value[time.Time](t, bot.DB(), `SELECT ends_at FROM giveaways`)
	dbtest.Exec(t, bot.DB(), `UPDATE giveaways SET starts_at = '2024-01-01T00:00:00.000001Z', ends_at = $1`, ends.Add(time.Microsecond))
	bot.Do(t, "writeRecords", records(hat+`,"starts_at":"2024-01-01T00:00:00Z","winner_count":2}`)).
		Want(t, 200, `{"data":[{"result":"updated"}]}`)
	bot.WantEvent(t, "giveaway.updated", `{"data":{"changed":["winner_count"]}}`)
}

// A giveaway that the bot does not end within its minute is drawn from the stored entries.
func TestAGiveawayThatTheBotLeavesAloneIsDrawn(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	bot.Do(t, "writeRecords", records(hat+`},{"record":"giveaway_entry","giveaway_id":"g","user_id":"1"}`)).Want(t, 200, "")
	bot.WantEvent(t, "giveaway.created", `{"data":{"entrant_count":1}}`)
	bot.Do(t, "endGiveaway", "", apitest.Path("id", "g")).Want(t, 202, "")
	bot.WantEvent(t, "giveaway.drawing", "")
	dbtest.Exec(t, bot.DB(), `UPDATE giveaways SET `+dbtest.Earlier(`interval '1 minute'`, "drawing_at"))
	if err := giveaways.Draw(context.Background(), bot.DB(), bot.Guild, "g"); err != nil {
		t.Fatal(err)
	}
	bot.WantEvent(t, "giveaway.ended", `{"origin":{"type":"system"},"data":{"winners":["1"]}}`)
	bot.Do(t, "writeRecords", records(`{"record":"giveaway","id":"g","status":"ended","winners":["2"]}`)).
		WantError(t, 422, "giveaway_not_active")
}

// Nothing is posted about a giveaway that the bot runs: neither the winners that are drawn here,
// nor those of a reroll. A giveaway that no record has named is announced.
func TestNothingIsPostedOfAGiveawayThatTheBotRuns(t *testing.T) {
	t.Parallel()
	for _, botRuns := range []bool{true, false} {
		bot, _ := bot(t)
		bot.Do(t, "writeRecords", `{"tell":false,"records":[`+hat+`},{"record":"giveaway_entry","giveaway_id":"g","user_id":"1"},
			{"record":"giveaway_entry","giveaway_id":"g","user_id":"2"}]}`).Want(t, 200, "")
		bot.Do(t, "endGiveaway", "", apitest.Path("id", "g")).Want(t, 202, "")
		dbtest.Exec(t, bot.DB(), `UPDATE giveaways SET bot_run = $1, `+dbtest.Earlier(`interval '1 minute'`, "drawing_at"), botRuns)
		if err := giveaways.Draw(context.Background(), bot.DB(), bot.Guild, "g"); err != nil {
			t.Fatal(err)
		}
		bot.Do(t, "rerollGiveaway", "", apitest.Path("id", "g")).Want(t, 200, "")
		want := 2
		if botRuns {
			want = 0
		}
		if n := dbtest.Value[int](t, bot.DB(), `SELECT count(*) FROM chat_intents`); n != want {
			t.Errorf("the bot runs it: %t; %d messages are to be posted of it, want %d", botRuns, n, want)
		}
		for _, typ := range []string{"giveaway.drawing", "giveaway.ended", "giveaway.rerolled"} {
			bot.WantEvent(t, typ, "")
		}
	}
}

// A record can create a giveaway that is already over, with its entries, and it can be rerolled.
func TestAGiveawayOfThePastComesWithItsEntries(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	const past = `{"record":"giveaway","id":"old","prize":"A hat","channel_id":"500","status":"ended","winners":["1"],
		"created_at":"2024-01-01T00:00:00Z","ended_at":"2090-01-01T00:00:00Z"}`
	bot.Do(t, "writeRecords",
		records(past+`,{"record":"giveaway_entry","giveaway_id":"old","user_id":"1"},{"record":"giveaway_entry","giveaway_id":"old",
			"user_id":"2"}`)).Want(t, 200, "")
	bot.WantEvent(t, "giveaway.created", `{"data":{"status":"ended","winners":["1"],"entrant_count":2}}`)
	bot.WantEvent(t, "giveaway.ended", `{"data":{"status":"ended"}}`)
	bot.Do(t, "rerollGiveaway", "", apitest.Path("id", "old")).Want(t, 200, `{"data":{"winners":["2"]}}`)
	bot.WantEvent(t, "giveaway.rerolled", "")
}

func TestGiveawaysThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	bot.Do(t, "writeRecords", records(hat+`}`)).Want(t, 200, "")
	bot.WantEvent(t, "giveaway.created", "")
	for _, c := range []string{
		`{"record":"giveaway","id":"g","status":"drawing"}`,
		`{"record":"giveaway","id":"g","status":"scheduled"}`,
		`{"record":"giveaway","id":"g","winners":["1"]}`,
		`{"record":"giveaway","id":"g","ends_at":"2020-01-01T00:00:00Z","starts_at":"2021-01-01T00:00:00Z"}`,
		`{"record":"giveaway","id":"new"}`,
	} {
		bot.Do(t, "writeRecords", records(c)).WantError(t, 422, "record_refused")
	}
	bot.Do(t, "writeRecords", records(`{"record":"giveaway_entry","giveaway_id":"nowhere","user_id":"1"}`)).WantError(t, 404, "not_found")
	const most = `{"record":"giveaway_entry","giveaway_id":"g","entries":9007199254740991,"user_id":`
	bot.Do(t, "writeRecords", `{"on_refusal":"skip","records":[`+most+`"1"},`+most+`"2"}]}`).
		Want(t, 200, `{"data":[{"result":"created"},{"result":"refused","code":"record_refused"}]}`)
	bot.WantNoEvent(t)
}

// Entry records make the bot run a giveaway that an import has created, but not one that the API
// runs.
func TestEntriesLeaveOnlyWhatTheAPIDoesNotRunToTheBot(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	for id, c := range map[string]struct {
		source string
		left   bool
	}{"a": {"api", false}, "i": {"bot", true}} {
		bot.Do(t, "writeRecords", records(strings.Replace(hat, `"g"`, `"`+id+`"`, 1)+`}`)).Want(t, 200, "")
		dbtest.Exec(t, bot.DB(), `UPDATE giveaways SET source = $2, bot_run = false WHERE id = $1`, id, c.source)
		bot.Do(t, "writeRecords", records(`{"record":"giveaway_entry","giveaway_id":"`+id+`","user_id":"1"}`)).
			Want(t, 200, `{"data":[{"result":"created"}]}`)
		if left := dbtest.Value[bool](t, bot.DB(), `SELECT bot_run FROM giveaways WHERE id = $1`, id); left != c.left {
			t.Errorf("a giveaway of source %s is the bot's to run: %t", c.source, left)
		}
	}
}

// A giveaway in drawing accepts no entry, not even together with a change of the giveaway.
func TestAGiveawayThatIsDrawnTakesNoEntryWithAChange(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	bot.Do(t, "writeRecords", records(hat+`}`)).Want(t, 200, "")
	dbtest.Exec(t, bot.DB(), `UPDATE giveaways SET bot_run = false`)
	bot.Do(t, "endGiveaway", "", apitest.Path("id", "g")).Want(t, 202, "")
	const change, entry = `{"record":"giveaway","id":"g","prize":"Two hats"}`, `{"record":"giveaway_entry","giveaway_id":"g","user_id":"1"}`
	bot.Do(t, "writeRecords", records(change+","+entry)).WantError(t, 422, "giveaway_not_active")
	bot.Do(t, "writeRecords", records(change)).Want(t, 200, `{"data":[{"result":"updated"}]}`)
	bot.Do(t, "writeRecords", records(`{"record":"giveaway","id":"g","status":"ended"},`+entry)).Want(t, 200, "")
}
