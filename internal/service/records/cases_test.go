package records_test

import (
	"strings"
	"testing"

	"guildhall/internal/server/api/apitest"
)

func TestACaseIsMadeChangedAndDeletedByRecords(t *testing.T) {
	t.Parallel()
	bot, back := bot(t)
	made := bot.Do(t, "writeRecords", records(`
		{"record":"case","id":"ban","user_id":"42","moderator_id":"7","type":"ban","reason":"x","status":"revoked",
			"created_at":"2024-01-02T03:04:05Z"},
		{"record":"case","number":9,"user_id":"42","moderator_id":"7","type":"mute","expires_at":"2040-01-01T00:00:00Z",
			"created_at":"2090-01-01T00:00:00Z","metadata":{"a":"b"}},
		{"record":"case","user_id":"42","moderator_id":"7","type":"kick"}`)).
		Want(t, 200, `{"data":[{"record":"case","id":"ban","number":10,"result":"created"},{"number":9,"result":"created"},{"number":11,
			"result":"created"}]}`)
	bot.WantEvent(t, "case.created",
		`{"origin":{"type":"bot"},"data":{"id":"ban","number":10,"type":"ban","status":"revoked","source":"bot",
			"created_at":"2024-01-02T03:04:05.000Z"}}`)
	bot.WantEvent(t, "case.created", `{"data":{"number":9,"type":"mute","metadata":{"a":"b"},"expires_at":"2040-01-01T00:00:00.000Z"}}`)
	bot.WantEvent(t, "case.created", `{"data":{"number":11,"type":"kick","reason":"","status":"active"}}`)
	back.Do(t, "createCase", `{"user_id":"42","moderator_id":"7","type":"note","reason":"x"}`).Want(t, 201, `{"data":{"number":12}}`)
	bot.WantEvent(t, "case.created", "")
	mute := made.All(t, "id")[1]

	at := bot.Do(t, "writeRecords",
		records(`{"record":"case","id":"`+mute+`","status":"expired","expires_at":null,"user_id":"43","metadata":{"a":null,"c":""},
		"source":"api","created_at":"2020-01-01T00:00:00Z","updated_at":"2020-01-01T00:00:00Z"}`)).
		Want(t, 200, `{"data":[{"result":"updated","number":9}]}`).All(t, "updated_at")[0]
	bot.WantEvent(t, "case.updated",
		`{"timestamp":"`+at+`","data":{"id":"`+mute+`","updated_at":"`+at+`","source":"bot","expires_at":null,"metadata":{"c":""},
		"changed":["user_id","status","expires_at","metadata"]}}`)
	bot.Do(t, "writeRecords", records(`{"record":"case","id":"`+mute+`","status":"expired","reason":""}`)).
		Want(t, 200, `{"data":[{"result":"unchanged","updated_at":"`+at+`"}]}`)
	bot.Do(t, "writeRecords", records(`{"record":"case","id":"`+mute+`","status":"deleted"}`)).Want(t, 200, `{"data":[{"result":"updated"}]}`)
	bot.WantEvent(t, "case.updated", `{"data":{"status":"deleted","changed":["status"]}}`)
	bot.Do(t, "writeRecords", records(`{"record":"case","id":"`+mute+`","status":"active"}`)).WantError(t, 422, "case_deleted")
	bot.Do(t, "writeRecords", records(`{"record":"case","id":"`+mute+`","status":"deleted"}`)).
		Want(t, 200, `{"data":[{"result":"unchanged"}]}`)
	bot.Do(t, "writeRecords", `{"tell":false,"records":[{"record":"case","id":"ban","reason":"y"}]}`).
		Want(t, 200, `{"data":[{"result":"updated"}]}`)
	bot.WantNoEvent(t)
}

// Instants are stored more precisely than they are shown: sending back an instant that was read is
// no change.
func TestAnExpiryThatIsSentAsItIsShownIsUnchanged(t *testing.T) {
	t.Parallel()
	bot, back := bot(t)
	made := back.Do(t, "createCase",
		`{"user_id":"42","moderator_id":"7","type":"warn","reason":"x","expires_at":"2040-01-02T03:04:05.123456Z"}`)
	id, at := made.Str(t, "data.id"), made.Str(t, "data.updated_at")
	bot.WantEvent(t, "case.created", "")
	shown := `"expires_at":"` + made.Str(t, "data.expires_at") + `"`
	back.Do(t, "updateCase", `{`+shown+`}`, apitest.Path("id", id)).Want(t, 200, `{"data":{"updated_at":"`+at+`"}}`)
	bot.WantNoEvent(t)
	bot.Do(t, "writeRecords", records(`{"record":"case","id":"`+id+`","status":"revoked",`+shown+`}`)).
		Want(t, 200, `{"data":[{"result":"updated"}]}`)
	bot.WantEvent(t, "case.updated", `{"data":{"changed":["status"]}}`)
}

func TestCasesThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	bot, back := bot(t)
	back.Do(t, "createCase", `{"user_id":"42","moderator_id":"7","type":"note","reason":"x"}`).Want(t, 201, `{"data":{"number":1}}`)
	bot.WantEvent(t, "case.created", "")
	const head = `{"record":"case","user_id":"42","moderator_id":"7","type":"note"`
	for body, message := range map[string]string{
		head + `,"number":1}`: "body /records/1/number: ",
		`{"record":"case","user_id":"42","moderator_id":"7"}`: "body /records/1/type: ",
	} {
		got := bot.Do(t, "writeRecords", records(head+`},`+body)).WantError(t, 422, "record_refused")
		if !strings.Contains(string(got.Body), message) {
			t.Errorf("%s: %s", body, got.Body)
		}
	}
	var long []string
	for _, name := range strings.Split("abcdefghijklmnopqrst", "") {
		long = append(long, `"`+name+`":"`+strings.Repeat("x", 500)+`"`)
	}
	bot.Do(t, "writeRecords", records(head+`,"metadata":{`+strings.Join(long, ",")+`}}`)).WantError(t, 422, "too_much_metadata")
	// Only the content of a message may be blank: a guild file could not import other blank texts.
	bot.Do(t, "writeRecords", records(head+`,"metadata":{"content":" "}}`)).WantError(t, 400, "invalid_request")
	bot.WantNoEvent(t)
	back.Do(t, "listCases", "", apitest.Query("number", "2")).Want(t, 200, `{"data":[]}`)
}

// A number in a record must leave room for later numbers: responses and guild files have no number
// above 9007199254740991.
func TestANumberLeavesRoomForThoseThatFollow(t *testing.T) {
	t.Parallel()
	bot, back := bot(t)
	const named = `{"record":"case","user_id":"42","moderator_id":"7","type":"note","number":`
	const opened = `{"record":"ticket","opener_id":"42","number":`
	for _, head := range []string{named, opened} {
		bot.Do(t, "writeRecords", records(head+`9007199254740991}`)).WantError(t, 400, "invalid_request")
	}
	bot.Do(t, "writeRecords", records(named+`4503599627370495},`+opened+`4503599627370495}`)).Want(t, 200, "")
	bot.WantEvent(t, "case.created", "")
	bot.WantEvent(t, "ticket.opened", "")
	back.Do(t, "createCase", `{"user_id":"42","moderator_id":"7","type":"note","reason":"x"}`).
		Want(t, 201, `{"data":{"number":4503599627370496}}`)
}
