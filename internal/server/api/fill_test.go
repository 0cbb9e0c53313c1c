package api_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/oapi-codegen/runtime"

	"guildhall/gen"
	"guildhall/internal/base/schema"
	"guildhall/internal/contract"
)

// requestBodies makes, by schema, the struct that an operation's body is decoded into.
var requestBodies = map[string]func() any{
	"createCase":               func() any { return new(gen.CreateCaseJSONRequestBody) },
	"updateCase":               func() any { return new(gen.UpdateCaseJSONRequestBody) },
	"adjustBalance":            func() any { return new(gen.AdjustBalanceJSONRequestBody) },
	"adjustBalances":           func() any { return new(gen.AdjustBalancesJSONRequestBody) },
	"createGiveaway":           func() any { return new(gen.CreateGiveawayJSONRequestBody) },
	"rerollGiveaway":           func() any { return new(gen.RerollGiveawayJSONRequestBody) },
	"updateGiveaway":           func() any { return new(gen.UpdateGiveawayJSONRequestBody) },
	"cancelGiveaway":           func() any { return new(gen.CancelGiveawayJSONRequestBody) },
	"disqualifyFromGiveaway":   func() any { return new(gen.DisqualifyFromGiveawayJSONRequestBody) },
	"adjustXp":                 func() any { return new(gen.AdjustXPJSONRequestBody) },
	"adjustXpOfMembers":        func() any { return new(gen.AdjustXPOfMembersJSONRequestBody) },
	"assignTicket":             func() any { return new(gen.AssignTicketJSONRequestBody) },
	"claimTicket":              func() any { return new(gen.ClaimTicketJSONRequestBody) },
	"closeTicket":              func() any { return new(gen.CloseTicketJSONRequestBody) },
	"createTicketMessage":      func() any { return new(gen.CreateTicketMessageJSONRequestBody) },
	"reopenTicket":             func() any { return new(gen.ReopenTicketJSONRequestBody) },
	"pullWebhookEvents":        func() any { return new(gen.PullWebhookEventsJSONRequestBody) },
	"ackWebhookEvents":         func() any { return new(gen.AckWebhookEventsJSONRequestBody) },
	"createWebhookEndpoint":    func() any { return new(gen.CreateWebhookEndpointJSONRequestBody) },
	"updateGuildSettings":      func() any { return new(gen.UpdateGuildSettingsJSONRequestBody) },
	"writeRecords":             func() any { return new(gen.WriteRecordsJSONRequestBody) },
	"updateWebhookEndpoint":    func() any { return new(gen.UpdateWebhookEndpointJSONRequestBody) },
	"recoverWebhookDeliveries": func() any { return new(gen.RecoverWebhookDeliveriesJSONRequestBody) },
	"forgetMember":             func() any { return new(gen.ForgetMemberJSONRequestBody) },
	"forgetMemberEverywhere":   func() any { return new(gen.ForgetMemberEverywhereJSONRequestBody) },
	"transferBalance":          func() any { return new(gen.TransferBalanceJSONRequestBody) },
	"updateTicket":             func() any { return new(gen.UpdateTicketJSONRequestBody) },
	"updateMember":             func() any { return new(gen.UpdateMemberJSONRequestBody) },
	"putBotStream":             func() any { return new(gen.PutBotStreamJSONRequestBody) },
	"pullBotEvents":            func() any { return new(gen.PullBotEventsJSONRequestBody) },
	"ackBotEvents":             func() any { return new(gen.AckBotEventsJSONRequestBody) },
	"answerBotWork":            func() any { return new(gen.AnswerBotWorkJSONRequestBody) },
	"removeGuild":              func() any { return new(gen.RemoveGuildJSONRequestBody) },
	"rotateWebhookSecret":      func() any { return new(gen.RotateWebhookSecretJSONRequestBody) },
}

func bodySchemas(t testing.TB) map[string]*openapi3.Schema {
	t.Helper()
	doc, err := contract.Document()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*openapi3.Schema{}
	for _, item := range doc.Paths.Map() {
		for _, op := range item.Operations() {
			if op.RequestBody != nil {
				found[op.OperationID] = op.RequestBody.Value.Content.Get("application/json").Schema.Value
			}
		}
	}
	return found
}

func TestEveryBodyIsFilledAsItsExamplesSay(t *testing.T) {
	t.Parallel()
	schemas := bodySchemas(t)
	doc, err := contract.Document()
	if err != nil {
		t.Fatal(err)
	}
	filled := 0
	for _, item := range doc.Paths.Map() {
		for _, op := range item.Operations() {
			if op.RequestBody == nil {
				continue
			}
			if requestBodies[op.OperationID] == nil {
				t.Errorf("%s has a body that this test does not know", op.OperationID)
				continue
			}
			for _, example := range op.RequestBody.Value.Content.Get("application/json").Examples {
				text, err := json.Marshal(example.Value.Value)
				if err != nil {
					t.Fatal(err)
				}
				if fillsAlike(t, schemas[op.OperationID], requestBodies[op.OperationID], text) {
					filled++
				}
			}
		}
	}
	if filled < len(requestBodies)/2 {
		t.Errorf("%d examples were filled", filled)
	}
}

// fillsAlike compares a request filled from validation's value with one that encoding/json decodes
// from the same body, if the contract accepts the body.
func fillsAlike(t *testing.T, s *openapi3.Schema, request func() any, body []byte) bool {
	t.Helper()
	value, found, ok := schema.Read(body, 1000, "")
	if !ok || len(schema.Check(s, value, found)) > 0 {
		return false
	}
	got, want := request(), request()
	if err := runtime.BindJSONValue(value, got); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if err := json.Unmarshal(body, want); err != nil {
		// An instant whose JSON contains escapes: its type gets the raw bytes.
		if body, err = json.Marshal(value); err != nil {
			t.Fatal(err)
		}
		want = request()
		if err := json.Unmarshal(body, want); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s is filled as %+v, and unmarshalled as %+v", body, got, want)
	}
	return true
}

func FuzzABodyIsFilledAsItIsUnmarshalled(f *testing.F) {
	schemas := bodySchemas(f)
	var ids []string
	for id := range requestBodies {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, body := range []string{
		`{"user_id":"1","moderator_id":"2","type":"note","reason":"x"}`, `{"reason":null,"expires_at":null}`,
		`{"expires_at":"2026-11-21T10:00:00+02:00"}`, `{"expires_at":"2026\u002d11-21T10:00:00Z"}`,
		`{"user_id":"1","delta":-5,"reference":"a","reason":null}`, `{"user_id":"1","total_xp":9007199254740991}`,
		`{"count":3,"exclude_user_ids":["1","2"]}`, `{"exclude_user_ids":[]}`, `{"user_id":null}`, `{"user_id":"1"}`,
		`{"content":"\ud83c\udf89 \"x\"","internal":true,"author_id":"9"}`, `{"since":"2026-11-21T10:00:00.123456789Z"}`, `{}`,
		`{"url":"https://example.com/h","events":["case.created"],"description":null,"enabled":false}`,
		`{"channel_id":"1","prize":"p","winner_count":1,"ends_at":"2027-11-21T10:00:00Z"}`, `{"old_secret_expires_in":0}`,
	} {
		for i := range ids {
			f.Add(uint8(i), []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		id := ids[int(which)%len(ids)]
		fillsAlike(t, schemas[id], requestBodies[id], body)
	})
}
