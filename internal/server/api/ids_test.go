package api_test

import (
	"encoding/json"
	"testing"

	"guildhall/internal/server/api/apitest"
)

// Ids are opaque, and records may contain any characters. Each id is found by its percent-encoded
// form, and no path is decoded twice, since one id would then name another's case.
func TestAnIdOfAnyCharactersIsFound(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	bot := api.Bot(t).In(api.Guild)
	ids := []string{"%", "50%", "%2F", "/", "%61", "a", "a/b", "..", "?", "#", "a+b", "a b", "é", "%25"}
	for _, id := range ids {
		text, err := json.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		bot.Do(t, "writeRecords", `{"records":[{"record":"case","id":`+string(text)+`,"user_id":"1","moderator_id":"2","type":"ban"},
			{"record":"ticket","id":`+string(text)+`,"opener_id":"1"}]}`).Want(t, 200, "")
	}
	for _, id := range ids {
		text, err := json.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		api.Do(t, "getCase", "", apitest.Path("id", id)).Want(t, 200, `{"data":{"id":`+string(text)+`}}`)
		api.Do(t, "createTicketMessage", `{"content":"x","internal":true}`, apitest.Path("id", id)).
			Want(t, 201, `{"data":{"ticket_id":`+string(text)+`}}`)
	}
}
