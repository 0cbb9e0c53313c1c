package webhooks

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/delivery"
)

func TestListsOfDeliveriesUseAnIndex(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	dbtest.Do(t, d.DB, func(ctx context.Context, tx *db.Tx) error {
		for _, sql := range []string{
			`INSERT INTO guilds (id, name, owner_id) VALUES ('1', 'g', '1')`,
			`INSERT INTO webhook_events (guild_id, id, type, payload) SELECT '1', 'e' || i, 'case.created', '{}' FROM generate_series(1, 20000) i`,
			`INSERT INTO webhook_deliveries (guild_id, endpoint_id, id, event_id, event_type, state, fresh, response_class, created_at)
			 SELECT '1', 'w' || i % 3, 'd' || i, 'e' || i, (ARRAY['case.created','case.updated','ticket.closed','xp.level_up'])[1 + i % 4],
			        (ARRAY['delivered','failed','held','pending'])[1 + i % 4], false, (ARRAY['2xx','5xx','none',NULL])[1 + i % 4],
			now() - i * interval '1 minute'
			 FROM generate_series(1, 20000) i`,
			`ANALYZE webhook_deliveries`,
		} {
			if _, err := tx.ExecContext(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
	for _, c := range []struct {
		index string
		f     Filter
	}{
		{"webhook_deliveries_log", Filter{}},
		{"webhook_deliveries_state_log", Filter{Status: delivery.StateHeld}},
		{"webhook_deliveries_state_log", Filter{Status: delivery.StatePending}},
		{"webhook_deliveries_state_log", Filter{ResponseClass: "2xx"}},
		{"webhook_deliveries_type", Filter{EventType: "ticket.closed"}},
		{"webhook_deliveries_class", Filter{ResponseClass: "5xx"}},
		{"webhook_deliveries_log", Filter{BelowAt: time.Now(), BelowID: "d7"}},
		{"webhook_deliveries_class", Filter{ResponseClass: "5xx", BelowAt: time.Now(), BelowID: "d7"}},
	} {
		query, args := pageQuery("1", "w1", c.f, 26, 0)
		dbtest.WantIndex(t, d.DB, c.index, query, args...)
	}
	for _, f := range []Filter{{Tried: true}, {Tried: true, BelowAt: time.Now(), BelowID: "d7"}} {
		query, args := pageQuery("1", "w1", f, 26, 0)
		plan := dbtest.Plan(t, d.DB, query, args...)
		if !strings.Contains(plan, " using webhook_deliveries_state_log ") || strings.Count(plan, " using webhook_deliveries_class ") != 4 ||
			strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "  Sort\n") {
			t.Errorf("what was tried is not merged from indexes:\n%s", plan)
		}
	}
}

// A page of deliveries is read row by row. This also holds when most guilds have few deliveries, so
// that Postgres estimates reading a whole guild as no more expensive than a page.
func TestAPageOfDeliveriesReadsNoMoreThanItShows(t *testing.T) {
	t.Parallel()
	const others, much = 1000, 3000
	d := dbtest.New(t)
	dbtest.Fill(t, d.DB,
		`INSERT INTO guilds (id, name, owner_id) VALUES ('g', 'g', '1')`,
		fmt.Sprintf(`INSERT INTO webhook_events (guild_id, id, type, payload)
			SELECT CASE WHEN i <= %[1]d THEN 'o' || i ELSE 'g' END, to_char(i, 'FM00000'), 'case.created', '{}'
			FROM generate_series(1, %[1]d + %[2]d) i`, others, much),
		fmt.Sprintf(`INSERT INTO webhook_deliveries (guild_id, endpoint_id, id, event_id, event_type, state, fresh, created_at)
			SELECT CASE WHEN i <= %[1]d THEN 'o' || i ELSE 'g' END, 'w', to_char(i, 'FM00000'), to_char(i, 'FM00000'),
			       'case.created', 'delivered', false, now() - interval '1 day' + i * interval '1 second'
			FROM generate_series(1, %[1]d + %[2]d) i`, others, much),
		`ANALYZE`)
	dbtest.Do(t, d.DB, func(ctx context.Context, tx *db.Tx) error {
		read := func() (n int) {
			if err := tx.GetContext(ctx, &n, `
				SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))
				FROM pg_stat_xact_user_tables
				WHERE relname LIKE 'webhook%'`); err != nil {
				t.Fatal(err)
			}
			return n
		}
		for range 7 { // after these executions Postgres keeps a generic plan
			before := read()
			list, err := Log(ctx, tx, "g", "w", Filter{}, 26)
			if err != nil || len(list) != 26 {
				t.Fatalf("%d deliveries, %v", len(list), err)
			}
			if n := read() - before; n > 5*26 {
				t.Errorf("26 deliveries took %d rows", n)
			}
		}
		return nil
	})
}

// The health of an endpoint is read from the hours of a day, and its last success from the newest
// hour with one.
func TestTheHealthOfAnEndpointReadsNoOldHours(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	dbtest.Fill(t, d.DB,
		`INSERT INTO guilds (id, name, owner_id) VALUES ('g', 'g', '1')`,
		`INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview) VALUES ('g', 'w', '', '{}', '', '')`,
		`INSERT INTO webhook_hours (guild_id, endpoint_id, hour, outcome, deliveries, last_at)
		 SELECT 'g', 'w', h, 'delivered', 1, h + interval '7 minutes'
		 FROM generate_series(1, 720) n, date_trunc('hour', now() - n * interval '1 hour') h`,
		`ANALYZE`)
	dbtest.Do(t, d.DB, func(ctx context.Context, tx *db.Tx) error {
		e, err := StandingOf(ctx, tx, "g", "w")
		var read int
		if err == nil {
			err = tx.GetContext(ctx, &read, `
				SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relname = 'webhook_hours'`)
		}
		if at := e.Health.LastSuccessAt; at == nil || time.Since(*at) > 2*time.Hour || read > 30 {
			t.Errorf("the last success was at %v, and %d hours were read", at, read)
		}
		return err
	})
}
