package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"guildhall/gen"
	"guildhall/internal/base/db"
)

// The log can be filtered by type, class, time and number, and failed deliveries since an instant
// are requeued once.
func TestTheLogIsFilteredAndWhatFailedIsRecovered(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	pool, err := db.OpenSQL(url, "log", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	const endpoint = "0199f0a0-0000-7000-8000-00000000000e"
	for _, statement := range []string{
		`
			INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
			VALUES ($1, $2, 'https://example.com', '{case.created,case.updated}', '\x00', '')`,
		`INSERT INTO webhook_schedule (guild_id, endpoint_id) VALUES ($1, $2)`,
		`INSERT INTO webhook_events (guild_id, id, type, payload, occurred_at)
		 SELECT $1, 'event-' || age, type, '{}', now() - age * interval '1 hour'
		 FROM (VALUES (72, 'case.created', $2), (1, 'case.updated', $2), (0, 'case.created', $2)) AS v (age, type, unused)`,
		`INSERT INTO webhook_deliveries (guild_id, id, endpoint_id, event_id, event_type, event_at, created_at,
			fresh, state, attempts, response_class, completed_at)
		 SELECT $1, 'delivery-' || age, $2, 'event-' || age, type, at, at, false, state, 13, class, now()
		 FROM (VALUES (72, 'case.created', 'failed', '5xx'), (1, 'case.updated', 'failed', 'none'),
			(0, 'case.created', 'delivered', '2xx')) AS v (age, type, state, class),
		      LATERAL (SELECT now() - age * interval '1 hour' AS at) a`,
	} {
		if _, err := pool.ExecContext(t.Context(), statement, guild, endpoint); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	command := func(args ...string) result {
		return call(t, "", append([]string{"webhook", args[0], "--database-url", url}, args[1:]...)...)
	}
	for flags, want := range map[string][]string{
		"":                          {"delivery-0", "delivery-1", "delivery-72"},
		"--event-type case.updated": {"delivery-1"},
		"--response-class none":     {"delivery-1"},
		"--response-class 5xx":      {"delivery-72"},
		"--status failed":           {"delivery-1", "delivery-72"},
		"--since 2h":                {"delivery-0", "delivery-1"},
		"--since " + time.Now().Add(-30*time.Minute).UTC().Format(time.RFC3339): {"delivery-0"},
		"--limit 2": {"delivery-0", "delivery-1"},
		"--status failed --event-type case.created --response-class 5xx --since 4d": {"delivery-72"},
		"--status failed --since 30m": {},
	} {
		var log []gen.WebhookDelivery
		out := command(append([]string{"deliveries", endpoint, "--json"}, strings.Fields(flags)...)...).ok(t)
		if err := json.Unmarshal([]byte(out), &log); err != nil {
			t.Fatalf("%s: %v: %s", flags, err, out)
		}
		got := []string{}
		for _, d := range log {
			got = append(got, d.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("deliveries %s prints %v, want %v", flags, got, want)
		}
	}
	if out := command("deliveries", endpoint, "--event-type", "case.updated").ok(t); !strings.Contains(out, "delivery-1 ") ||
		strings.Contains(out, "delivery-0") {
		t.Errorf("the table is %s", out)
	}
	command("deliveries", endpoint, "--since", "yesterday").refused(t, 2, "yesterday")
	command("deliveries", endpoint, "--response-class", "6xx").refused(t, 2, "6xx")
	command("deliveries", endpoint, "--event-type", "case.eaten").refused(t, 2, "case.eaten")
	command("deliveries", "nobody").refused(t, 1, "No such webhook endpoint.")

	command("recover", endpoint).refused(t, 2, "--since")
	command("recover", endpoint, "--since", "").refused(t, 2, "--since")
	command("recover", endpoint, "--since", "soon").refused(t, 2, "soon")
	command("recover", "nobody", "--since", "2h").refused(t, 1, "No such webhook endpoint.")
	if out := command("recover", endpoint, "--since", "2h").ok(t); out != "Queued 1 delivery again.\n" {
		t.Errorf("recover prints %q", out)
	}
	var again gen.WebhookRecovery
	for want, since := range []string{"2h", "4d"} { // a delivery that is already queued is not queued again
		out := command("recover", endpoint, "--since", since, "--json").ok(t)
		if err := json.Unmarshal([]byte(out), &again); err != nil || again.QueuedCount != want {
			t.Errorf("recover --since %s prints %s, %v", since, out, err)
		}
	}
	var queued string
	err = pool.QueryRowContext(t.Context(), `
		SELECT string_agg(event_id, ' ' ORDER BY event_id)
		FROM webhook_deliveries
		WHERE endpoint_id = $1 AND state = 'pending' AND cause = 'redelivery'
		  AND due_at = (SELECT recovered_at FROM webhook_schedule WHERE endpoint_id = $1)`, endpoint).Scan(&queued)
	if err != nil || queued != "event-1 event-72" {
		t.Errorf("queued are %s, %v", queued, err)
	}
}
