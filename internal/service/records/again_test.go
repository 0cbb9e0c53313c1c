package records_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/guildfile"
)

const otherGuild = "302094807046684672"

// A refusal because the guild does not exist or is being removed is not stored under the key: the
// same call with the same key succeeds once the guild exists.
func TestACallForAGuildThatIsNotThereIsNotKept(t *testing.T) {
	t.Parallel()
	back := apitest.New(t)
	bot := back.Bot(t).In(otherGuild)
	const called = `{"record":"case","user_id":"42","moderator_id":"7","type":"note"}`
	bot.Key("k").Do(t, "writeRecords", records(called)).WantError(t, 404, "not_found")
	bot.Do(t, "writeRecords", records(`{"record":"guild","name":"Harbour"}`)).Want(t, 200, "")
	bot.Key("k").Do(t, "writeRecords", records(called)).Want(t, 200, `{"data":[{"result":"created"}]}`)
	bot.Do(t, "removeGuild", "").Want(t, 202, "")
	answer := bot.Key("l").Do(t, "writeRecords", records(called))
	if answer.WantError(t, 404, "not_found"); !bytes.Contains(answer.Body, []byte("is being removed")) {
		t.Errorf("the caller is not told that the guild is being removed: %s", answer.Body)
	}
	bot.Do(t, "writeRecords", records(`{"record":"guild"}`)).Want(t, 200, `{"data":[{"result":"updated"}]}`)
	bot.Key("l").Do(t, "writeRecords", records(called)).Want(t, 200, `{"data":[{"result":"created"}]}`)
}

// A refused guild record neither restores nor creates the guild, and without it nothing of the call
// is stored.
func TestARefusedGuildRecordTakesNoGuildBack(t *testing.T) {
	t.Parallel()
	back := apitest.New(t)
	bot := back.Bot(t).In(back.Guild)
	bot.Do(t, "removeGuild", "").Want(t, 202, "")
	call := func(guild string) string {
		return `{"on_refusal":"skip","records":[{"record":"wallet","user_id":"42","balance":7},` + guild + `]}`
	}
	bot.Do(t, "writeRecords", call(`{"record":"guild","if_updated_at":null}`)).WantError(t, 422, "record_changed")
	if leaving := dbtest.Value[int](t, back.DB(), `SELECT count(*)::int FROM guilds WHERE removed_at IS NOT NULL`); leaving != 1 {
		t.Error("the guild was taken back")
	}
	if wallets := dbtest.Value[int](t, back.DB(), `SELECT count(*)::int FROM wallets`); wallets != 0 {
		t.Error("a record of the refused call was kept")
	}
	bot.Do(t, "writeRecords", call(`{"record":"guild"}`)).Want(t, 200, `{"data":[{"result":"created"},{"result":"updated"}]}`)
}

// A record that was sent twice at once, or by a bot with a fast clock, changes nothing the second
// time: stored instants may be later than the call's beginning, and a past instant in the future is
// ignored for a stored row.
func TestInstantsThatLieAheadChangeNothing(t *testing.T) {
	t.Parallel()
	bot, back := bot(t)
	ahead := time.Now().UTC().Add(3 * time.Minute).Format(time.RFC3339)
	list := []string{
		`{"record":"guild","name":"Harbour","joined_at":"AHEAD","created_at":"AHEAD"}`,
		`{"record":"ticket","id":"t","opener_id":"42","status":"closed","closed_at":"AHEAD","created_at":"AHEAD"}`,
		`{"record":"ticket_message","ticket_id":"t","channel_message_id":"9","content":"x","created_at":"AHEAD"}`,
		`{"record":"case","id":"c","user_id":"42","moderator_id":"7","type":"note","created_at":"AHEAD"}`,
		`{"record":"giveaway","id":"g","prize":"A hat","channel_id":"5","ends_at":"2040-01-01T00:00:00Z","created_at":"AHEAD"}`,
		`{"record":"giveaway_entry","giveaway_id":"g","user_id":"42","entered_at":"AHEAD"}`,
		`{"record":"giveaway","id":"p","prize":"A hat","channel_id":"5","ends_at":"2040-01-01T00:00:00Z","status":"paused","paused_at":"AHEAD"}`,
		`{"record":"giveaway","id":"e","prize":"A hat","channel_id":"5","status":"ended","ended_at":"AHEAD"}`,
	}
	call := records(strings.ReplaceAll(strings.Join(list, ","), "AHEAD", ahead))
	bot.Do(t, "writeRecords", call).Want(t, 200, "")
	unchanged := `{"data":[` + strings.TrimSuffix(strings.Repeat(`{"result":"unchanged"},`, len(list)), ",") + `]}`
	bot.Do(t, "writeRecords", call).Want(t, 200, unchanged)
	// As if another call had made these changes after this one began.
	for _, set := range []string{
		`guilds SET joined_at = at, created_at = at`, `tickets SET closed_at = at, created_at = at`, `cases SET created_at = at`,
		`ticket_messages SET created_at = at`, `giveaway_entries SET entered_at = at`,
		`giveaways SET created_at = at, starts_at = at`,
		`giveaways SET paused_at = now() WHERE paused_at IS NOT NULL`, `giveaways SET ended_at = now() WHERE ended_at IS NOT NULL`,
	} {
		dbtest.Exec(t, back.DB(), `UPDATE `+strings.ReplaceAll(set, "= at", "= now() + interval '1 minute'"))
	}
	bot.Do(t, "writeRecords", call).Want(t, 200, unchanged)
	// A stored entry is no change, even after the draw.
	dbtest.Exec(t, back.DB(), `UPDATE giveaways SET status = 'ended', pot = 'frozen' WHERE id = 'g'`)
	bot.Do(t, "writeRecords", records(strings.ReplaceAll(list[5], "AHEAD", ahead))).Want(t, 200, `{"data":[{"result":"unchanged"}]}`)
}

// The highest number that a record may use leaves room: what follows can be exported and imported
// again.
func TestAnExportAfterTheHighestNumberIsImported(t *testing.T) {
	t.Parallel()
	bot, back := bot(t)
	const highest = `"number":4503599627370495`
	bot.Do(t, "writeRecords", records(`{"record":"case","user_id":"42","moderator_id":"7","type":"note",`+highest+`},
		{"record":"ticket","opener_id":"42",`+highest+`}`)).Want(t, 200, "")
	bot.Do(t, "writeRecords", records(`{"record":"case","user_id":"42","moderator_id":"7","type":"note"},
		{"record":"ticket","opener_id":"42"}`)).Want(t, 200, `{"data":[{"number":4503599627370496},{"number":4503599627370496}]}`)
	var file bytes.Buffer
	if err := guildfile.Export(t.Context(), back.DB(), back.Guild, &file); err != nil {
		t.Fatal(err)
	}
	if _, err := guildfile.Import(t.Context(), dbtest.New(t).DB, bytes.NewReader(file.Bytes()), nil); err != nil {
		t.Error(err)
	}
	if _, err := (guildfile.Update{}).Run(t.Context(), back.DB(), bytes.NewReader(file.Bytes()), nil); err != nil {
		t.Error(err)
	}
}
