package webhooks_test

import (
	"strings"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/webhooks"
)

// An endpoint shows its health: without attempts; failing, with the problem and the time of the
// next attempt; healthy again, with the last failure; disabled, with the reason. None of these
// changes updated_at.
func TestAnEndpointShowsItsHealth(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	made := api.Do(t, "createWebhookEndpoint", `{"url":"https://93.184.215.14/hook","events":["economy.balance_changed"]}`).
		Want(t, 201, `{"data":{"health":{"state":"new","problem":null,"last_failure":null,"failed_attempt_count":0}}}`)
	id, updated := made.Str(t, "data.id"), made.Str(t, "data.updated_at")
	health := func(want string) *apitest.Response {
		t.Helper()
		api.Do(t, "listWebhookEndpoints", "").Want(t, 200, `{"data":[{"health":`+want+`}]}`)
		return api.Do(t, "getWebhookEndpoint", "", apitest.Path("id", id)).Want(t, 200, `{"data":{"updated_at":"`+updated+`","health":`+want+`}}`)
	}
	api.Do(t, "adjustBalance", `{"user_id":"42","delta":1}`).Want(t, 200, "")
	dbtest.Exec(t, api.DB(), `
		UPDATE webhook_schedule
		SET failures = 7, failed_attempts = 41, failing_since = '2026-06-15T09:03:00Z', blocked_until = now() + interval '9 minutes', blocks = 3,
		    next_due = now() + interval '9 minutes',
		    last_failure = '{"at":"2026-06-15T09:14:00Z","delivery_id":"d1",
		        "status":401,"outcome":"client_error","error":"The receiver answered 401."}'
		WHERE endpoint_id = $1`, id)
	failing := health(`{"state":"failing","failing_since":"2026-06-15T09:03:00.000Z","failed_attempt_count":41,
		"last_attempt_at":"2026-06-15T09:14:00.000Z","last_success_at":null,
		"last_failure":{"at":"2026-06-15T09:14:00.000Z","delivery_id":"d1","response_status":401,"error":"The receiver answered 401."}}`)
	next := dbtest.Value[bool](t, api.DB(), `SELECT $1::timestamptz BETWEEN now() + interval '8 minutes' AND now() + interval '9 minutes'`,
		failing.Str(t, "data.health.next_attempt_at"))
	if problem := failing.Str(t, "data.health.problem"); !next || !strings.Contains(problem, "answered 401, so it does not know who asks") {
		t.Errorf("next %v, and the problem is %q", next, problem)
	}
	if failing.Str(t, "data.health.oldest_waiting_at") == "" {
		t.Error("nothing waits")
	}

	dbtest.Exec(t, api.DB(), `
		UPDATE webhook_schedule
		SET failures = 0, failed_attempts = 0, failing_since = NULL, blocked_until = NULL, blocks = 0, next_due = NULL
		WHERE endpoint_id = $1`, id)
	dbtest.Exec(t, api.DB(), `UPDATE webhook_deliveries SET state = 'delivered', completed_at = now() WHERE endpoint_id = $1`, id)
	dbtest.Exec(t, api.DB(), `
		INSERT INTO webhook_hours (guild_id, endpoint_id, hour, outcome, deliveries, last_at)
		VALUES ($1, $2, '2026-06-15T09:00:00Z', 'delivered', 1, '2026-06-15T09:20:00Z')`, api.Guild, id)
	health(`{"state":"healthy","problem":null,"last_success_at":"2026-06-15T09:20:00.000Z","last_attempt_at":"2026-06-15T09:20:00.000Z",
		"last_failure":{"response_status":401},"next_attempt_at":null,"oldest_waiting_at":null,"failed_attempt_count":0}`)

	dbtest.Exec(t, api.DB(), `UPDATE webhook_endpoints SET enabled = false, disabled_reason = 'gone' WHERE id = $1`, id)
	gone := health(`{"state":"disabled","next_attempt_at":null}`)
	if problem := gone.Str(t, "data.health.problem"); !strings.Contains(problem, "answered 410") {
		t.Errorf("the problem is %q", problem)
	}
	dbtest.Exec(t, api.DB(), `UPDATE webhook_endpoints SET enabled = true, disabled_reason = NULL WHERE id = $1`, id)
	api.Do(t, "updateWebhookEndpoint", `{"url":"https://93.184.215.15/hook"}`, apitest.Path("id", id)).
		Want(t, 200, `{"data":{"health":{"state":"new","last_failure":null,"last_success_at":null,"last_attempt_at":null}}}`)
}

// A pull endpoint is failing when its oldest event has waited for two days.
func TestAPullEndpointShowsItsHealth(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	id := api.Do(t, "createWebhookEndpoint", `{"delivery":"pull","events":["economy.balance_changed"]}`).
		Want(t, 201, `{"data":{"health":{"state":"new","last_attempt_at":null}}}`).Str(t, "data.id")
	on := apitest.Path("id", id)
	api.Do(t, "adjustBalance", `{"user_id":"42","delta":1}`).Want(t, 200, "")
	event := api.Do(t, "pullWebhookEvents", `{}`, on).Want(t, 200, "").All(t, "id")[0]
	api.Do(t, "getWebhookEndpoint", "", on).Want(t, 200, `{"data":{"health":{"state":"healthy","last_success_at":null,"problem":null}}}`)
	dbtest.Exec(t, api.DB(), `UPDATE webhook_deliveries SET event_at = now() - interval '50 hours' WHERE endpoint_id = $1`, id)
	late := api.Do(t, "getWebhookEndpoint", "", on).Want(t, 200, `{"data":{"health":{"state":"failing"}}}`)
	if problem := late.Str(t, "data.health.problem"); !strings.Contains(problem, "two days") {
		t.Errorf("the problem is %q", problem)
	}
	ack(t, api, id, `{"event_ids":`+list(event)+`}`, `{"settled_count":1}`)
	api.Do(t, "getWebhookEndpoint", "", on).Want(t, 200, `{"data":{"health":{"state":"healthy","problem":null,"oldest_waiting_at":null}}}`)
	all, err := webhooks.Standings(t.Context(), api.DB().Reader(), api.Guild)
	if err != nil || len(all) != 1 || all[0].Health.LastSuccessAt == nil {
		t.Errorf("the last acknowledgement is not shown: %+v, %v", all, err)
	}
}
