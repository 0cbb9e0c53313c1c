package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/guildfile"
)

// otherExamples replaces an id of the document's examples where the operation needs a thing in
// another state, or where the example's thing is needed unchanged by another operation.
var otherExamples = map[string]string{
	"closeTicket":    "demo-ticket-0064",
	"reopenTicket":   "demo-ticket-0001",
	"endGiveaway":    "demo-giveaway-0008",
	"resumeGiveaway": "demo-giveaway-0006",
	"rerollGiveaway": "demo-giveaway-0003",
	"cancelGiveaway": "demo-giveaway-0009",
}

// Each example request of the document succeeds against the demo guild, and its response has the
// members of the example response.
func TestExamplesRun(t *testing.T) {
	t.Parallel()
	api := demo(t)

	// The example receiver's host does not exist; a test receiver replaces it.
	const shown, ours = "https://hooks.example.net/guildhall", "https://127.0.0.1:9/guildhall"
	made := api.Do(t, "createWebhookEndpoint", `{"url":"`+ours+`","events":["case.created"]}`)
	hook := made.Want(t, 201, "").Str(t, "data.id")
	delivery := api.Do(t, "testWebhookEndpoint", "", apitest.Path("id", hook)).Want(t, 202, "").Str(t, "data.id")

	entry := api.Do(t, "adjustBalance", `{"user_id":"1","delta":1}`).Want(t, 200, "").Str(t, "data.ledger_entry.id")
	kept := api.Do(t, "createWebhookEndpoint", `{"delivery":"pull","events":["case.created"]}`).Want(t, 201, "").Str(t, "data.id")
	api.Do(t, "testWebhookEndpoint", "", apitest.Path("id", kept)).Want(t, 202, "")

	dbtest.Exec(t, api.DB(), `
		INSERT INTO bot_work (guild_id, id, kind, subject_id, event_id, created_at, deadline)
		VALUES ($1, '4Mk0vPq7Tz2xYb9LcRdWs1', 'post_message', 'demo-ticket-0063', 'e', now(), now() + interval '1 day')`, api.Guild)
	api.Bot(t).Do(t, "putBotStream", `{"events":["case.created"]}`, apitest.Path("name", "mirror")).Want(t, 200, "")

	ops := apitest.Operations()
	last := func(op apitest.Operation) int { // operations that delete what others need come last
		switch {
		case op.ID == "writeRecords": // its example creates a member
			return -1
		case op.ID == "removeGuild":
			return 2
		case op.Method == "DELETE", strings.HasPrefix(op.ID, "forget"):
			return 1
		}
		return 0
	}
	slices.SortStableFunc(ops, func(a, b apitest.Operation) int { return last(a) - last(b) })
	for _, op := range ops {
		t.Run(op.ID, func(t *testing.T) {
			var path, query []apitest.Arg
			for _, p := range op.Spec.Parameters {
				switch {
				case p.Value.In == openapi3.ParameterInQuery && p.Value.Example == nil:
				case p.Value.In == openapi3.ParameterInQuery:
					b, err := json.Marshal(p.Value.Example)
					if err != nil {
						t.Fatal(err)
					}
					arg := apitest.Query(p.Value.Name, strings.Trim(strings.ReplaceAll(string(b), `","`, ","), `["]`))
					if p.Value.Required {
						path = append(path, arg)
						continue
					}
					query = append(query, arg)
				case p.Value.In != openapi3.ParameterInPath:
				case p.Value.Name == "deliveryId":
					path = append(path, apitest.Path("deliveryId", delivery))
				case op.ID == "getLedgerEntry":
					path = append(path, apitest.Path("id", entry))
				case strings.HasPrefix(op.Path, "/webhooks/{id}/events/"):
					path = append(path, apitest.Path("id", kept))
				case strings.HasPrefix(op.Path, "/webhooks/"):
					path = append(path, apitest.Path("id", hook))
				default:
					example := p.Value.Example // an example may be a number too
					if other, ok := otherExamples[op.ID]; ok {
						example = other
					} else if example == nil {
						t.Fatalf("the document shows no example of %s, which stands in the path", p.Value.Name)
					}
					path = append(path, apitest.Path(p.Value.Name, fmt.Sprint(example)))
				}
			}
			status, want := success(op)
			for _, body := range bodies(t, op) {
				body = strings.ReplaceAll(body, shown, ours)
				caller := api.May(t, op)
				if op.ID == "putBotStream" || op.ID == "deleteBotStream" { // these need a bot key of every guild
					caller = api.Bot(t)
				}
				got := caller.Do(t, op.ID, body, path...).Want(t, status, "")
				if status != 204 && !slices.ContainsFunc(want, func(w any) bool { return sameMembers(w, decode(t, got.Body)) }) {
					t.Errorf("the answer\n%s\nhas other members than its examples", got.Body)
				}
			}
			if len(query) > 0 {
				api.May(t, op).Do(t, op.ID, "", append(path, query...)...).Want(t, status, "")
			}
		})
	}
}

// demo returns a server with the demo guild and a token of that guild. A reader of the reference
// can send the first example of a balance change twice.
func TestTheFirstExampleOfAChangeCanBeSentTwice(t *testing.T) {
	t.Parallel()
	a := apitest.New(t)
	for range 2 {
		a.Do(t, "adjustBalance", example(t, "adjustBalance")).Want(t, 200, "")
	}
}

func demo(t *testing.T) *apitest.API {
	t.Helper()
	api := apitest.New(t)
	var file bytes.Buffer
	if err := guildfile.Demo(&file); err != nil {
		t.Fatal(err)
	}
	if _, err := guildfile.Import(context.Background(), api.DB(), &file, nil); err != nil {
		t.Fatal(err)
	}
	token, err := auth.Create(context.Background(), api.DB(), auth.New{
		GuildID: guildfile.DemoGuild, Env: "test", Name: "examples", Scopes: auth.Scopes,
	})
	if err != nil {
		t.Fatal(err)
	}
	view := *api
	view.Guild, view.Token = guildfile.DemoGuild, token.Secret
	return &view
}

// success returns the documented success status of an operation and its example bodies.
func success(op apitest.Operation) (int, []any) {
	for _, status := range op.Statuses() {
		if status < 300 {
			media := op.Spec.Responses.Status(status).Value.Content.Get("application/json")
			if media == nil {
				return status, nil
			}
			return status, examplesOf(media)
		}
	}
	return 0, nil
}

// bodies returns the example request bodies of an operation, or one empty body if there are none.
func bodies(t *testing.T, op apitest.Operation) []string {
	t.Helper()
	if op.Spec.RequestBody == nil {
		return []string{""}
	}
	var list []string
	for _, example := range examplesOf(op.Spec.RequestBody.Value.Content.Get("application/json")) {
		b, err := json.Marshal(example)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, string(b))
	}
	return list
}

func examplesOf(media *openapi3.MediaType) []any {
	if media.Example != nil {
		return []any{media.Example}
	}
	var list []any
	for _, name := range slices.Sorted(maps.Keys(media.Examples)) {
		list = append(list, media.Examples[name].Value.Value)
	}
	return list
}

func decode(t *testing.T, body []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// sameMembers reports whether two values have the same members at all levels. Lists are compared by
// their first items, and an empty list matches any.
func sameMembers(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, value := range a {
			if name == "metadata" { // the members of metadata are chosen by callers
				continue
			}
			other, ok := b[name]
			if !ok || (value != nil && other != nil && !sameMembers(value, other)) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && (len(a) == 0 || len(b) == 0 || sameMembers(a[0], b[0]))
	default:
		return true
	}
}
