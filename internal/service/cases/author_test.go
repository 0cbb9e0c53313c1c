package cases_test

import (
	"testing"

	"guildhall/internal/server/api/apitest"
)

// A change names its author. An author without a change is an empty edit.
func TestAChangeSaysWhoseItIs(t *testing.T) {
	t.Parallel()
	back := apitest.New(t)
	id := back.Do(t, "createCase", `{"user_id":"42","moderator_id":"7","type":"warn","reason":"r"}`).Want(t, 201, "").Str(t, "data.id")
	back.WantEvent(t, "case.created", "")
	back.Do(t, "updateCase", `{"author_id":"77"}`, apitest.Path("id", id)).WantError(t, 400, "invalid_request")
	back.Do(t, "updateCase", `{"author_id":"77","reason":"r"}`, apitest.Path("id", id)).Want(t, 200, "")
	back.WantNoEvent(t)
	back.Do(t, "updateCase", `{"author_id":"77","reason":"s"}`, apitest.Path("id", id)).Want(t, 200, "")
	back.WantEvent(t, "case.updated", `{"data":{"changed":["reason"],"author_id":"77"}}`)
	back.Do(t, "listCaseChanges", "", apitest.Path("id", id)).Want(t, 200, `{"data":[{"origin":{"type":"api"},"author_id":null,"changes":[]},
		{"author_id":"77","changes":[{"field":"reason","before":"r","after":"s"}]}]}`)
	bot := back.Bot(t).In(back.Guild)
	bot.Do(t, "writeRecords", `{"records":[{"record":"case","id":"`+id+`","status":"revoked","author_id":"78"}]}`).Want(t, 200, "")
	back.WantEvent(t, "case.updated", `{"data":{"changed":["status"],"author_id":"78"}}`)
	bot.Do(t, "writeRecords", `{"records":[{"record":"case","id":"`+id+`","author_id":"79"}]}`).
		Want(t, 200, `{"data":[{"result":"unchanged"}]}`)
	back.WantNoEvent(t)
	back.Do(t, "listCaseChanges", "", apitest.Path("id", id), apitest.Query("page", "3"), apitest.Query("per_page", "1")).
		Want(t, 200, `{"has_more":false,"data":[{"origin":{"type":"bot"},"author_id":"78",
			"changes":[{"field":"status","before":"active","after":"revoked"}]}]}`)
	bot.Do(t, "writeRecords", `{"records":[{"record":"case_change","case_id":"`+id+`","changes":[]}]}`).WantError(t, 400, "invalid_request")
	back.Do(t, "listCaseChanges", "", apitest.Path("id", "none")).WantError(t, 404, "not_found")
	back.Do(t, "listCaseChanges", "", apitest.Path("id", id), apitest.Query("page", "0")).WantError(t, 400, "invalid_request")
	back.Do(t, "listCaseChanges", "", apitest.Path("id", id), apitest.Query("per_page", "1")).Want(t, 200, `{"has_more":true,"per_page":1}`)
}
