package webhooks_test

import (
	"context"
	"strconv"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
)

// fill adds n deliveries to an endpoint's log, the oldest first, each with its own event,
// alternating between two event types, all in the given state.
func fill(t *testing.T, api *apitest.API, endpoint, prefix string, n int, state, class string) {
	t.Helper()
	dbtest.Exec(t, api.DB(), `
			WITH ev AS (
				INSERT INTO webhook_events (guild_id, id, type, payload)
				SELECT $1, $3 || i, CASE WHEN i % 2 = 0 THEN 'case.created' ELSE 'economy.balance_changed' END, '{}'
				FROM generate_series(1, $4::int) i
				RETURNING guild_id, id, type, occurred_at
			)
			INSERT INTO webhook_deliveries (guild_id, endpoint_id, id, event_id, event_type, event_at, state, fresh, response_class, completed_at)
			SELECT guild_id, $2, id, id, type, occurred_at, $5, false, nullif($6, ''), CASE WHEN $5 IN ('failed', 'delivered') THEN now() END
			FROM ev`, api.Guild, endpoint, prefix, n, state, class)
	t.Cleanup(func() { // CheckBooks would find no changes that belong to these events
		err := api.DB().Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
			if _, err := tx.ExecContext(ctx, `
				DELETE
				FROM webhook_deliveries
				WHERE guild_id = $1 AND endpoint_id = $2`, api.Guild, endpoint); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, `DELETE FROM webhook_events WHERE guild_id = $1 AND payload = '{}'`, api.Guild)
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestDeliveriesAreFiltered(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	id, _ := register(t, api, "https://127.0.0.1:9/")
	on := apitest.Path("id", id)
	fill(t, api, id, "ok-", 2, "delivered", "2xx")
	fill(t, api, id, "bad-", 2, "failed", "5xx")
	fill(t, api, id, "lost-", 2, "failed", "none")
	fill(t, api, id, "new-", 2, "held", "")
	for query, want := range map[[4]string]int{
		{}:                                                 8,
		{"response_class", "2xx"}:                          2,
		{"response_class", "5xx"}:                          2,
		{"response_class", "none"}:                         2,
		{"response_class", "3xx"}:                          0,
		{"event_type", "case.created"}:                     4,
		{"event_type", "ping"}:                             0,
		{"since", "2020-01-01T00:00:00Z"}:                  8,
		{"since", "2099-01-01T00:00:00Z"}:                  0,
		{"status", "failed", "response_class", "none"}:     2,
		{"status", "delivered", "response_class", "2xx"}:   2,
		{"status", "failed", "response_class", "2xx"}:      0,
		{"status", "failed", "event_type", "case.created"}: 2,
	} {
		args := []apitest.Arg{on}
		for i := 0; i < 4 && query[i] != ""; i += 2 {
			args = append(args, apitest.Query(query[i], query[i+1]))
		}
		var list struct{ Data []struct{ ID string } }
		api.Do(t, "listWebhookDeliveries", "", args...).Want(t, 200, "").Into(t, &list)
		if len(list.Data) != want {
			t.Errorf("%v lists %v, want %d", query, list.Data, want)
		}
	}
	for name, bad := range map[string]string{"event_type": "case.eaten", "response_class": "200", "since": "yesterday"} {
		api.Do(t, "listWebhookDeliveries", "", on, apitest.Query(name, bad)).WantError(t, 400, "invalid_request")
	}
}

// The log shows when the next attempt is made: not before the endpoint's pause ends, unless the
// delivery ignores the pause because it is urgent or was recovered that way.
func TestTheLogSaysWhenTheNextAttemptIs(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	id, _ := register(t, api, "https://127.0.0.1:9/")
	const due, recovered, quiet = "2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z", "2026-01-03T00:00:00.000Z"
	fill(t, api, id, "due-", 1, "pending", "")
	fill(t, api, id, "urgent-", 1, "pending", "")
	fill(t, api, id, "again-", 1, "pending", "")
	fill(t, api, id, "done-", 1, "failed", "5xx")
	dbtest.Exec(t, api.DB(), `
		UPDATE webhook_deliveries
		SET urgent = id = 'urgent-1', due_at = CASE WHEN id = 'again-1' THEN $3::timestamptz ELSE $2::timestamptz END
		WHERE guild_id = $1`, api.Guild, due, recovered)
	wants := func(passes bool, again string) {
		t.Helper()
		dbtest.Exec(t, api.DB(), `
			INSERT INTO webhook_schedule (guild_id, endpoint_id, quiet_until, recovered_at, recovered_passes)
			VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (guild_id, endpoint_id) DO UPDATE
			SET quiet_until = excluded.quiet_until, recovered_at = excluded.recovered_at, recovered_passes = excluded.recovered_passes`,
			api.Guild, id, quiet, recovered, passes)
		for delivery, at := range map[string]string{
			"due-1": `"` + quiet + `"`, "urgent-1": `"` + due + `"`, "again-1": `"` + again + `"`, "done-1": "null",
		} {
			api.Do(t, "getWebhookDelivery", "", apitest.Path("id", id), apitest.Path("deliveryId", delivery)).
				Want(t, 200, `{"data":{"next_attempt_at":`+at+`}}`)
		}
	}
	wants(true, recovered)
	wants(false, quiet)
}

// A delivery whose event is already deleted, as after 30 days, is listed like any other.
func TestADeliveryWithoutItsEventIsListed(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	id, _ := register(t, api, "https://127.0.0.1:9/")
	on := apitest.Path("id", id)
	fill(t, api, id, "x-", 3, "failed", "none")
	dbtest.Exec(t, api.DB(), `DELETE FROM webhook_events WHERE guild_id = $1 AND id = 'x-2'`, api.Guild)
	api.Do(t, "listWebhookDeliveries", "", on, apitest.Query("per_page", "2")).
		Want(t, 200, `{"data":[{"id":"x-3"},{"id":"x-2","event_type":"case.created"}],"has_more":true}`)
	lost := apitest.Path("deliveryId", "x-2")
	api.Do(t, "getWebhookDelivery", "", on, lost).Want(t, 200, `{"data":{"event_id":"x-2","request_body":""}}`)
	api.Do(t, "redeliverWebhookDelivery", "", on, lost).WantError(t, 404, "not_found")
}

func TestRecoverQueuesWhatHasNotArrived(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	id, _ := register(t, api, "https://127.0.0.1:9/")
	on := apitest.Path("id", id)
	const long = `{"since":"2020-01-01T00:00:00Z"}`
	recovered := func(body string) string {
		var a struct {
			Data struct {
				N int `json:"queued_count"`
			}
		}
		api.Do(t, "recoverWebhookDeliveries", body, on).Want(t, 202, "").Into(t, &a)
		return strconv.Itoa(a.Data.N)
	}
	fill(t, api, id, "ok-", 3, "delivered", "2xx")
	fill(t, api, id, "bad-", 4, "failed", "5xx")
	api.Do(t, "redeliverWebhookDelivery", "", on, apitest.Path("deliveryId", "bad-1")).
		Want(t, 202, `{"data":{"event_id":"bad-1","status":"pending"}}`)
	if n := recovered(`{"since":"2099-01-01T00:00:00Z"}`); n != "0" {
		t.Errorf("%s queued of what failed after 2099", n)
	}
	// One of the four deliveries is waiting already.
	if n := recovered(long); n != "3" {
		t.Errorf("%s queued, want 3", n)
	}
	if n := recovered(long); n != "0" {
		t.Errorf("%s queued twice", n)
	}
	api.Do(t, "updateWebhookEndpoint", `{"enabled":false}`, on).Want(t, 200, "")
	fill(t, api, id, "late-", 2, "failed", "none")
	if n := recovered(long); n != "2" {
		t.Errorf("%s queued of a disabled endpoint, want 2", n)
	}
	api.Do(t, "listWebhookDeliveries", "", on, apitest.Query("status", "held"), apitest.Query("per_page", "2")).
		Want(t, 200, `{"data":[{"status":"held","next_attempt_at":null},{"status":"held"}]}`)
	for _, bad := range []string{"", `{}`, `{"since":"yesterday"}`, `{"since":"2020-01-01T00:00:00Z","limit":1}`} {
		api.Do(t, "recoverWebhookDeliveries", bad, on).WantError(t, 400, "invalid_request")
	}
	api.Do(t, "recoverWebhookDeliveries", long, apitest.Path("id", "no-such")).WantError(t, 404, "not_found")
	api.Next(t).Do(t, "recoverWebhookDeliveries", long, on).WantError(t, 404, "not_found")
	wantScope(t, api.As(t, "webhooks:manage", "cases:read").Do(t, "recoverWebhookDeliveries", long, on), "economy:read")
}
