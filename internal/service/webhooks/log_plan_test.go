package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
		{"webhook_deliveries_state_log", Filter{Status: delivery.StateHeld}},
		{"webhook_deliveries_state_log", Filter{Status: delivery.StatePending}},
		{"webhook_deliveries_state_log", Filter{ResponseClass: "2xx"}},
		{"webhook_deliveries_type", Filter{EventType: "ticket.closed"}},
		{"webhook_deliveries_class", Filter{ResponseClass: "5xx"}},
		{"webhook_deliveries_class", Filter{ResponseClass: "5xx", BelowAt: time.Now(), BelowID: "d7"}},
	} {
		query, args := pageQuery("1", "w1", c.f, 26, 0)
		dbtest.WantIndex(t, d.DB, c.index, query, args...)
	}
	// The whole log is the newest of each state, of which few are put in order.
	for _, f := range []Filter{{}, {BelowAt: time.Now(), BelowID: "d7"}} {
		query, args := pageQuery("1", "w1", f, 26, 0)
		plan := dbtest.Plan(t, d.DB, query, args...)
		if strings.Contains(plan, "Seq Scan on") || strings.Contains(plan, "Bitmap") ||
			!dbtest.Coordinator(t) && !strings.Contains(plan, "Backward using webhook_deliveries_state_log") {
			t.Errorf("the whole log is not read by the index of its states:\n%s", plan)
		}
	}
}

// The log is newest first, whichever state its deliveries are in: each page of it, and
// what is older than a delivery.
func TestTheLogIsInOrderOverAllStates(t *testing.T) {
	t.Parallel()
	const n, size = 90, 20
	d := dbtest.New(t)
	dbtest.Fill(t, d.DB, `INSERT INTO guilds (id, name, owner_id) VALUES ('g', 'g', '1')`,
		fmt.Sprintf(`INSERT INTO webhook_deliveries (guild_id, endpoint_id, id, event_id, event_type, state, fresh, created_at)
			SELECT 'g', (ARRAY['w','w','other'])[1 + i %% 3], to_char(i, 'FM000'), 'e', 'case.created',
			       (ARRAY['pending','delivered','delivered','delivered','failed','held','delivered'])[1 + i %% 7], false,
			       timestamptz '2026-03-01 00:00:00Z' + i / 4 * interval '1 second'
			FROM generate_series(1, %d) i`, n))
	all, err := db.Select[Logged](t.Context(), d.DB.Reader(), `
		SELECT id, created_at FROM webhook_deliveries WHERE endpoint_id = 'w' ORDER BY created_at DESC, id DESC`)
	if err != nil || len(all) != n*2/3 {
		t.Fatalf("%d deliveries, %v", len(all), err)
	}
	for from := 0; from <= len(all); from += size {
		want := all[from:min(from+size, len(all))]
		page, err := deliveries(t.Context(), d.DB.Reader(), "g", "w", Filter{}, size, from)
		older := page
		if from > 0 {
			last := all[from-1]
			var failed error
			older, failed = Log(t.Context(), d.DB.Reader(), "g", "w", Filter{BelowAt: last.CreatedAt, BelowID: last.ID}, size)
			err = errors.Join(err, failed)
		}
		if err != nil || !slices.Equal(named(page), named(want)) || !slices.Equal(named(older), named(want)) {
			t.Errorf("from %d on, the page is %v and what is older is %v, want %v (%v)", from, named(page), named(older), named(want), err)
		}
	}
}

func named(list []Logged) (ids []string) {
	for _, d := range list {
		ids = append(ids, d.ID)
	}
	return ids
}

// A page of deliveries is read row by row, also where most guilds have few, so that
// all of a guild's rows look as cheap as those of a page.
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
		for range 7 { // by then Postgres keeps the plan
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
