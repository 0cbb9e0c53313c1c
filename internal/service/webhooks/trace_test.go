package webhooks

import (
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// A trace holds the events of one record at its instants: not those of another record, family
// or guild of the same millisecond, and not those of other times.
func TestATraceHoldsTheEventsOfOneRecord(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1", "2")
	at := time.Date(2026, 3, 1, 12, 0, 0, 5_000_000, time.UTC)
	emitted := map[string]string{}
	for _, e := range []struct {
		name, guild, typ, data string
		at                     time.Time
	}{
		{"created", "1", "case.created", `{"id":"c"}`, at},
		{"another case", "1", "case.created", `{"id":"d","reason":"c"}`, at},
		{"another family", "1", "ticket.opened", `{"id":"c"}`, at},
		{"another guild", "2", "case.created", `{"id":"c"}`, at},
		{"updated", "1", "case.updated", `{"id":"c"}`, at.Add(time.Hour)},
		{"another time", "1", "case.updated", `{"id":"c"}`, at.Add(time.Hour + time.Millisecond)},
		{"balance", "1", "economy.balance_changed", `{"ledger_entry_id":"l"}`, at},
	} {
		id := db.NewIDAt(e.at)
		emitted[id] = e.name
		dbtest.Exec(t, d, `
			INSERT INTO webhook_events (guild_id, id, type, occurred_at, payload)
			VALUES ($1, $2, $3, $4, convert_to('{"data":' || $5 || '}', 'UTF8'))`, e.guild, id, e.typ, e.at, e.data)
	}
	dbtest.Exec(t, d, `
		INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview) VALUES ('1', 'here', 'https://here.test/', '{}', '',
			'')`)
	dbtest.Exec(t, d, `
		INSERT INTO webhook_deliveries (guild_id, id, endpoint_id, event_id, event_type, state)
		SELECT guild_id, e || id, e, id, type, 'held' FROM webhook_events, unnest('{gone,here}'::text[]) e`)
	dbtest.Exec(t, d, `INSERT INTO stream_deliveries (guild_id, stream_id, event_id, event_at) SELECT guild_id, 's', id, occurred_at
			FROM webhook_events`)
	for _, c := range []struct {
		family, id string
		instants   []time.Time
		want       string
	}{
		{"case.", "c", []time.Time{at, at.Add(time.Hour), at}, "created, updated"},
		{"case.", "c", []time.Time{at.Add(time.Microsecond)}, "created"},
		{"case.", "c", []time.Time{at.Add(time.Millisecond)}, ""},
		{"case.", "c", nil, ""},
		{"economy.", "l", []time.Time{at}, "balance"},
	} {
		list, err := Trace(t.Context(), d.Reader(), "1", c.family, c.id, c.instants...)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range list {
			names = append(names, emitted[e.ID])
			if len(e.Outcomes) != 2 || e.Streams != 1 || e.Outcomes[0].Endpoint != "" || e.Outcomes[1].Endpoint != "https://here.test/" ||
				e.Outcomes[1].State != "held" {
				t.Errorf("%s is told as %+v", emitted[e.ID], e)
			}
		}
		if got := strings.Join(names, ", "); got != c.want {
			t.Errorf("%s%s at %v: %q, want %q", c.family, c.id, c.instants, got, c.want)
		}
	}
}

// However many events and deliveries a guild has, a trace looks each up by an index.
func TestATraceReadsByIndexes(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1")
	dbtest.Fill(t, d, `
		INSERT INTO webhook_events (guild_id, id, type, payload)
		SELECT '1', lpad(to_hex(i), 8, '0') || '-0000-7', 'case.created', '{}' FROM generate_series(1, 20000) i`, `
		INSERT INTO webhook_deliveries (guild_id, endpoint_id, id, event_id, event_type) SELECT '1', 'w', 'd' || id, id, type FROM
			webhook_events`, `
		INSERT INTO webhook_attempts (guild_id, delivery_id, number, started_at, duration_ms, outcome)
		SELECT '1', id, 1, now(), 1, 'delivered' FROM webhook_deliveries`, `
		INSERT INTO stream_deliveries (guild_id, stream_id, event_id, event_at) SELECT '1', 's', id, now() FROM webhook_events`,
		`ANALYZE webhook_events, webhook_deliveries, webhook_attempts, stream_deliveries`)
	from, below := db.IDsWithin(time.Now())
	plan := dbtest.Plan(t, d, tracing, "1", "case.", "c", db.Array([]string{from}), db.Array([]string{below}))
	for _, index := range []string{"webhook_events_pkey", "webhook_deliveries_event", "webhook_attempts_pkey"} {
		if !strings.Contains(plan, " using "+index+" ") {
			t.Errorf("a trace does not use %s:\n%s", index, plan)
		}
	}
	for _, table := range []string{"webhook_events", "webhook_deliveries", "webhook_attempts", "stream_deliveries"} {
		if strings.Contains(plan, "Seq Scan on "+table) {
			t.Errorf("a trace reads %s whole:\n%s", table, plan)
		}
	}
}
