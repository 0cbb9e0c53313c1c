package api_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/server/api/apitest"
)

// observed returns, by schema and member of a request, a function that observes the value which the
// server uses when the member is left out.
var observed = map[string]func(t *testing.T, a, bot *apitest.API) string{
	"RemoveGuildRequest.after_days": func(t *testing.T, _, bot *apitest.API) string {
		at, err := time.Parse(time.RFC3339, bot.Do(t, "removeGuild", "").Want(t, 202, "").Str(t, "data.removed_after"))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(int(time.Until(at).Round(24*time.Hour) / (24 * time.Hour)))
	},
	"ForgetMemberRequest.cases": func(t *testing.T, a, bot *apitest.API) string {
		made := a.Do(t, "createCase", `{"user_id":"7","type":"note","moderator_id":"8","reason":"x"}`).Want(t, 201, "")
		at := apitest.Path("id", made.Str(t, "data.id"))
		bot.Do(t, "forgetMember", "", apitest.Path("userId", "7")).Want(t, 202, "")
		return strconv.FormatBool(a.Do(t, "getCase", "", at).Status == 404)
	},
	"CreateTicketMessageRequest.internal": func(t *testing.T, a, bot *apitest.API) string {
		bot.Do(t, "writeRecords", `{"records":[{"record":"ticket","id":"t","opener_id":"1"}]}`).Want(t, 200, "")
		// A message needs the ticket's channel, a note does not.
		return strconv.FormatBool(a.Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", "t")).Status == 201)
	},
	"RerollGiveawayRequest.count": func(t *testing.T, a, bot *apitest.API) string {
		bot.Do(t, "writeRecords", `{"records":[{"record":"giveaway","id":"g","prize":"x","winner_count":2,"channel_id":"5",
			"ends_at":"2040-01-01T00:00:00Z"},{"record":"giveaway_entry","giveaway_id":"g","user_id":"1"},
			{"record":"giveaway_entry","giveaway_id":"g","user_id":"2"},{"record":"giveaway_entry","giveaway_id":"g","user_id":"3"},
			{"record":"giveaway_entry","giveaway_id":"g","user_id":"4"}]}`).Want(t, 200, "")
		bot.Do(t, "writeRecords", `{"records":[{"record":"giveaway","id":"g","status":"ended","ended_at":"2026-01-01T00:00:00Z",
			"winners":["1","2"]}]}`).Want(t, 200, "")
		a.Do(t, "rerollGiveaway", "", apitest.Path("id", "g")).Want(t, 200, "")
		var left int
		for _, winner := range dbtest.Value[string](t, a.DB(), `SELECT winners::text FROM giveaways WHERE guild_id = $1`, a.Guild) {
			if winner == '1' || winner == '2' {
				left++
			}
		}
		return fmt.Sprint(2 - left)
	},
	"DisqualifyRequest.undo": func(t *testing.T, a, bot *apitest.API) string {
		bot.Do(t, "writeRecords", `{"records":[{"record":"giveaway","id":"g","prize":"x","winner_count":1,"channel_id":"5",
			"ends_at":"2040-01-01T00:00:00Z"}]}`).Want(t, 200, "")
		a.Do(t, "disqualifyFromGiveaway", `{"user_ids":["1"]}`, apitest.Path("id", "g")).Want(t, 200, "")
		return strconv.FormatBool(dbtest.Value[int](t, a.DB(), `SELECT count(*) FROM giveaway_disqualified`) == 0)
	},
	"CreateWebhookEndpointRequest.enabled": func(t *testing.T, a, _ *apitest.API) string {
		return fmt.Sprint(strings.Contains(string(endpoint(t, a).Body), `"enabled":true`))
	},
	"RotateWebhookSecretRequest.old_secret_expires_in": func(t *testing.T, a, _ *apitest.API) string {
		a.Do(t, "rotateWebhookSecret", "", apitest.Path("id", endpoint(t, a).Str(t, "data.id"))).Want(t, 200, "")
		return fmt.Sprint(dbtest.Value[int](t, a.DB(), `
			SELECT round(extract(epoch FROM (old_secrets -> 0 ->> 'until')::timestamptz - updated_at))::integer
			FROM webhook_endpoints WHERE guild_id = $1`, a.Guild))
	},
	"PullWebhookEventsRequest.limit": fetched(func(a delivery.FetchOptions) any { return a.Limit }),
	"PullWebhookEventsRequest.wait":  fetched(func(a delivery.FetchOptions) any { return a.Wait.Seconds() }),
	"PullWebhookEventsRequest.lease": fetched(func(a delivery.FetchOptions) any { return a.Lease.Seconds() }),
	"PullBotEventsRequest.limit":     fetched(func(a delivery.FetchOptions) any { return a.Limit }),
	"PullBotEventsRequest.wait":      fetched(func(a delivery.FetchOptions) any { return a.Wait.Seconds() }),
	"PullBotEventsRequest.lease":     fetched(func(a delivery.FetchOptions) any { return a.Lease.Seconds() }),
	"PullBotEventsRequest.shard": func(t *testing.T, _, bot *apitest.API) string {
		stream(t, bot)
		bot.Do(t, "pullBotEvents", `{"stream":"mirror","shards":1}`).Want(t, 200, "") // shard must be less than shards
		return "0"
	},
	"PullBotEventsRequest.shards": func(t *testing.T, _, bot *apitest.API) string {
		stream(t, bot)
		refused := bot.Do(t, "pullBotEvents", `{"stream":"mirror","shard":1}`).WantError(t, 400, "invalid_request")
		return regexp.MustCompile(`shards, which is (\d+)`).FindStringSubmatch(string(refused.Body))[1]
	},
	"PutBotStreamRequest.echo": func(t *testing.T, _, bot *apitest.API) string {
		return fmt.Sprint(strings.Contains(string(stream(t, bot).Body), `"echo":true`))
	},
	"WriteRecordsRequest.tell": func(t *testing.T, a, bot *apitest.API) string {
		bot.Do(t, "writeRecords", `{"records":[{"record":"wallet","user_id":"7","balance":5}]}`).Want(t, 200, "")
		a.WantEvent(t, "economy.balance_changed", `{"data":{"user_id":"7"}}`)
		return "true"
	},
}

func fetched(show func(delivery.FetchOptions) any) func(*testing.T, *apitest.API, *apitest.API) string {
	return func(*testing.T, *apitest.API, *apitest.API) string {
		return fmt.Sprint(show(delivery.NewFetchOptions(nil, nil, nil)))
	}
}

func endpoint(t *testing.T, a *apitest.API) *apitest.Response {
	t.Helper()
	return a.Do(t, "createWebhookEndpoint", `{"delivery":"pull","events":["case.created"]}`).Want(t, 201, "")
}

func stream(t *testing.T, bot *apitest.API) *apitest.Response {
	t.Helper()
	return bot.Do(t, "putBotStream", `{"events":["case.created"]}`, apitest.Path("name", "mirror")).Want(t, 200, "")
}

// Request bodies have no `default:`, because openapi-typescript makes members with defaults
// required. Instead the description says "Default 100.", and the server uses that value when the
// member is left out.
func TestDefaultsOfBodiesAreWhatTheDescriptionsSay(t *testing.T) {
	t.Parallel()
	doc := document(t)
	said := map[string]string{}
	shown := regexp.MustCompile(`Default ([^ ]+)\.(?: |$)`)
	for name, ref := range doc.Components.Schemas {
		for member, is := range ref.Value.Properties {
			if m := shown.FindStringSubmatch(is.Value.Description); m != nil {
				said[name+"."+member] = m[1]
			}
		}
	}
	for _, op := range apitest.Operations() {
		if op.Spec.RequestBody != nil {
			noDefault(t, op.ID, op.Spec.RequestBody.Value.Content.Get("application/json").Schema)
		}
	}
	for place := range observed {
		if said[place] == "" {
			t.Errorf("the description of %s says no default", place)
		}
	}
	for place, want := range said {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			see := observed[place]
			if see == nil {
				t.Fatal("add how to observe it to this test")
			}
			a := apitest.New(t)
			if got := see(t, a, a.Bot(t).In(a.Guild)); got != want {
				t.Errorf("the server takes %s, the description says %s", got, want)
			}
		})
	}
}

func noDefault(t *testing.T, at string, ref *openapi3.SchemaRef) {
	t.Helper()
	if ref.Value.Default != nil {
		t.Errorf("%s has a default: say it in the description", at)
	}
	for member, is := range ref.Value.Properties {
		noDefault(t, at+"."+member, is)
	}
	if ref.Value.Items != nil {
		noDefault(t, at+"[]", ref.Value.Items)
	}
}
