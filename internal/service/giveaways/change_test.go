package giveaways_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/giveaways"
)

func TestUpdateGiveaway(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	for _, status := range []string{"scheduled", "active", "paused"} {
		at := apitest.Path("id", s.giveaway(status, 1, 2))
		edit := func(body string) *apitest.Response { return s.Do(t, "updateGiveaway", body, at) }
		edit(`{"prize":"A hat","description":"Blue","winner_count":2,"ends_at":"2040-01-01T00:00:00Z","host_id":"7",
			"metadata":{"desk.id":"7"},"author_id":"55"}`).
			Want(t, 200, `{"data":{"status":`+quote(status)+`,"prize":"A hat","description":"Blue","winner_count":2,"entrant_count":2,
				"ends_at":"2040-01-01T00:00:00.000Z","host_id":"7","metadata":{"desk.id":"7"}}}`)
		s.WantEvent(t, "giveaway.updated", `{"origin":{"type":"api"},"data":{"prize":"A hat","author_id":"55",
			"changed":["prize","description","winner_count","host_id","ends_at","metadata"]}}`)
		edit(`{"prize":"A hat","metadata":{"desk.id":"7"},"ends_at":"2040-01-01T00:00:00.000Z"}`).Want(t, 200, `{"data":{"prize":"A hat"}}`)
		edit(`{"description":null,"host_id":null}`).Want(t, 200, `{"data":{"description":null,"host_id":null,"winner_count":2}}`)
		s.WantEvent(t, "giveaway.updated", `{"data":{"changed":["description","host_id"],"author_id":null}}`)
		for _, body := range []string{
			`{}`, `{"author_id":"55"}`, `{"prize":null}`, `{"prize":" "}`, `{"winner_count":0}`, `{"winner_count":101}`, `{"status":"ended"}`,
			`{"ends_at":"2020-01-01T00:00:00Z"}`, `{"channel_id":"9"}`, `{"host_id":"x"}`,
		} {
			edit(body).WantError(t, 400, "invalid_request")
		}
		many := `{"metadata":{"a":"1"`
		for i := range 20 {
			many += fmt.Sprintf(`,"n%d":"1"`, i)
		}
		edit(many+`}}`).WantError(t, 422, "too_much_metadata")
	}
	for _, status := range []string{"drawing", "ended", "cancelled"} {
		at := apitest.Path("id", s.giveaway(status, 1, 2))
		s.Do(t, "updateGiveaway", `{"prize":"A hat"}`, at).WantError(t, 422, "giveaway_not_running")
	}
	at := apitest.Path("id", s.giveaway("active", 1, 2))
	s.Do(t, "updateGiveaway", `{"prize":"A hat"}`, apitest.Path("id", "nowhere")).WantError(t, 404, "not_found")
	s.Next(t).Do(t, "updateGiveaway", `{"prize":"A hat"}`, at).WantError(t, 404, "not_found")
	s.WantNoEvent(t)
}

// A scheduled giveaway cannot be made to end before it starts.
func TestTheNewEndOfAGiveawayLiesAfterItsStart(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	id := s.giveaway("scheduled", 1, 0)
	dbtest.Exec(t, s.DB(), `UPDATE giveaways SET starts_at = '2039-01-01', ends_at = '2039-02-01' WHERE id = $1`, id)
	at := apitest.Path("id", id)
	got := s.Do(t, "updateGiveaway", `{"ends_at":"2039-01-01T00:00:00Z"}`, at).WantError(t, 400, "invalid_request")
	if text := string(got.Body); !strings.Contains(text, "body /ends_at: must lie after starts_at") {
		t.Errorf("the refusal is %s", text)
	}
	s.Do(t, "updateGiveaway", `{"ends_at":"2039-01-01T00:00:00.001Z"}`, at).Want(t, 200, "")
}

// The pause moves an end that was set during the pause only by what follows.
func TestAResumeMovesTheEndByThePauseSinceTheEndWasSet(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	for _, record := range []bool{false, true} {
		id := s.giveaway("paused", 1, 0)
		at := apitest.Path("id", id)
		dbtest.Exec(t, s.DB(), `UPDATE giveaways SET paused_at = now() - interval '1 hour' WHERE id = $1`, id)
		if record {
			s.Bot(t).In(s.Guild).Do(t, "writeRecords", `{"records":[{"record":"giveaway","id":`+quote(id)+`,"ends_at":"2040-01-01T00:00:00Z"}]}`).
				Want(t, 200, `{"data":[{"result":"updated"}]}`)
		} else {
			s.Do(t, "updateGiveaway", `{"ends_at":"2040-01-01T00:00:00Z"}`, at).Want(t, 200, "")
		}
		dbtest.Exec(t, s.DB(), `
			UPDATE giveaways SET paused_at = (paused_at AT TIME ZONE 'UTC' - interval '5 minutes') AT TIME ZONE 'UTC' WHERE id = $1`, id)
		ends, err := time.Parse(time.RFC3339, s.Do(t, "resumeGiveaway", "", at).Want(t, 200, "").Str(t, "data.ends_at"))
		moved := ends.Sub(time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC))
		if err != nil || moved < 5*time.Minute || moved > 10*time.Minute {
			t.Errorf("by a record %v: the pause has moved the end by %v, %v", record, moved, err)
		}
	}
}

// A new end of a giveaway that runs leaves it without a pause, so that records still change it.
func TestARecordChangesAGiveawayAfterItsEndWasChanged(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	for _, status := range []string{"scheduled", "active"} {
		id := s.giveaway(status, 1, 0)
		s.Do(t, "updateGiveaway", `{"ends_at":"2040-01-01T00:00:00Z"}`, apitest.Path("id", id)).Want(t, 200, "")
		s.Bot(t).In(s.Guild).Do(t, "writeRecords", `{"records":[{"record":"giveaway","id":`+quote(id)+`,"prize":"A cap"}]}`).
			Want(t, 200, `{"data":[{"result":"updated"}]}`)
	}
}

func TestCancelGiveaway(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	for status, body := range map[string]string{
		"scheduled": "", "active": `{"reason":"Put off","author_id":"55"}`, "paused": `{"reason":null}`,
	} {
		id := s.giveaway(status, 1, 2)
		at := apitest.Path("id", id)
		got := s.Do(t, "cancelGiveaway", body, at).Want(t, 200, `{"data":{"status":"cancelled","entrant_count":2,"winners":[]}}`)
		if got.Str(t, "data.ended_at") != got.Str(t, "data.updated_at") {
			t.Errorf("it was cancelled at another instant: %s", got.Body)
		}
		want := `{"origin":{"type":"api"},"data":{"status":"cancelled","reason":null,"author_id":null}}`
		if status == "active" {
			want = `{"data":{"id":` + quote(id) + `,"reason":"Put off","author_id":"55"}}`
		}
		s.WantEvent(t, "giveaway.cancelled", want)
		s.Do(t, "listGiveaways", "", apitest.Query("status", "cancelled"), apitest.Query("per_page", "1")).
			Want(t, 200, `{"data":[{"id":`+quote(id)+`}]}`)
		dbtest.Exec(t, s.DB(), `UPDATE giveaways SET starts_at = '2020-01-01', ends_at = '2020-01-02' WHERE id = $1`, id)
		if err := giveaways.Transitions(context.Background(), s.DB()); err != nil {
			t.Fatal(err)
		}
		if err := giveaways.Draw(context.Background(), s.DB(), s.Guild, id); err != nil {
			t.Fatal(err)
		}
		for operation, code := range map[string]string{
			"cancelGiveaway": "giveaway_not_running", "endGiveaway": "giveaway_not_running", "pauseGiveaway": "giveaway_not_active",
			"resumeGiveaway": "giveaway_not_paused", "rerollGiveaway": "giveaway_not_ended",
		} {
			s.Do(t, operation, "", at).WantError(t, 422, code)
		}
		dbtest.Exec(t, s.DB(), `
			UPDATE giveaways SET created_at = (created_at AT TIME ZONE 'UTC' - interval '1 day') AT TIME ZONE 'UTC' WHERE id = $1`, id)
	}
	for _, status := range []string{"drawing", "ended"} {
		s.Do(t, "cancelGiveaway", "", apitest.Path("id", s.giveaway(status, 1, 2))).WantError(t, 422, "giveaway_not_running")
	}
	at := apitest.Path("id", s.giveaway("active", 1, 2))
	s.Do(t, "cancelGiveaway", `{"reason":" "}`, at).WantError(t, 400, "invalid_request")
	s.Do(t, "cancelGiveaway", "", apitest.Path("id", "nowhere")).WantError(t, 404, "not_found")
	s.Next(t).Do(t, "cancelGiveaway", "", at).WantError(t, 404, "not_found")
	s.WantNoEvent(t)
}

// The message of a giveaway that is cancelled before it was posted is not posted.
func TestTheMessageOfACancelledGiveawayIsNotPosted(t *testing.T) {
	t.Parallel()
	for _, byRecord := range []bool{false, true} {
		s, server := opened(t)
		id := s.create("A hat", 1)
		if byRecord {
			s.Bot(t).In(s.Guild).Do(t, "writeRecords", `{"records":[{"record":"giveaway","id":`+quote(id)+`,"status":"cancelled"}]}`).
				Want(t, 200, `{"data":[{"result":"updated"}]}`)
		} else {
			s.Do(t, "cancelGiveaway", "", apitest.Path("id", id)).Want(t, 200, "")
		}
		if n := dbtest.Value[int](t, s.DB(), `SELECT count(*) FROM chat_intents`); n != 0 {
			t.Errorf("by a record %v: %d messages are to be posted", byRecord, n)
		}
		if n := len(server.Messages(channel)); n != 0 {
			t.Errorf("by a record %v: %d messages were posted", byRecord, n)
		}
	}
}

// A bot cancels giveaways by records, whoever made them, but none that is being drawn or
// has ended; and nothing follows a cancellation.
func TestRecordsCancelGiveaways(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	bot := s.Bot(t).In(s.Guild)
	write := func(rest string) *apitest.Response {
		return bot.Do(t, "writeRecords", `{"records":[`+strings.TrimSuffix(rest, ",")+`]}`)
	}
	made := `{"record":"giveaway","id":"new","status":"cancelled","prize":"A hat","channel_id":"5","ends_at":"2020-01-01T00:00:00Z",
		"starts_at":"2020-01-02T00:00:00Z"},{"record":"giveaway_entry","giveaway_id":"new","user_id":"1"}`
	write(made).Want(t, 200, `{"data":[{"result":"created"},{"result":"created"}]}`)
	s.WantEvent(t, "giveaway.created", `{"data":{"status":"cancelled","entrant_count":1}}`)
	s.WantEvent(t, "giveaway.cancelled", `{"origin":{"type":"bot"},"data":{"id":"new","reason":null,"author_id":null}}`)
	for _, status := range []string{"scheduled", "active", "paused"} {
		id := quote(s.giveaway(status, 1, 2))
		write(`{"record":"giveaway","id":`+id+`,"status":"cancelled"}`).Want(t, 200, `{"data":[{"result":"updated"}]}`)
		s.WantEvent(t, "giveaway.cancelled", `{"data":{"id":`+id+`,"status":"cancelled"}}`)
		write(`{"record":"giveaway","id":`+id+`,"status":"cancelled","prize":"A prize"}`).Want(t, 200, `{"data":[{"result":"unchanged"}]}`)
		for _, next := range []string{"active", "ended", "paused", "scheduled"} {
			write(`{"record":"giveaway","id":`+id+`,"status":`+quote(next)+`}`).WantError(t, 422, "record_refused")
		}
		write(`{"record":"giveaway_entry","giveaway_id":`+id+`,"user_id":"1"}`).WantError(t, 422, "giveaway_not_active")
	}
	for _, status := range []string{"drawing", "ended"} {
		id := quote(s.giveaway(status, 1, 2))
		write(`{"record":"giveaway","id":`+id+`,"status":"cancelled"}`).WantError(t, 422, "record_refused")
	}
	s.WantNoEvent(t)
}
