package giveaways_test

import (
	"context"
	"strconv"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/giveaways"
)

func TestDisqualifyFromGiveaway(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	for _, status := range []string{"scheduled", "active", "paused"} {
		at := apitest.Path("id", s.giveaway(status, 1, 3)) // with 1, 2 and 3 entries
		call := func(body string) *apitest.Response { return s.Do(t, "disqualifyFromGiveaway", body, at) }
		call(`{"user_ids":["1002","7","1002"],"author_id":"55"}`).
			Want(t, 200, `{"data":{"status":`+quote(status)+`,"entrant_count":2,"entry_count":4}}`)
		s.WantEvent(t, "giveaway.updated", `{"data":{"entrant_count":2,"changed":["disqualified"],"author_id":"55"}}`)
		call(`{"user_ids":["7"],"undo":false}`).Want(t, 200, `{"data":{"entrant_count":2}}`)
		s.Do(t, "listGiveawayEntries", "", at, apitest.Query("user_id", "1002")).Want(t, 200, `{"data":[]}`)
		s.Do(t, "listDisqualifications", "", at).
			Want(t, 200, `{"data":[{"user_id":"7"},{"user_id":"1002"}],"page":1,"per_page":25,"has_more":false}`)
		s.Do(t, "listDisqualifications", "", at, apitest.Query("per_page", "1"), apitest.Query("page", "2")).
			Want(t, 200, `{"data":[{"user_id":"1002"}],"has_more":false}`)
		call(`{"user_ids":["7","8"],"undo":true}`).Want(t, 200, `{"data":{"entrant_count":2}}`)
		s.WantEvent(t, "giveaway.updated", `{"data":{"changed":["disqualified"],"author_id":null}}`)
		call(`{"user_ids":["7"],"undo":true}`).Want(t, 200, "")
		s.Do(t, "listDisqualifications", "", at).Want(t, 200, `{"data":[{"user_id":"1002"}]}`)
		for _, body := range []string{`{}`, `{"user_ids":[]}`, `{"user_ids":["x"]}`, `{"user_ids":null}`, `{"user_ids":["1"],"undo":1}`} {
			call(body).WantError(t, 400, "invalid_request")
		}
	}
	for _, status := range []string{"drawing", "ended", "cancelled"} {
		s.Do(t, "disqualifyFromGiveaway", `{"user_ids":["7"]}`, apitest.Path("id", s.giveaway(status, 1, 2))).
			WantError(t, 422, "giveaway_not_running")
	}
	at := apitest.Path("id", s.giveaway("active", 1, 2))
	s.Do(t, "listDisqualifications", "", at, apitest.Query("page", "0")).WantError(t, 400, "invalid_request")
	for operation, body := range map[string]string{"disqualifyFromGiveaway": `{"user_ids":["7"]}`, "listDisqualifications": ""} {
		s.Do(t, operation, body, apitest.Path("id", "nowhere")).WantError(t, 404, "not_found")
		s.Next(t).Do(t, operation, body, at).WantError(t, 404, "not_found")
	}
	s.WantNoEvent(t)
}

func TestAtMostAThousandAreDisqualified(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	id := s.giveaway("active", 1, 2)
	at := apitest.Path("id", id)
	dbtest.Exec(t, s.DB(), `
		INSERT INTO giveaway_disqualified (guild_id, giveaway_id, user_id)
		SELECT $1, $2, (5000 + n)::text FROM generate_series(1, 999) n`, s.Guild, id)
	s.Do(t, "disqualifyFromGiveaway", `{"user_ids":["1001","1002"]}`, at).WantError(t, 422, "too_many_disqualified")
	s.Do(t, "disqualifyFromGiveaway", `{"user_ids":["5001","1002"]}`, at).Want(t, 200, `{"data":{"entrant_count":1}}`)
	s.WantEvent(t, "giveaway.updated", "")
}

// Records bring no entries of a disqualified member, and take no entry out of a giveaway that
// the API made.
func TestRecordsDoNotBringBackWhoIsDisqualified(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	bot := s.Bot(t).In(s.Guild)
	id := s.giveaway("active", 1, 2)
	at := apitest.Path("id", id)
	write := func(user, rest string) *apitest.Response {
		return bot.Do(t, "writeRecords", `{"records":[{"record":"giveaway_entry","giveaway_id":`+quote(id)+`,"user_id":`+quote(user)+rest+`}]}`)
	}
	s.Do(t, "disqualifyFromGiveaway", `{"user_ids":["1001","9"]}`, at).Want(t, 200, "")
	for _, rest := range []string{"", `,"entries":5`, `,"entries":0`} {
		write("1001", rest).Want(t, 200, `{"data":[{"id":"1001","result":"unchanged"}]}`)
	}
	write("9", "").Want(t, 200, `{"data":[{"result":"unchanged"}]}`)
	s.Do(t, "getGiveaway", "", at).Want(t, 200, `{"data":{"entrant_count":1,"entry_count":2}}`)
	s.Do(t, "disqualifyFromGiveaway", `{"user_ids":["9"],"undo":true}`, at).Want(t, 200, "")
	write("9", "").Want(t, 200, `{"data":[{"result":"created"}]}`)
	write("9", `,"entries":0`).Want(t, 200, `{"data":[{"result":"updated"}]}`)
	dbtest.Exec(t, s.DB(), `UPDATE giveaways SET source = 'api'`)
	for _, user := range []string{"1001", "1002", "9"} {
		write(user, `,"entries":0`).WantError(t, 422, "record_refused")
	}
	bot.Do(t, "writeRecords", `{"records":[{"record":"disqualification","giveaway_id":`+quote(id)+`,"user_id":"9"}]}`).
		WantError(t, 400, "invalid_request")
}

// A disqualified member who reacts, or has reacted, gets no entry when the reactions are read.
// RELIABILITY.md, Giveaways.
func TestReactionsDoNotBringBackWhoIsDisqualified(t *testing.T) {
	t.Parallel()
	s, server := opened(t)
	platform := discord(t, server.URL)
	stop := s.work(platform)
	id := s.create("A hat", 3)
	message := s.message(server, id)
	stop()
	for n := range 3 {
		server.React(channel, message, party, strconv.Itoa(3000+n))
	}
	at := apitest.Path("id", id)
	s.Do(t, "disqualifyFromGiveaway", `{"user_ids":["3001"]}`, at).Want(t, 200, "")
	s.Do(t, "endGiveaway", "", at).Want(t, 202, "")
	if err := giveaways.Gather(context.Background(), s.DB(), platform, s.Guild, id); err != nil {
		t.Fatal(err)
	}
	if err := giveaways.Draw(context.Background(), s.DB(), s.Guild, id); err != nil {
		t.Fatal(err)
	}
	got := s.Do(t, "getGiveaway", "", at).Want(t, 200, `{"data":{"status":"ended","entrant_count":2,"entry_count":2}}`)
	if won := s.winners(got); len(won) != 2 || won[0] == "3001" || won[1] == "3001" {
		t.Errorf("the winners are %v", won)
	}
	if n := dbtest.Value[int](t, s.DB(), `SELECT reaction_count FROM giveaways`); n != 2 {
		t.Errorf("%d reactions are counted, want 2", n)
	}
}
