package streams_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/event"
	"guildhall/internal/server/api/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m, "Streams") }

// tell has the guilds told of what has become of streams, as the worker does.
func tell(t *testing.T, d *db.DB) {
	t.Helper()
	if err := delivery.TellStreams(t.Context(), d, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
}

// pull fetches, and returns the ids of the events.
func pull(t *testing.T, bot *apitest.API, body string) []string {
	t.Helper()
	return bot.Do(t, "pullBotEvents", body).Want(t, 200, "").All(t, "id")
}

func ack(t *testing.T, bot *apitest.API, body, want string) {
	t.Helper()
	bot.Do(t, "ackBotEvents", body).Want(t, 200, `{"data":`+want+`}`)
}

func list(ids ...string) string { return `["` + strings.Join(ids, `","`) + `"]` }

// change has the API make an event economy.balance_changed.
func change(t *testing.T, api *apitest.API) {
	t.Helper()
	api.Do(t, "adjustBalance", `{"user_id":"7","delta":1}`).Want(t, 200, "")
}

func TestABotFetchesTheEventsOfAGuildAndAcknowledgesThem(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	bot := api.Bot(t)
	bot.Do(t, "pullBotEvents", `{"stream":"mirror"}`).WantError(t, 404, "not_found")
	bot.Do(t, "putBotStream", `{"events":["economy.balance_changed"]}`, apitest.Path("name", "mirror")).
		Want(t, 200, `{"data":{"name":"mirror","events":["economy.balance_changed"],"echo":false,"fetched_at":null}}`)
	tell(t, api.DB())
	change(t, api)
	change(t, api)
	got := bot.Do(t, "pullBotEvents", `{"stream":"mirror","limit":1}`).Want(t, 200, `{"has_more":true}`).All(t, "id")
	got = append(got, bot.Do(t, "pullBotEvents", `{"stream":"mirror"}`).Want(t, 200, `{"has_more":false}`).All(t, "id")...)
	if len(got) != 2 || got[0] == got[1] {
		t.Fatalf("fetched %v", got)
	}
	if more := pull(t, bot, `{"stream":"mirror"}`); len(more) != 0 {
		t.Errorf("%v are leased, and come again", more)
	}
	ack(t, bot, `{"stream":"mirror","event_ids":`+list(got[0])+`,"return_ids":`+list(got...)+`}`, `{"settled_count":1,"returned_count":1}`)
	if again := pull(t, bot, `{"stream":"mirror"}`); len(again) != 1 || again[0] != got[1] {
		t.Errorf("given back was %s, and %v comes again", got[1], again)
	}
	ack(t, bot, `{"stream":"mirror","event_ids":`+list(got...)+`}`, `{"settled_count":1,"returned_count":0}`)
	ack(t, bot, `{"stream":"mirror","event_ids":`+list(got...)+`}`, `{"settled_count":0,"returned_count":0}`)
	bot.Do(t, "listBotStreams", "").Want(t, 200, `{"data":[{"name":"mirror"},{"name":"work","events":["work.requested"]}]}`)
	bot.Do(t, "deleteBotStream", "", apitest.Path("name", "mirror")).Want(t, 204, "")
	bot.Do(t, "pullBotEvents", `{"stream":"mirror"}`).WantError(t, 404, "not_found")
	bot.Do(t, "ackBotEvents", `{"stream":"mirror","event_ids":["x"]}`).WantError(t, 404, "not_found")
	bot.Do(t, "deleteBotStream", "", apitest.Path("name", "mirror")).WantError(t, 404, "not_found")
}

func TestTheStreamOfWorkHoldsWhatIsRecordedForIt(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	bot := api.Bot(t)
	var id string
	dbtest.Do(t, api.DB(), func(ctx context.Context, tx *db.Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		id, err = event.RecordFor(ctx, tx, event.System(api.Guild).On(now), delivery.StreamWork, event.Ping, map[string]string{"webhook_id": "w"})
		return err
	})
	if got := pull(t, bot, `{"stream":"work"}`); len(got) != 1 || got[0] != id {
		t.Errorf("recorded was %s, fetched %v", id, got)
	}
	ack(t, bot, `{"stream":"work","event_ids":`+list(id)+`}`, `{"settled_count":1}`)
	bot.Do(t, "putBotStream", `{"events":["case.created"]}`, apitest.Path("name", "work")).WantError(t, 400, "invalid_request")
	bot.Do(t, "deleteBotStream", "", apitest.Path("name", "work")).WantError(t, 400, "invalid_request")
	tell(t, api.DB())
	if got := pull(t, bot, `{"stream":"work"}`); len(got) != 0 {
		t.Errorf("what was acknowledged comes again: %v", got)
	}
}

func TestThereCanBeFourStreams(t *testing.T) {
	t.Parallel()
	bot := apitest.New(t).Bot(t)
	for _, name := range []string{"a", "b", "c", "d"} {
		bot.Do(t, "putBotStream", `{"events":["case.created"]}`, apitest.Path("name", name)).Want(t, 200, "")
	}
	bot.Do(t, "putBotStream", `{"events":["case.created"]}`, apitest.Path("name", "e")).WantError(t, 422, "stream_limit_reached")
	bot.Do(t, "putBotStream", `{"events":["case.created","case.updated","case.created"],"echo":true}`, apitest.Path("name", "a")).
		Want(t, 200, `{"data":{"events":["case.created","case.updated"],"echo":true}}`)
	bot.Do(t, "deleteBotStream", "", apitest.Path("name", "b")).Want(t, 204, "")
	bot.Do(t, "putBotStream", `{"events":["case.created"]}`, apitest.Path("name", "e")).Want(t, 200, "")
}

func TestWhatBreaksTheDocumentIsRefused(t *testing.T) {
	t.Parallel()
	bot := apitest.New(t).Bot(t)
	bot.Do(t, "listBotStreams", "", apitest.Query("page", "0")).WantError(t, 400, "invalid_request")
	for name, body := range map[string]string{
		"Mirror": `{"events":["case.created"]}`, strings.Repeat("a", 33): `{"events":["case.created"]}`,
		"none": `{"events":[]}`, "no": `{}`, "unknown": `{"events":["case.eaten"]}`, "works": `{"events":["work.requested"]}`, "ping": `{"events":["ping"]}`,
	} {
		bot.Do(t, "putBotStream", body, apitest.Path("name", name)).WantError(t, 400, "invalid_request")
	}
	for _, more := range []string{
		`,"shard":1`, `,"shard":2,"shards":2`, `,"shard":-1`, `,"shards":0`, `,"shards":65`, `,"shard":64,"shards":64`, `,"lease":9`, `,"lease":601`,
		`,"wait":21`, `,"wait":-1`, `,"limit":0`, `,"limit":101`, `,"shards":1.5`, `,"endpoint":"x"`,
	} {
		bot.Do(t, "pullBotEvents", `{"stream":"work"`+more+`}`).WantError(t, 400, "invalid_request")
	}
	for _, body := range []string{`{}`, `{"limit":5}`, `{"stream":"A"}`, `{"stream":"a b"}`, `{"stream":null}`} {
		bot.Do(t, "pullBotEvents", body).WantError(t, 400, "invalid_request")
	}
	for _, body := range []string{`{"stream":"work"}`, `{"event_ids":["x"]}`, `{"stream":"work","event_ids":[]}`, `{"stream":"work","event_ids":[""]}`} {
		bot.Do(t, "ackBotEvents", body).WantError(t, 400, "invalid_request")
	}
}
