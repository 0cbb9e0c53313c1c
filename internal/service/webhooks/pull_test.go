package webhooks_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/event"
	"guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
)

// keep registers a pull endpoint.
func keep(t *testing.T, api *apitest.API) (id string) {
	t.Helper()
	return api.Do(t, "createWebhookEndpoint", `{"delivery":"pull","events":["economy.balance_changed","case.created"]}`).
		Want(t, 201, `{"data":{"delivery":"pull","url":"","enabled":true}}`).Str(t, "data.id")
}

// change causes an event.
func change(t *testing.T, api *apitest.API) {
	t.Helper()
	api.Do(t, "adjustBalance", `{"user_id":"42","delta":1,"reason":"<ünï> & \"so\""}`).Want(t, 200, "")
}

// pull fetches events and returns their ids.
func pull(t *testing.T, api *apitest.API, id, body string) []string {
	t.Helper()
	return ids(t, api.Do(t, "pullWebhookEvents", body, apitest.Path("id", id)).Want(t, 200, ""))
}

func ids(t *testing.T, a *apitest.Response) (list []string) {
	t.Helper()
	var got struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	a.Into(t, &got)
	for _, e := range got.Data {
		list = append(list, e.ID)
	}
	return list
}

func ack(t *testing.T, api *apitest.API, id, body, want string) {
	t.Helper()
	api.Do(t, "ackWebhookEvents", body, apitest.Path("id", id)).Want(t, 200, `{"data":`+want+`}`)
}

func list(ids ...string) string {
	b, _ := json.Marshal(ids)
	return string(b)
}

func TestWhatIsKeptIsFetchedAndAcknowledged(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.With(func(c *api.Config) { c.Quotas.Read = ratelimit.Quota{Limit: 100, Window: time.Hour} }))
	dbtest.Unlisten(t, api.DB(), api.Guild)
	id := keep(t, api)
	for range 4 {
		change(t, api)
	}
	first := api.Do(t, "pullWebhookEvents", `{"limit":2}`, apitest.Path("id", id)).Want(t, 200, `{"has_more":true}`)
	if first.Header.Get("X-RateLimit-Bucket") != "read" {
		t.Errorf("it spends the bucket %q", first.Header.Get("X-RateLimit-Bucket"))
	}
	one := ids(t, first)
	two := pull(t, api, id, "")
	var happened []string // ids of all events, oldest first
	if err := api.DB().Reader().SelectContext(t.Context(), &happened, `SELECT id FROM webhook_events ORDER BY occurred_at`); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(slices.Concat(one, two), happened) || len(two) != 2 {
		t.Fatalf("fetched %v, then %v; the oldest are %v", one, two, happened)
	}
	for _, event := range one {
		payload := dbtest.Value[string](t, api.DB(), `SELECT convert_from(payload, 'UTF8') FROM webhook_events WHERE id = $1`, event)
		if !strings.Contains(string(first.Body), payload) {
			t.Errorf("the answer has not the payload, byte for byte: %s", payload)
		}
	}
	ack(t, api, id, `{"event_ids":`+list(one[0], "nobody's", two[0], two[1])+
		`,"return_ids":`+list(one[1], one[0])+`}`, `{"settled_count":3,"returned_count":1}`)
	ack(t, api, id, `{"event_ids":`+list(one[0])+`,"return_ids":`+list(one[1])+`}`, `{"settled_count":0,"returned_count":0}`)
	if again := pull(t, api, id, `{}`); !slices.Equal(again, one[1:]) {
		t.Errorf("after being given back, %v comes again", again)
	}
	ack(t, api, id, `{"event_ids":`+list(one[1])+`,"return_ids":[]}`, `{"settled_count":1,"returned_count":0}`)
	ack(t, api, id, `{"event_ids":[]}`, `{"settled_count":0,"returned_count":0}`)
	api.Do(t, "pullWebhookEvents", `{}`, apitest.Path("id", id)).Want(t, 200, `{"data":[],"has_more":false}`)
	api.Do(t, "listWebhookDeliveries", "", apitest.Path("id", id), apitest.Query("status", "delivered")).
		Want(t, 200, `{"data":[{"attempt_count":0,"response_status":null},{},{},{}]}`)
	shown := api.Do(t, "getWebhookEndpoint", "", apitest.Path("id", id)).Want(t, 200, `{"data":{"delivery":"pull","url":""}}`)
	if since := first.Str(t, "complete_since"); since <= shown.Str(t, "data.created_at") {
		t.Errorf("complete since %s", since)
	}
}

// A pull endpoint that subscribes to more event types gets them completely from then on, and none
// that happened before. One that subscribes to fewer loses no waiting event.
func TestAPullEndpointThatGetsMoreIsCompleteSinceThen(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	id := api.Do(t, "createWebhookEndpoint", `{"delivery":"pull","events":["case.created"]}`).Want(t, 201, "").Str(t, "data.id")
	on := apitest.Path("id", id)
	since := func() string {
		return api.Do(t, "pullWebhookEvents", `{}`, on).Want(t, 200, `{"data":[]}`).Str(t, "complete_since")
	}
	registered := since()
	lost := api.Do(t, "adjustBalance", `{"user_id":"42","delta":1}`).Want(t, 200, "").Str(t, "data.updated_at")
	api.Do(t, "updateWebhookEndpoint", `{"events":["case.created"],"description":"the same"}`, on).Want(t, 200, "")
	if got := since(); got != registered {
		t.Errorf("nothing else is listened to, and it is complete since %s, before that since %s", got, registered)
	}
	more := api.Do(t, "updateWebhookEndpoint", `{"events":["economy.balance_changed","case.created"]}`, on).
		Want(t, 200, "").Str(t, "data.updated_at")
	widened := since()
	if widened <= lost || widened < more {
		t.Errorf("an event of %s is lost, the endpoint gets more since %s, and is complete since %s", lost, more, widened)
	}
	api.Do(t, "updateWebhookEndpoint", `{"events":["economy.balance_changed"]}`, on).Want(t, 200, "")
	if got := since(); got != widened {
		t.Errorf("less is listened to, and it is complete since %s, before that since %s", got, widened)
	}
}

// Two endpoints store an event separately: if one acknowledges or returns it, the other still has
// it under its own lease.
func TestAnEventIsAcknowledgedForOneEndpoint(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	one, other := keep(t, api), keep(t, api)
	change(t, api)
	change(t, api)
	events := pull(t, api, one, `{}`)
	if same := pull(t, api, other, `{}`); len(events) != 2 || !slices.Equal(same, events) {
		t.Fatalf("fetched %v and %v", events, same)
	}
	ack(t, api, one, `{"event_ids":`+list(events[0])+`,"return_ids":`+list(events[1])+`}`, `{"settled_count":1,"returned_count":1}`)
	if again := pull(t, api, other, `{}`); len(again) != 0 {
		t.Errorf("given back by one endpoint, %v comes to the other", again)
	}
	ack(t, api, other, `{"event_ids":`+list(events...)+`}`, `{"settled_count":2,"returned_count":0}`)
	if again := pull(t, api, one, `{}`); !slices.Equal(again, events[1:]) {
		t.Errorf("settled by the other, %v comes again, want %v", again, events[1:])
	}
}

func TestWhatAPullEndpointCannotBe(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	for body, place := range map[string]string{
		`{"events":["case.created"]}`: "body /url: is required",
		`{"delivery":"pull","url":"https://127.0.0.1:9/","events":["case.created"]}`:       "body /url: a pull endpoint has none",
		`{"delivery":"carrier pigeon","url":"https://127.0.0.1:9/","events":["ping"]}`:     "",
		`{"delivery":"push","events":["case.created"]}`:                                    "body /url: is required",
		`{"delivery":"pull","events":["case.created"],"description":"two\nlines of text"}`: "",
	} {
		a := api.Do(t, "createWebhookEndpoint", body).WantError(t, 400, "invalid_request")
		if !strings.Contains(string(a.Body), place) {
			t.Errorf("%s: %s", body, a.Body)
		}
	}
	id := keep(t, api)
	push, _ := register(t, api, "https://127.0.0.1:9/")
	on := apitest.Path("id", id)
	api.Do(t, "updateWebhookEndpoint", `{"url":"https://127.0.0.1:9/"}`, on).WantError(t, 400, "invalid_request")
	api.Do(t, "updateWebhookEndpoint", `{"delivery":"push"}`, on).WantError(t, 400, "invalid_request")
	api.Do(t, "updateWebhookEndpoint", `{"delivery":"pull","description":"a copy"}`, on).Want(t, 200, `{"data":{"description":"a copy"}}`)
	for _, body := range []string{`{"limit":0}`, `{"limit":101}`, `{"wait":21}`, `{"wait":-1}`, `{"lease":9}`, `{"lease":601}`, `{"page":1}`} {
		api.Do(t, "pullWebhookEvents", body, on).WantError(t, 400, "invalid_request")
	}
	for _, body := range []string{`{}`, `{"event_ids":[""]}`, `{"event_ids":["a\u0000"]}`, `{"event_ids":[7]}`} {
		api.Do(t, "ackWebhookEvents", body, on).WantError(t, 400, "invalid_request")
	}
	for _, op := range []string{"pullWebhookEvents", "ackWebhookEvents"} {
		body := map[string]string{"pullWebhookEvents": `{}`, "ackWebhookEvents": `{"event_ids":["x"]}`}[op]
		api.Do(t, op, body, apitest.Path("id", push)).WantError(t, 422, "webhook_not_pull")
		api.Do(t, op, body, apitest.Path("id", "none")).WantError(t, 404, "not_found")
		api.Next(t).Do(t, op, body, on).WantError(t, 404, "not_found")
		api.As(t, "webhooks:manage", "cases:read").Do(t, op, body, on).WantError(t, 403, "insufficient_scope")
	}
}

// A disabled endpoint keeps its events and returns none. Events that were fetched before can still
// be acknowledged.
func TestADisabledPullEndpointGivesNothing(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	id := keep(t, api)
	on := apitest.Path("id", id)
	change(t, api)
	change(t, api)
	fetched := pull(t, api, id, `{"limit":1}`)
	api.Do(t, "updateWebhookEndpoint", `{"enabled":false}`, on).Want(t, 200, "")
	api.Do(t, "pullWebhookEvents", `{}`, on).WantError(t, 422, "webhook_disabled")
	tested := api.Do(t, "testWebhookEndpoint", "", on).Want(t, 202, `{"data":{"status":"held"}}`).Str(t, "data.event_id")
	ack(t, api, id, `{"event_ids":`+list(fetched...)+`}`, `{"settled_count":1,"returned_count":0}`)
	work(t, config(t, api, newVerifier(t)))
	api.Do(t, "updateWebhookEndpoint", `{"enabled":true}`, on).Want(t, 200, "")
	var got []string
	testutil.Eventually(t, "what was held can be fetched", func() bool {
		got = append(got, pull(t, api, id, `{"lease":600}`)...)
		return len(got) == 2
	})
	if !slices.Contains(got, tested) || slices.Contains(got, fetched[0]) {
		t.Errorf("after %v was settled comes %v, with the test %s", fetched, got, tested)
	}
	ack(t, api, id, `{"event_ids":`+list(tested)+`}`, `{"settled_count":1}`)
	done := api.Do(t, "listWebhookDeliveries", "", on, apitest.Query("event_type", "ping")).Want(t, 200, `{"data":[{"status":"delivered"}]}`)
	api.Do(t, "redeliverWebhookDelivery", "", on, apitest.Path("deliveryId", done.All(t, "id")[0])).
		Want(t, 202, `{"data":{"status":"pending"}}`)
	ack(t, api, id, `{"event_ids":`+list(tested)+`}`, `{"settled_count":0}`)
	if again := pull(t, api, id, `{}`); !slices.Equal(again, []string{tested}) {
		t.Errorf("of a redelivery comes %v", again)
	}
	api.Do(t, "recoverWebhookDeliveries", `{"since":"2020-01-01T00:00:00Z"}`, on).Want(t, 202, `{"data":{"queued_count":0}}`)
}

// By default a fetch leases a hundred events for a minute. An idempotency key has no effect: each
// fetch is a new one.
func TestAFetchTakesAHundredForAMinute(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	id := keep(t, api)
	on := apitest.Path("id", id)
	many := `{"adjustments":[` + strings.Repeat(`{"user_id":"42","delta":1},`, 99) + `{"user_id":"43","delta":1}]}`
	api.Do(t, "adjustBalances", many).Want(t, 200, "")
	change(t, api)
	change(t, api)
	first := api.Key("k").Do(t, "pullWebhookEvents", `{}`, on).Want(t, 200, `{"has_more":true}`)
	if n := len(ids(t, first)); n != 100 {
		t.Errorf("%d events came, want 100", n)
	}
	minutes := dbtest.Value[int](t, api.DB(), `
		SELECT count(*) FROM webhook_deliveries d JOIN webhook_schedule s USING (guild_id, endpoint_id)
		WHERE d.due_at = s.fetched_at + interval '1 minute'`)
	if minutes != 100 {
		t.Errorf("%d events are leased for a minute, want 100", minutes)
	}
	second := api.Key("k").Do(t, "pullWebhookEvents", `{}`, on).Want(t, 200, `{"has_more":false}`)
	if n := len(ids(t, second)); n != 2 || second.Header.Get("Idempotent-Replay") != "" {
		t.Errorf("with the same key %d events came, want 2", n)
	}
	api.Do(t, "ackWebhookEvents", `{"event_ids":`+list(slices.Repeat([]string{"x"}, 1001)...)+`}`, on).WantError(t, 400, "invalid_request")
	ack(t, api, id, `{"event_ids":`+list(append(slices.Repeat([]string{"x"}, 998), ids(t, second)...)...)+`}`, `{"settled_count":2}`)
}

// An acknowledgement can name as many events as its two lists hold.
func TestAnAcknowledgementNamesAsManyAsTheListsHold(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	id := keep(t, api)
	change(t, api)
	change(t, api)
	fetched := pull(t, api, id, `{}`)
	others := slices.Repeat([]string{"01977420-8c00-7000-8000-000000000716"}, 999)
	body := `"event_ids":` + list(append(others, fetched[0])...) + `,"return_ids":` + list(append(others, fetched[1])...) + `}`
	ack(t, api, id, `{`+body, `{"settled_count":1,"returned_count":1}`)
	api.Bot(t).Do(t, "ackBotEvents", `{"stream":"work",`+body).Want(t, 200, `{"data":{"settled_count":0,"returned_count":0}}`)
}

// Ten waiting long polls of one token hold no transaction and no connection slot, so the token's
// other requests are not affected. RELIABILITY.md, Events.
func TestCallsThatWaitHoldNothing(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	op, answered := apitest.Find(t, "pullWebhookEvents"), make(chan *apitest.Response, 10)
	for range cap(answered) {
		id := keep(t, api)
		go func() {
			a, err := api.Try(op, `{"wait":20}`, apitest.Path("id", id))
			if err != nil {
				t.Error(err)
			}
			answered <- a
		}()
	}
	testutil.Eventually(t, "all wait", func() bool { return api.Server.Waiters.Waiting() == cap(answered) })
	testutil.Eventually(t, "no transaction is open", func() bool {
		return dbtest.Value[int](t, api.DB(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'`) == 0
	})
	change(t, api)
	for range cap(answered) {
		if a := <-answered; a != nil && len(ids(t, a.Want(t, 200, ""))) != 1 {
			t.Error("the event did not reach a call that waited")
		}
	}
}

// inBackground starts a long poll in a goroutine.
func inBackground(t *testing.T, api *apitest.API, id string) <-chan *apitest.Response {
	t.Helper()
	op, answered := apitest.Find(t, "pullWebhookEvents"), make(chan *apitest.Response, 1)
	go func() {
		a, err := api.Try(op, `{"wait":20}`, apitest.Path("id", id))
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	testutil.Eventually(t, "somebody waits", func() bool { return api.Server.Waiters.Waiting() == 1 })
	return answered
}

// For an endpoint one caller waits on each node, the newest. It is answered as soon as there is an
// event, or when the node stops. RELIABILITY.md, Events.
func TestACallerWaitsForAnEvent(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	id := keep(t, api)
	older := inBackground(t, api, id)
	newer := inBackground(t, api, id)
	if a := <-older; len(ids(t, a.Want(t, 200, ""))) != 0 {
		t.Error("the older caller was not answered empty")
	}
	change(t, api)
	if a := <-newer; len(ids(t, a.Want(t, 200, ""))) != 1 {
		t.Error("the event did not reach who waited")
	}
	other := inBackground(t, api, id)
	dbtest.Do(t, api.DB(), func(ctx context.Context, tx *db.Tx) error { // as another node does, so this node is not woken
		_, err := delivery.Ping(ctx, tx, event.System(api.Guild), id)
		return err
	})
	if a := <-other; len(ids(t, a.Want(t, 200, ""))) != 1 {
		t.Error("the event of another node did not reach who waited")
	}
	last := inBackground(t, api, id)
	api.Server.StopWaiting()
	if a := <-last; len(ids(t, a.Want(t, 200, ""))) != 0 {
		t.Error("the node's stop did not answer who waited")
	}
	pull(t, api, id, `{"wait":20}`) // returns at once, since the node stops
}

// A long poll is authenticated again before it is answered: a token that was revoked meanwhile gets
// nothing. RELIABILITY.md, Events.
func TestATokenThatIsRevokedWhileItWaitsLearnsNothing(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	id := keep(t, api)
	guest := api.As(t, "webhooks:manage", "cases:read", "economy:read")
	token := guest.Do(t, "getMe", "").Want(t, 200, "").Str(t, "token.id")
	waits := inBackground(t, guest, id)
	if err := auth.Revoke(t.Context(), api.DB(), api.Guild, token); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the token is known no more", func() bool {
		a, err := guest.Try(apitest.Find(t, "getMe"), "")
		if err != nil {
			t.Fatal(err)
		}
		return a.Status == 401
	})
	change(t, api)
	(<-waits).WantError(t, 401, "invalid_token")
	if got := pull(t, api, id, `{}`); len(got) != 1 {
		t.Errorf("%d events are left", len(got))
	}
}

// A long poll may wait for longer than a request's database deadline, and its token may have to be
// read again then. RELIABILITY.md, Events.
func TestACallerThatHasWaitedForLongIsAnswered(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	id := keep(t, api)
	guest, other := api.As(t, "webhooks:manage", "cases:read", "economy:read"), api.As(t, "economy:read")
	token := other.Do(t, "getMe", "").Want(t, 200, "").Str(t, "token.id")
	waits := make(chan *apitest.Response, 1)
	go func() { waits <- guest.Raw(t, http.MethodPost, "/api/v1/webhooks/"+id+"/events/pull", `{"wait":20}`) }() // Try would retry
	testutil.Eventually(t, "the caller waits", func() bool { return api.Server.Waiters.Waiting() == 1 })
	time.Sleep(11 * time.Second) // the deadline of the first poll has passed by now
	dbtest.Do(t, api.DB(), auth.Announce)
	if err := auth.Revoke(t.Context(), api.DB(), api.Guild, token); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the node has heard of it", func() bool {
		a, err := other.Try(apitest.Find(t, "getMe"), "")
		if err != nil {
			t.Fatal(err)
		}
		return a.Status == 401
	})
	change(t, api)
	(<-waits).Want(t, 200, "")
}

// A caller that hangs up while waiting leaves nothing behind. RELIABILITY.md, Events.
func TestACallerThatHangsUpWaitsNoMore(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	id := keep(t, api)
	ctx, hangUp := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, api.URL+"/webhooks/"+id+"/events/pull", strings.NewReader(`{"wait":20}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+api.Token)
	req.Header.Set("Content-Type", "application/json")
	gone := make(chan error, 1)
	go func() {
		answer, err := api.Server.Client.Do(req)
		if err == nil {
			err = answer.Body.Close()
		}
		gone <- err
	}()
	testutil.Eventually(t, "somebody waits", func() bool { return api.Server.Waiters.Waiting() == 1 })
	hangUp()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	testutil.Eventually(t, "nobody waits", func() bool { return api.Server.Waiters.Waiting() == 0 })
	change(t, api)
	if got := pull(t, api, id, `{}`); len(got) != 1 {
		t.Errorf("%d events can be fetched", len(got))
	}
}
