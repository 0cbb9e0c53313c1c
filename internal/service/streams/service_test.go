package streams_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/event"
	"guildhall/internal/server/api/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m, "Streams") }

// tell runs the backfill of changed streams, as a worker does.
func tell(t *testing.T, d *db.DB) {
	t.Helper()
	if err := delivery.BackfillStreams(t.Context(), d, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
}

// pull fetches events and returns their ids.
func pull(t *testing.T, bot *apitest.API, body string) []string {
	t.Helper()
	return bot.Do(t, "pullBotEvents", body).Want(t, 200, "").All(t, "id")
}

func ack(t *testing.T, bot *apitest.API, body, want string) {
	t.Helper()
	bot.Do(t, "ackBotEvents", body).Want(t, 200, `{"data":`+want+`}`)
}

func list(ids ...string) string { return `["` + strings.Join(ids, `","`) + `"]` }

// change causes an event economy.balance_changed through the API.
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
	keyed := bot.Key("k") // an idempotency key has no effect on a fetch
	got := keyed.Do(t, "pullBotEvents", `{"stream":"mirror","limit":1}`).Want(t, 200, `{"has_more":true}`).All(t, "id")
	got = append(got, keyed.Do(t, "pullBotEvents", `{"stream":"mirror","limit":1}`).Want(t, 200, `{"has_more":false}`).All(t, "id")...)
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
	ack(t, bot, `{"stream":"mirror","event_ids":`+list(got...)+`,"return_ids":[]}`, `{"settled_count":1,"returned_count":0}`)
	ack(t, bot, `{"stream":"mirror","event_ids":`+list(got...)+`}`, `{"settled_count":0,"returned_count":0}`)
	bot.Do(t, "listBotStreams", "").Want(t, 200, `{"data":[{"name":"mirror"},{"name":"work","events":["work.requested"]}]}`)
	bot.Do(t, "deleteBotStream", "", apitest.Path("name", "mirror")).Want(t, 204, "")
	bot.Do(t, "pullBotEvents", `{"stream":"mirror"}`).WantError(t, 404, "not_found")
	bot.Do(t, "ackBotEvents", `{"stream":"mirror","event_ids":["x"]}`).WantError(t, 404, "not_found")
	bot.Do(t, "deleteBotStream", "", apitest.Path("name", "mirror")).WantError(t, 404, "not_found")
}

// A bot key of named guilds may list streams, pull and acknowledge, but may neither change nor
// delete a stream, since a stream spans all guilds.
func TestAKeyOfNamedGuildsChangesNoStream(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	wide, narrow := api.Bot(t), api.Bot(t, api.Guild)
	body := `{"events":["economy.balance_changed"]}`
	for _, name := range []string{"mirror", "work"} {
		narrow.Do(t, "putBotStream", body, apitest.Path("name", name)).
			WantError(t, 403, "insufficient_scope").Want(t, 403, `{"error":{"required_scope":"bot"}}`)
	}
	wide.Do(t, "putBotStream", body, apitest.Path("name", "mirror")).Want(t, 200, "")
	refused := narrow.Do(t, "deleteBotStream", "", apitest.Path("name", "mirror")).WantError(t, 403, "insufficient_scope")
	if text := refused.Str(t, "error.message"); !strings.Contains(text, "belongs to all of them") ||
		!strings.Contains(text, "guildhall stream") {
		t.Errorf("the message is %q", text)
	}
	tell(t, api.DB())
	change(t, api)
	narrow.Do(t, "listBotStreams", "").Want(t, 200, `{"data":[{"name":"mirror"},{"name":"work"}]}`)
	events := pull(t, narrow, `{"stream":"mirror"}`)
	ack(t, narrow, `{"stream":"mirror","event_ids":`+list(events...)+`}`, `{"settled_count":1}`)
}

// Two streams store an event separately: if one acknowledges it or returns it, the other still has
// it under its own lease.
func TestAnEventIsAcknowledgedForOneStream(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	bot := api.Bot(t)
	for _, name := range []string{"one", "other"} {
		bot.Do(t, "putBotStream", `{"events":["economy.balance_changed"]}`, apitest.Path("name", name)).Want(t, 200, "")
	}
	tell(t, api.DB())
	change(t, api)
	change(t, api)
	events := pull(t, bot, `{"stream":"one"}`)
	if same := pull(t, bot, `{"stream":"other"}`); len(events) != 2 || !slices.Equal(same, events) {
		t.Fatalf("fetched %v and %v", events, same)
	}
	ack(t, bot, `{"stream":"one","event_ids":`+list(events[0])+`,"return_ids":`+list(events[1])+`}`, `{"settled_count":1,"returned_count":1}`)
	if again := pull(t, bot, `{"stream":"other"}`); len(again) != 0 {
		t.Errorf("given back by one stream, %v comes of the other", again)
	}
	ack(t, bot, `{"stream":"other","event_ids":`+list(events...)+`}`, `{"settled_count":2,"returned_count":0}`)
	if again := pull(t, bot, `{"stream":"one"}`); !slices.Equal(again, events[1:]) {
		t.Errorf("settled in the other, %v comes again, want %v", again, events[1:])
	}
}

// A stream stores the event types that it asks for. An event of another type is not stored if
// nobody else listens.
func TestAStreamHoldsWhatItWants(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	bot := api.Bot(t)
	bot.Do(t, "putBotStream", `{"events":["member.forgotten"]}`, apitest.Path("name", "mirror")).Want(t, 200, "")
	tell(t, api.DB())
	change(t, api)
	api.Do(t, "createCase", `{"user_id":"7","moderator_id":"8","type":"note","reason":"kept"}`).Want(t, 201, "")
	record(t, api.DB(), auth.System(api.Guild))
	got := bot.Do(t, "pullBotEvents", `{"stream":"mirror"}`).Want(t, 200, "").All(t, "type")
	if !slices.Equal(got, []string{"member.forgotten"}) {
		t.Errorf("fetched %v", got)
	}
	if n := dbtest.Value[int](t, api.DB(), `SELECT count(*) FROM webhook_events`); n != 1 {
		t.Errorf("%d events are stored, want 1", n)
	}
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
	refused := `{"error":{"message":"path name: the stream work is there by itself, and is neither changed nor deleted"}}`
	bot.Do(t, "putBotStream", `{"events":["case.created"]}`, apitest.Path("name", "work")).Want(t, 400, refused)
	bot.Do(t, "deleteBotStream", "", apitest.Path("name", "work")).Want(t, 400, refused)
	tell(t, api.DB())
	if got := pull(t, bot, `{"stream":"work"}`); len(got) != 0 {
		t.Errorf("what was acknowledged comes again: %v", got)
	}
}

// record causes an event of a guild, made by the service or by another caller.
func record(t *testing.T, d *db.DB, by auth.By) {
	t.Helper()
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		return event.Record(ctx, tx, event.From(by).On(now), event.MemberForgotten, map[string]string{"user_id": "7"})
	})
}

// guilds returns the guilds of the fetched events.
func guilds(t *testing.T, bot *apitest.API, body string) []string {
	t.Helper()
	got := bot.Do(t, "pullBotEvents", body).Want(t, 200, "").All(t, "guild_id")
	slices.Sort(got)
	return got
}

func TestAStreamLeavesOutWhatTheBotDidUnlessItWantsTheEcho(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	bot := api.Bot(t)
	bot.Do(t, "putBotStream", `{"events":["economy.balance_changed"]}`, apitest.Path("name", "plain")).Want(t, 200, "")
	bot.Do(t, "putBotStream", `{"events":["economy.balance_changed"],"echo":true}`, apitest.Path("name", "echo")).Want(t, 200, "")
	tell(t, api.DB())
	change(t, bot.In(api.Guild))
	change(t, api.Bot(t).In(api.Guild))
	if got := pull(t, bot, `{"stream":"plain"}`); len(got) != 0 {
		t.Errorf("%v came, which bot keys have caused", got)
	}
	if got := pull(t, bot, `{"stream":"echo"}`); len(got) != 2 {
		t.Errorf("%d events came with the echo, want 2", len(got))
	}
	change(t, api)
	if got := pull(t, bot, `{"stream":"plain"}`); len(got) != 1 {
		t.Errorf("%d events came of what a token has done, want 1", len(got))
	}
}

func TestAKeySeesTheGuildsThatItServesAndAShardItsOwn(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	wide := api.Bot(t)
	wide.Do(t, "putBotStream", `{"events":["member.forgotten"]}`, apitest.Path("name", "mirror")).Want(t, 200, "")
	some := []string{"41943040", "46137344", "50331648", "50331649"} // ids that without their lowest 22 bits are 10, 11 and 12
	dbtest.AddGuilds(t, api.DB(), some...)
	tell(t, api.DB())
	narrow := api.Bot(t, some[1])
	all := func(t *testing.T) {
		t.Helper()
		for _, guild := range some {
			record(t, api.DB(), auth.System(guild))
		}
	}
	all(t)
	if got := guilds(t, narrow, `{"stream":"mirror"}`); !slices.Equal(got, some[1:2]) {
		t.Errorf("a key of guild %s fetched the events of %v", some[1], got)
	}
	for shard, want := range [][]string{{some[2], some[3]}, {some[0]}, {}} { // the bot key of one guild still gets its events
		if got := guilds(t, wide, fmt.Sprintf(`{"stream":"mirror","shard":%d,"shards":3}`, shard)); !slices.Equal(got, want) {
			t.Errorf("shard %d of 3 fetched the events of %v, want %v", shard, got, want)
		}
	}
	all(t)
	fetched := pull(t, wide, `{"stream":"mirror"}`)
	ack(t, narrow, `{"stream":"mirror","event_ids":`+list(fetched...)+`}`, `{"settled_count":1,"returned_count":0}`)
	ack(t, narrow, `{"stream":"mirror","return_ids":`+list(fetched...)+`}`, `{"settled_count":0,"returned_count":0}`)
	ack(t, wide, `{"stream":"mirror","event_ids":`+list(fetched...)+`}`, `{"settled_count":3,"returned_count":0}`)
}

// An acknowledged event is deleted, unless it still waits for another stream or endpoint, or was
// sent to one.
func TestWhatIsAcknowledgedIsForgotten(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	bot := api.Bot(t)
	for _, name := range []string{"one", "two"} {
		bot.Do(t, "putBotStream", `{"events":["member.forgotten"]}`, apitest.Path("name", name)).Want(t, 200, "")
	}
	tell(t, api.DB())
	record(t, api.DB(), auth.System(api.Guild))
	count := func() int { return dbtest.Value[int](t, api.DB(), `SELECT count(*) FROM webhook_events`) }
	first := pull(t, bot, `{"stream":"one"}`)
	ack(t, bot, `{"stream":"one","event_ids":`+list(first...)+`}`, `{"settled_count":1}`)
	if count() != 1 {
		t.Error("an event is gone that another stream waits for")
	}
	if second := pull(t, bot, `{"stream":"two"}`); !slices.Equal(first, second) {
		t.Fatalf("fetched %v and %v", first, second)
	}
	ack(t, bot, `{"stream":"two","event_ids":`+list(first...)+`}`, `{"settled_count":1}`)
	if count() != 0 {
		t.Error("an event stays that nobody waits for")
	}
	id := api.Do(t, "createWebhookEndpoint", `{"delivery":"pull","events":["member.forgotten"]}`).Want(t, 201, "").Str(t, "data.id")
	record(t, api.DB(), auth.System(api.Guild))
	for _, name := range []string{"one", "two"} {
		ack(t, bot, `{"stream":"`+name+`","event_ids":`+list(pull(t, bot, `{"stream":"`+name+`"}`)...)+`}`, `{"settled_count":1}`)
	}
	if got := api.Do(t, "pullWebhookEvents", `{}`, apitest.Path("id", id)).Want(t, 200, "").All(t, "id"); len(got) != 1 {
		t.Errorf("%d events are kept for the endpoint, want 1", len(got))
	}
}

// A stream that nobody fetches from for 7 days is deleted with its events; a new stream of that
// name starts empty.
func TestAStreamThatNobodyFetchesFromEnds(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	bot := api.Bot(t)
	for _, name := range []string{"read", "unread"} {
		bot.Do(t, "putBotStream", `{"events":["member.forgotten"]}`, apitest.Path("name", name)).Want(t, 200, "")
	}
	tell(t, api.DB())
	record(t, api.DB(), auth.System(api.Guild))
	dbtest.Exec(t, api.DB(), `UPDATE bot_streams SET created_at = now() - interval '7 days 1 minute'`)
	before := bot.Do(t, "pullBotEvents", `{"stream":"read"}`).Want(t, 200, "").Str(t, "complete_since")
	tell(t, api.DB())
	bot.Do(t, "pullBotEvents", `{"stream":"unread"}`).WantError(t, 404, "not_found")
	bot.Do(t, "listBotStreams", "").Want(t, 200, `{"data":[{"name":"read"},{"name":"work"}]}`)
	if n := dbtest.Value[int](t, api.DB(), `SELECT count(*) FROM stream_listeners`); n != 1 {
		t.Errorf("%d listeners are left, want 1", n)
	}
	bot.Do(t, "putBotStream", `{"events":["member.forgotten"]}`, apitest.Path("name", "unread")).Want(t, 200, "")
	tell(t, api.DB())
	a := bot.Do(t, "pullBotEvents", `{"stream":"unread"}`).Want(t, 200, `{"data":[]}`) // no event of the deleted stream
	if since := a.Str(t, "complete_since"); since <= before {
		t.Errorf("a new stream is complete since %s, that before it was since %s", since, before)
	}
	shown := bot.Do(t, "listBotStreams", "").Want(t, 200, "").All(t, "fetched_at")
	if shown[0] == "<nil>" || shown[1] == "<nil>" || shown[2] != "<nil>" {
		t.Errorf("the streams were fetched from at %q, that of work never", shown)
	}
}

// A guild that is created later is added to the streams, whoever creates it.
func TestAGuildThatIsMadeLaterIsListenedTo(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	bot := api.Bot(t)
	bot.Do(t, "putBotStream", `{"events":["member.forgotten"]}`, apitest.Path("name", "mirror")).Want(t, 200, "")
	tell(t, api.DB())
	bot.In("777").Do(t, "writeRecords", `{"records":[{"record":"guild","name":"new","owner_id":"1","member_count":1}]}`).Want(t, 200, "")
	record(t, api.DB(), auth.System("777"))
	if got := guilds(t, bot, `{"stream":"mirror"}`); !slices.Equal(got, []string{"777"}) {
		t.Errorf("fetched the events of %v", got)
	}
}

// waits fetches in the background and returns when n callers wait.
func waits(t *testing.T, bot *apitest.API, body string, n int) <-chan *apitest.Response {
	t.Helper()
	op, answered := apitest.Find(t, "pullBotEvents"), make(chan *apitest.Response, 1)
	go func() {
		a, err := bot.Try(op, body)
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	testutil.Eventually(t, "somebody waits", func() bool { return bot.Server.Waiters.Waiting() == n })
	return answered
}

// For each shard one caller waits on a node, the newest. It is answered when an event happens in
// its guilds; all are answered when the node stops.
func TestOneCallerWaitsForEachShard(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	bot := api.Bot(t)
	bot.Do(t, "putBotStream", `{"events":["member.forgotten"]}`, apitest.Path("name", "mirror")).Want(t, 200, "")
	dbtest.AddGuilds(t, api.DB(), "41943040", "46137344")
	tell(t, api.DB())
	even := `{"stream":"mirror","wait":20,"shards":2}`
	odd := `{"stream":"mirror","wait":20,"shards":2,"shard":1}`
	older := waits(t, bot, even, 1)
	other := waits(t, bot, odd, 2)
	newer := waits(t, bot, even, 2)
	if got := (<-older).Want(t, 200, "").All(t, "guild_id"); len(got) != 0 {
		t.Errorf("the older caller was given the events of %v", got)
	}
	record(t, api.DB(), auth.System("46137344"))
	if got := (<-other).Want(t, 200, "").All(t, "guild_id"); !slices.Equal(got, []string{"46137344"}) {
		t.Errorf("the odd shard was given the events of %v", got)
	}
	record(t, api.DB(), auth.System("41943040"))
	if got := (<-newer).Want(t, 200, "").All(t, "guild_id"); !slices.Equal(got, []string{"41943040"}) {
		t.Errorf("the even shard was given the events of %v", got)
	}
	last := waits(t, bot, even, 1)
	api.Server.StopWaiting()
	if got := (<-last).Want(t, 200, "").All(t, "id"); len(got) != 0 {
		t.Errorf("at the node's stop came %v", got)
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
		"none": `{"events":[]}`, "no": `{}`, "unknown": `{"events":["case.eaten"]}`, "works": `{"events":["work.requested"]}`,
		"ping": `{"events":["ping"]}`,
	} {
		bot.Do(t, "putBotStream", body, apitest.Path("name", name)).WantError(t, 400, "invalid_request")
	}
	for _, more := range []string{
		`,"shard":1`, `,"shard":2,"shards":2`, `,"shard":-1`, `,"shards":0`, `,"shards":65`, `,"shard":64,"shards":64`,
		`,"lease":9`, `,"lease":601`,
		`,"wait":21`, `,"wait":-1`, `,"limit":0`, `,"limit":101`, `,"shards":1.5`, `,"endpoint":"x"`,
	} {
		bot.Do(t, "pullBotEvents", `{"stream":"work"`+more+`}`).WantError(t, 400, "invalid_request")
	}
	for _, body := range []string{`{}`, `{"limit":5}`, `{"stream":"A"}`, `{"stream":"a b"}`, `{"stream":null}`} {
		bot.Do(t, "pullBotEvents", body).WantError(t, 400, "invalid_request")
	}
	for body, message := range map[string]string{
		`{"stream":"work"}`: "body: must have at least one of the members event_ids, return_ids",
		`{"stream":"work","event_ids":null,"return_ids":null}`: "body: must have at least one of the members event_ids, return_ids",
		`{"event_ids":["x"]}`:                "body /stream: is required",
		`{"stream":"work","event_ids":[""]}`: "body /event_ids/0: must have at least 1 character",
	} {
		a := bot.Do(t, "ackBotEvents", body).WantError(t, 400, "invalid_request")
		if got := a.Str(t, "error.message"); got != message {
			t.Errorf("%s is answered %q, want %q", body, got, message)
		}
	}
}
