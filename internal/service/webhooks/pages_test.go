package webhooks_test

import (
	"fmt"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/webhooks"
)

// The overview shows for each endpoint its own health and numbers: its deliveries by what they wait
// for, its last day, and its secrets that still sign.
func TestEachEndpointFaresForItself(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Unlisten(t, api.DB(), api.Guild)
	push, _ := register(t, api, "https://127.0.0.1:9/")
	other, _ := register(t, api, "https://127.0.0.1:9/")
	pull := keep(t, api)
	fill(t, api, push, "waits-", 2, "pending", "")
	fill(t, api, push, "held-", 3, "held", "")
	fill(t, api, push, "ok-", 4, "delivered", "2xx")
	fill(t, api, other, "also-", 5, "pending", "")
	fill(t, api, pull, "gone-", 2, "delivered", "")
	fill(t, api, pull, "mine-", 2, "pending", "")
	behind := func(prefix, interval string) {
		dbtest.Exec(t, api.DB(), `
			UPDATE webhook_deliveries SET due_at = now() + $3::text::interval
			WHERE guild_id = $1 AND id LIKE $2 || '-%'`, api.Guild, prefix, interval)
	}
	behind("gone", "-2 hours") // an event that was fetched no longer counts as waiting
	behind("waits", "-3 hours")
	behind("mine", "1 hour")
	hours := func(endpoint, ago, outcome string, n int) {
		dbtest.Exec(t, api.DB(), `
			INSERT INTO webhook_hours (guild_id, endpoint_id, hour, outcome, deliveries)
			VALUES ($1, $2, date_trunc('hour', now() - $3::text::interval), $4, $5)`, api.Guild, endpoint, ago, outcome, n)
	}
	hours(push, "23 hours", "delivered", 7)
	hours(push, "0 hours", "failed", 2)
	hours(push, "0 hours", "open", 0)
	dbtest.Exec(t, api.DB(), `UPDATE webhook_hours SET failed_attempts = 3 WHERE outcome <> 'delivered'`)
	hours(push, "25 hours", "delivered", 100)
	hours(other, "0 hours", "delivered", 30)
	dbtest.Exec(t, api.DB(), `
		UPDATE webhook_endpoints
		SET old_secrets = jsonb_build_array(
		    jsonb_build_object('until', now() + interval '1 hour'), jsonb_build_object('until', now() - interval '1 hour'))
		WHERE guild_id = $1 AND id = $2`, api.Guild, push)
	dbtest.Exec(t, api.DB(), `
		INSERT INTO webhook_schedule (guild_id, endpoint_id, failing_since) VALUES ($1, $2, now())
		ON CONFLICT (guild_id, endpoint_id) DO UPDATE SET failing_since = excluded.failing_since`, api.Guild, other)

	wants := func(about string, list ...string) {
		t.Helper()
		all, err := webhooks.Standings(t.Context(), api.DB().Reader(), api.Guild)
		if err != nil || len(all) != len(list) {
			t.Fatalf("%s: %d endpoints, %v", about, len(all), err)
		}
		for i, s := range all {
			got := fmt.Sprintf("delivered %d, failed %d, attempts %d, waiting %d, held %d, signing %d, failing %v, behind %v",
				s.Delivered, s.Failed, s.FailedAttempts, s.Waiting, s.Held, s.OldSecrets, s.FailingSince != nil, s.BehindSince != nil)
			if got != list[i] {
				t.Errorf("%s: endpoint %d of %d has\n%s, want\n%s", about, i, len(all), got, list[i])
			}
		}
	}
	others := []string{
		"delivered 30, failed 0, attempts 0, waiting 5, held 0, signing 0, failing true, behind false",
		"delivered 7, failed 2, attempts 6, waiting 2, held 3, signing 1, failing false, behind false",
	}
	wants("nothing can be fetched yet", append([]string{
		"delivered 0, failed 0, attempts 0, waiting 2, held 0, signing 0, failing false, behind false",
	}, others...)...)
	behind("mine", "-1 minute")
	wants("some can be fetched", append([]string{
		"delivered 0, failed 0, attempts 0, waiting 2, held 0, signing 0, failing false, behind true",
	}, others...)...)
}
