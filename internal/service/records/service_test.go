package records_test

import (
	"strings"
	"sync"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m, "Records") }

const (
	one = "190320984123768832"
	two = "172002275412279296"
)

// bot returns a client with a bot key, and back, a client with the first token of the same guild.
func bot(t *testing.T) (bot, back *apitest.API) {
	t.Helper()
	back = apitest.New(t)
	return back.Bot(t).In(back.Guild), back
}

func records(list string) string { return `{"records":[` + list + `]}` }

func TestAWalletIsMadeChangedAndLeftAsItIs(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	made := bot.Do(t, "writeRecords",
		records(`{"record":"wallet","user_id":"`+one+`","balance":7},{"record":"wallet","user_id":"`+two+`","balance":0}`)).
		Want(t, 200, `{"data":[{"record":"wallet","id":"`+one+`","number":null,"result":"created"},{"record":"wallet","id":"`+two+`",
			"result":"created"}]}`)
	bot.WantEvent(t, "economy.balance_changed",
		`{"origin":{"type":"bot"},"data":{"user_id":"`+one+`","balance":7,"previous_balance":0,"delta":7,"reason":null,"reference":null}}`)
	bot.WantNoEvent(t) // creating a wallet with a balance of 0 records none
	at := made.All(t, "updated_at")[0]
	bot.Do(t, "writeRecords", records(`{"record":"wallet","user_id":"`+one+`","balance":7}`)).
		Want(t, 200, `{"data":[{"result":"unchanged","updated_at":"`+at+`"}]}`)
	bot.WantNoEvent(t)
	set := records(`{"record":"wallet","user_id":"` + one + `","balance":5,"if_updated_at":"` + at + `"}`)
	changed := bot.Do(t, "writeRecords", set).Want(t, 200, `{"data":[{"result":"updated"}]}`).All(t, "updated_at")[0]
	bot.WantEvent(t, "economy.balance_changed", `{"timestamp":"`+changed+`","data":{"balance":5,"previous_balance":7,"delta":-2}}`)
	bot.Do(t, "getWallet", "", apitest.Path("userId", one)).Want(t, 200, `{"data":{"balance":5,"updated_at":"`+changed+`"}}`)
	bot.Do(t, "writeRecords", set).WantError(t, 422, "record_changed")
}

func TestAWalletThatIsThereIsSetWithItsInstantAlone(t *testing.T) {
	t.Parallel()
	bot, back := bot(t)
	back.Do(t, "adjustBalance", `{"user_id":"`+one+`","delta":7}`).Want(t, 200, "")
	set := `{"record":"wallet","user_id":"` + one + `","balance":8}`
	bot.Do(t, "writeRecords", records(set)).WantError(t, 422, "record_changed")
	bot.Do(t, "writeRecords", `{"on_refusal":"skip","records":[{"record":"level","user_id":"`+one+`","total_xp":3},`+set+`]}`).
		Want(t, 200, `{"data":[{"result":"created"},{"record":"wallet","id":"`+one+`","result":"refused","code":"record_changed"}]}`)
	bot.Do(t, "getWallet", "", apitest.Path("userId", one)).Want(t, 200, `{"data":{"balance":7}}`)
}

func TestXPIsSetAndALevelThatRisesIsTold(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	at := bot.Do(t, "writeRecords", records(`{"record":"level","user_id":"`+one+`","total_xp":50}`)).Want(t, 200, "").All(t, "updated_at")[0]
	bot.WantNoEvent(t)
	bot.Do(t, "writeRecords", records(`{"record":"level","user_id":"`+one+`","total_xp":255,"if_updated_at":"`+at+`"}`)).Want(t, 200, "")
	bot.WantEvent(t, "xp.level_up", `{"data":{"user_id":"`+one+`","level":2,"previous_level":0,"total_xp":255}}`)
}

func TestAThingStandsOnceInACall(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	twice := `{"record":"wallet","user_id":"` + one + `","balance":1}`
	bot.Do(t, "writeRecords", records(twice+","+twice)).
		Want(t, 400, `{"error":{"code":"invalid_request","message":"body /records/1: what it names stands in this call already"}}`)
}

func TestANewThingNeedsItsMembers(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	bot.Do(t, "writeRecords", records(`{"record":"wallet","user_id":"`+one+`"}`)).
		Want(t, 422, `{"error":{"code":"record_refused","message":"body /records/0/balance: is required of what is new"}}`)
}

// The result of a refused record contains the id that the record names, or none: nothing was
// created.
func TestARefusedRecordIsAnsweredWithTheIDThatItNames(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	for record, want := range map[string]string{
		`{"record":"ticket","opener_id":"1","close_reason":"x"}`:                                 `null`,
		`{"record":"ticket","id":"mine","opener_id":"1","close_reason":"x"}`:                     `"mine"`,
		`{"record":"giveaway","prize":"p","channel_id":"7","ended_at":"2024-01-01T00:00:00Z"}`:   `null`,
		`{"record":"ticket_message","ticket_id":"none","content":"x"}`:                           `null`,
		`{"record":"ticket_message","ticket_id":"t","id":"m","content":"x"}`:                     `"m"`,
		`{"record":"case","id":"c","user_id":"1"}`:                                               `"c"`,
		`{"record":"wallet","user_id":"` + one + `"}`:                                            `"` + one + `"`,
		`{"record":"level","user_id":"` + one + `"}`:                                             `"` + one + `"`,
		`{"record":"giveaway_entry","giveaway_id":"none","user_id":"` + one + `"}`:               `"` + one + `"`,
		`{"record":"reference","reference":"r","if_updated_at":null},{"record":"case","id":"c"}`: `"r"},{"id":"c"`,
	} {
		bot.Do(t, "writeRecords", `{"on_refusal":"skip","records":[`+record+`]}`).Want(t, 200, `{"data":[{"id":`+want+`}]}`)
	}
}

func TestAGuildThatIsNotThereIsNotFound(t *testing.T) {
	t.Parallel()
	back := apitest.New(t)
	absent := back.Bot(t).In("5").Do(t, "writeRecords", records(`{"record":"wallet","user_id":"`+one+`","balance":1}`)).
		WantError(t, 404, "not_found")
	for _, want := range []string{"There is no guild 5.", `{"records":[{"record":"guild"}]}`, "Send that record first, or in the same call."} {
		if got := absent.Str(t, "error.message"); !strings.Contains(got, want) {
			t.Errorf("of a guild that does not exist is said %q, want %q in it", got, want)
		}
	}
}

func TestAReferenceIsUsedByARecord(t *testing.T) {
	t.Parallel()
	bot, back := bot(t)
	bot.Do(t, "writeRecords", records(`{"record":"reference","reference":"daily-1"}`)).
		Want(t, 200, `{"data":[{"id":"daily-1","updated_at":null,"result":"created"}]}`)
	bot.Do(t, "writeRecords", records(`{"record":"reference","reference":"daily-1"}`)).Want(t, 200, `{"data":[{"result":"unchanged"}]}`)
	back.Do(t, "adjustBalance", `{"user_id":"1","delta":1,"reference":"daily-1"}`).WantError(t, 422, "reference_already_used")
}

func TestALevelThatFallsIsTold(t *testing.T) {
	t.Parallel()
	bot, back := bot(t)
	back.Do(t, "adjustXp", `{"user_id":"`+one+`","total_xp":255}`).Want(t, 200, "")
	back.WantEvent(t, "xp.level_up", `{"data":{"level":2}}`)
	back.Do(t, "adjustXp", `{"user_id":"`+one+`","delta":-100}`).Want(t, 200, "")
	back.WantEvent(t, "xp.level_down", `{"origin":{"type":"api"},"data":{"user_id":"`+one+`","level":1,"previous_level":2,"total_xp":155}}`)
	at := bot.Do(t, "getLevelRecord", "", apitest.Path("userId", one)).Str(t, "data.updated_at")
	bot.Do(t, "writeRecords", records(`{"record":"level","user_id":"`+one+`","total_xp":0,"if_updated_at":"`+at+`"}`)).Want(t, 200, "")
	bot.WantEvent(t, "xp.level_down", `{"origin":{"type":"bot"},"data":{"level":0,"previous_level":1}}`)
	bot.WantNoEvent(t)
}

// A bot that is removed and comes back within a day may send the same key. The stored response,
// that the guild was created, is not replayed, since the guild would then be deleted unnoticed.
func TestAKeyDoesNotAnswerForAGuildThatHasLeft(t *testing.T) {
	t.Parallel()
	back := apitest.New(t)
	bot := back.Bot(t).In("77")
	joined := records(`{"record":"guild"},{"record":"wallet","user_id":"` + one + `","balance":3}`)
	var racing sync.WaitGroup
	for range 6 {
		racing.Go(func() {
			bot.Key("joined").Do(t, "writeRecords", joined).Want(t, 200, `{"data":[{"result":"created"},{"result":"created"}]}`)
		})
	}
	racing.Wait()
	bot.Do(t, "removeGuild", "").Want(t, 202, "")
	got := bot.Key("joined").Do(t, "writeRecords", joined).WantError(t, 404, "not_found").Str(t, "error.message")
	if !strings.Contains(got, "being removed") || !strings.Contains(got, "send another key") {
		t.Errorf("the message is %q", got)
	}
	bot.Key("joined-again").Do(t, "writeRecords", joined).Want(t, 200, `{"data":[{"result":"updated"},{"result":"unchanged"}]}`)
	bot.Key("joined").Do(t, "writeRecords", joined).Want(t, 200, `{"data":[{"result":"created"},{"result":"created"}]}`)
}

func TestAGuildThatLeavesIsTakenBackByItsRecord(t *testing.T) {
	t.Parallel()
	bot, back := bot(t)
	leave := func(after string) {
		dbtest.Exec(t, back.DB(),
			`UPDATE guilds SET removed_at = now() - interval '9 days', removed_after = now() + $2::interval WHERE id = $1`, back.Guild, after)
	}
	leave("1 day")
	bot.Do(t, "writeRecords", records(`{"record":"wallet","user_id":"`+one+`","balance":1}`)).WantError(t, 404, "not_found")
	bot.Do(t, "writeRecords", records(`{"record":"wallet","user_id":"`+one+`","balance":1},{"record":"guild"}`)).
		Want(t, 200, `{"data":[{"result":"created"},{"result":"updated"}]}`)
	bot.Do(t, "getWallet", "", apitest.Path("userId", one)).Want(t, 200, `{"data":{"balance":1}}`)
	leave("-1 day")
	bot.Do(t, "writeRecords", records(`{"record":"guild","name":"Again"}`)).WantError(t, 409, "guild_being_removed")
}
