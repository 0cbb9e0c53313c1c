package webhooks_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/egress/egresstest"
	"guildhall/internal/server/api/apitest"
)

// wantScope checks that a refusal names the scope.
func wantScope(t *testing.T, a *apitest.Response, scope string) {
	t.Helper()
	a.WantError(t, 403, "insufficient_scope")
	if got := a.Str(t, "error.required_scope"); got != scope {
		t.Errorf("required_scope is %q, want %q", got, scope)
	}
	if got, want := a.Header.Get("WWW-Authenticate"), `Bearer error="insufficient_scope", scope="`+scope+`"`; got != want {
		t.Errorf("WWW-Authenticate is %q, want %q", got, want)
	}
}

func TestEventsNeedTheirReadScope(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	api := apitest.New(t, apitest.Names(func(string, bool) egresstest.Answer {
		asked.Add(1)
		return egresstest.Addresses("127.0.0.1")
	}))
	manager := api.As(t, "webhooks:manage", "economy:read")
	body := func(events ...string) string {
		return `{"url":"https://hooks.test/","events":["` + strings.Join(events, `","`) + `"]}`
	}
	for event, scope := range map[string]string{
		"case.updated": "cases:read", "xp.level_up": "levelling:read", "ticket.message": "tickets:read", "giveaway.ended": "giveaways:read",
	} {
		wantScope(t, manager.Do(t, "createWebhookEndpoint", body("economy.balance_changed", event)), scope)
	}
	wantScope(t, manager.Do(t, "createWebhookEndpoint", body("xp.level_up", "ticket.closed", "case.created")), "cases:read")
	if n := asked.Load(); n != 0 {
		t.Errorf("%d names were looked up for requests that are refused anyway", n)
	}
	keyed := manager.Key("k")
	wantScope(t, keyed.Do(t, "createWebhookEndpoint", body("case.created")), "cases:read")
	// The 403 was not stored under the key.
	id := keyed.Do(t, "createWebhookEndpoint", body("economy.balance_changed")).Want(t, 201, "").Str(t, "data.id")
	on := apitest.Path("id", id)
	wantScope(t, manager.Do(t, "updateWebhookEndpoint", `{"events":["economy.balance_changed","ticket.message"]}`, on), "tickets:read")
	manager.Do(t, "updateWebhookEndpoint", `{"url":"https://other.test/","description":"mine"}`, on).Want(t, 200, "")
	manager.Do(t, "rotateWebhookSecret", "", on).Want(t, 200, "")
}

// A token that may not read an endpoint's events can disable the endpoint, and can change nothing
// else.
func TestAnEndpointOfUnreadableEvents(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	id, _ := register(t, api, "https://127.0.0.1:9/") // listens to economy.balance_changed and case.created
	on := apitest.Path("id", id)
	delivery := api.Do(t, "testWebhookEndpoint", "", on).Want(t, 202, "").Str(t, "data.id")
	of := apitest.Path("deliveryId", delivery)
	refuses := func(t *testing.T, view *apitest.API, scope string) {
		t.Helper()
		for _, patch := range []string{
			`{"url":"https://127.0.0.1:10/"}`, `{"events":["xp.level_up"]}`, `{"enabled":true}`, `{"description":"x"}`,
			`{"enabled":false,"url":"https://127.0.0.1:10/"}`,
		} {
			wantScope(t, view.Do(t, "updateWebhookEndpoint", patch, on), scope)
		}
		wantScope(t, view.Do(t, "rotateWebhookSecret", "", on), scope)
		wantScope(t, view.Do(t, "testWebhookEndpoint", "", on), scope)
		wantScope(t, view.Do(t, "listWebhookDeliveries", "", on), scope)
		wantScope(t, view.Do(t, "getWebhookDelivery", "", on, of), scope)
		wantScope(t, view.Do(t, "redeliverWebhookDelivery", "", on, of), scope)
	}
	bare := api.As(t, "webhooks:manage")
	refuses(t, bare, "cases:read")
	refuses(t, api.As(t, "webhooks:manage", "cases:read", "levelling:read"), "economy:read")

	bare.Do(t, "listWebhookEndpoints", "").Want(t, 200, `{"data":[{"id":"`+id+`"}]}`)
	bare.Do(t, "getWebhookEndpoint", "", on).Want(t, 200, `{"data":{"url":"https://127.0.0.1:9/","description":null,"enabled":true}}`)
	bare.Do(t, "updateWebhookEndpoint", `{"enabled":false}`, on).Want(t, 200, `{"data":{"enabled":false}}`)
	bare.Do(t, "getWebhookDelivery", "", apitest.Path("id", "no-such"), of).WantError(t, 404, "not_found")

	t.Run("nor what its log still holds of events it got before", func(t *testing.T) {
		api.Do(t, "updateWebhookEndpoint", `{"enabled":true}`, on).Want(t, 200, "")
		api.Do(t, "adjustBalance", `{"user_id":"42","delta":5}`).Want(t, 200, "")
		api.Do(t, "updateWebhookEndpoint", `{"events":["case.created"]}`, on).Want(t, 200, "")
		refuses(t, api.As(t, "webhooks:manage", "cases:read", "levelling:read"), "economy:read")
		reader := api.As(t, "webhooks:manage", "cases:read", "economy:read")
		reader.Do(t, "getWebhookDelivery", "", on, of).Want(t, 200, "")
		reader.Do(t, "updateWebhookEndpoint", `{"description":"y"}`, on).Want(t, 200, "")
	})
	t.Run("but what another endpoint's log holds is nothing to this one", func(t *testing.T) {
		other := apitest.Path("id", api.Do(t, "createWebhookEndpoint", `{"url":"https://127.0.0.1:9/","events":["case.created"]}`).
			Want(t, 201, "").Str(t, "data.id"))
		api.As(t, "webhooks:manage", "cases:read").Do(t, "listWebhookDeliveries", "", other).Want(t, 200, `{"data":[]}`)
	})
	bare.Do(t, "deleteWebhookEndpoint", "", on).Want(t, 204, "")
}

// RELIABILITY.md, Events.
func TestRotationEndsOldSecrets(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	receiver := newVerifier(t)
	id, first := register(t, api, receiver.URL)
	work(t, config(t, api, receiver))
	on := apitest.Path("id", id)
	for _, bad := range []string{
		`{"old_secret_expires_in":-1}`, `{"old_secret_expires_in":86401}`, `{"old_secret_expires_in":"0"}`,
		`{"expires_in":0}`, `[]`,
	} {
		api.Do(t, "rotateWebhookSecret", bad, on).WantError(t, 400, "invalid_request")
	}
	verifies := func(secret string) bool {
		receiver.expect(secret, 200)
		queued := api.Do(t, "testWebhookEndpoint", "", on).Want(t, 202, "").Str(t, "data.id")
		var last struct {
			Data struct {
				AttemptCount   int  `json:"attempt_count"`
				ResponseStatus *int `json:"response_status"`
			}
		}
		testutil.Eventually(t, "the ping", func() bool {
			api.Do(t, "getWebhookDelivery", "", on, apitest.Path("deliveryId", queued)).Into(t, &last)
			return last.Data.AttemptCount > 0
		})
		return last.Data.ResponseStatus != nil && *last.Data.ResponseStatus == 200
	}
	second := api.Do(t, "rotateWebhookSecret", `{"old_secret_expires_in":null}`, on).Want(t, 200, "").Str(t, "data.secret")
	third := api.Do(t, "rotateWebhookSecret", `{"old_secret_expires_in":3600}`, on).Want(t, 200, "").Str(t, "data.secret")
	for i, s := range []string{first, second, third} {
		if !verifies(s) {
			t.Errorf("secret %d does not sign", i)
		}
	}
	fourth := api.Do(t, "rotateWebhookSecret", `{"old_secret_expires_in":3600}`, on).Want(t, 200, "").Str(t, "data.secret")
	for i, s := range []string{first, second, third, fourth} {
		if verifies(s) != (s != first) {
			t.Errorf("after a third rotation, which ends the oldest, secret %d: %t", i, s == first)
		}
	}
	last := api.Do(t, "rotateWebhookSecret", `{"old_secret_expires_in":0}`, on).Want(t, 200, "").Str(t, "data.secret")
	for i, s := range []string{first, second, third, fourth, last} {
		if verifies(s) != (s == last) {
			t.Errorf("after the old secrets were ended, secret %d: %t", i, s != last)
		}
		api.Do(t, "updateWebhookEndpoint", `{"enabled":false}`, on).Want(t, 200, "") // not blocked, and without queued pings
		api.Do(t, "updateWebhookEndpoint", `{"enabled":true}`, on).Want(t, 200, "")
	}
}
