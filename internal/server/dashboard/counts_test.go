package dashboard_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// For random histories of 10,000 deliveries, the pages show the same numbers as the log, for the
// last 24 hours and for lost deliveries. TestTenThousandDeliveriesAgreeWithTheLog checks that the
// hourly numbers agree with the log.
func TestPagesAgreeWithTheLog(t *testing.T) {
	t.Parallel()
	const endpoints = 4
	s := newSite(t)
	b := s.as(t, "owner")
	for range endpoints {
		b.endpoint()
	}
	for range 2 {
		seed := rand.Float64()
		t.Logf("setseed(%v)", seed)
		dbtest.Do(t, s.DB, history(seed))
		wantPages(t, s, b)
	}
}

// history replaces the guild's deliveries by 10,000 deliveries of the last three days, in every
// state, with their hourly numbers.
func history(seed float64) func(context.Context, *db.Tx) error {
	return func(ctx context.Context, tx *db.Tx) error {
		for _, statement := range []string{
			`DELETE FROM webhook_hours`, `DELETE FROM webhook_deliveries`, `DELETE FROM webhook_events`,
			fmt.Sprintf(`SELECT setseed(%v)`, seed),
			`WITH n AS MATERIALIZED (
				SELECT 'v' || n AS id, random() AS end, now() - random() * interval '72 hours' AS at,
				       (SELECT array_agg(id ORDER BY id) FROM webhook_endpoints) AS endpoints, random() AS endpoint
				FROM generate_series(1, 10000) n
			), e AS (
				INSERT INTO webhook_events (guild_id, id, type, occurred_at, payload) SELECT '` + guildID + `', id, 'case.created', at, '{}' FROM n
			)
			INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_type, fresh, state, created_at, event_at, completed_at)
			SELECT '` + guildID + `', endpoints[1 + floor(endpoint * endpoint * array_length(endpoints, 1))::integer], id, 'case.created', false,
			       CASE WHEN n.end < 0.6 THEN 'delivered' WHEN n.end < 0.9 THEN 'failed' WHEN n.end < 0.95 THEN 'pending' ELSE 'held' END,
			       at, at, CASE WHEN n.end < 0.9 THEN at END
			FROM n`,
			`INSERT INTO webhook_hours (guild_id, endpoint_id, hour, outcome, deliveries)
			SELECT guild_id, endpoint_id, date_trunc('hour', completed_at), state, count(*)
			FROM webhook_deliveries WHERE completed_at IS NOT NULL
			GROUP BY 1, 2, 3, 4`,
		} {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	}
}

// logged is the content of the log about an endpoint in this hour and the 23 hours before.
type logged struct {
	ID                               string
	Delivered, Failed, Waiting, Held int
}

// wantPages fails the test unless the pages agree with the log. If another hour begins meanwhile,
// wantPages compares again.
func wantPages(t *testing.T, s *site, b *browser) {
	t.Helper()
	hour := func() time.Time { return dbtest.Value[time.Time](t, s.DB, `SELECT date_trunc('hour', now())`) }
	began := hour()
	rows, err := db.Select[logged](t.Context(), s.DB.Reader(), `
		SELECT e.id, count(*) FILTER (WHERE d.state = 'delivered' AND recent) AS delivered,
		       count(*) FILTER (WHERE d.state = 'failed' AND recent) AS failed,
		       count(*) FILTER (WHERE d.state = 'pending') AS waiting, count(*) FILTER (WHERE d.state = 'held') AS held
		FROM webhook_endpoints e
		JOIN webhook_deliveries d ON d.guild_id = e.guild_id AND d.endpoint_id = e.id
		CROSS JOIN LATERAL (SELECT d.completed_at >= date_trunc('hour', now()) - interval '23 hours' AS recent) r
		GROUP BY e.id`)
	must(t, err)
	var all logged
	list, overview := b.get(page(guildID, "webhooks")), b.get(page(guildID))
	since := began.Add(-23 * time.Hour).UTC().Format("2006-01-02T15:04")
	for _, r := range rows {
		all.Delivered, all.Failed = all.Delivered+r.Delivered, all.Failed+r.Failed
		sum := fmt.Sprintf("%s delivered, %s failed, %s waiting", grouped(r.Delivered), grouped(r.Failed), grouped(r.Waiting+r.Held))
		one := b.get(page(guildID, "webhooks", r.ID))
		lost := b.get(page(guildID, "webhooks", r.ID, "recover") + "?since=" + since)
		if hour() != began {
			wantPages(t, s, b)
			return
		}
		list.wants(200, sum)
		one.wants(200, sum, fmt.Sprintf("%s waiting, %s held", grouped(r.Waiting), grouped(r.Held)))
		lost.wants(200, "<b>"+grouped(r.Failed)+"</b> deliveries have failed")
	}
	if all.Delivered == 0 || all.Failed == 0 {
		t.Fatalf("nothing happened: %+v", rows)
	}
	overview.wants(200, "<b>"+grouped(all.Delivered)+"</b>", grouped(all.Failed)+" failed")
}

// grouped formats a number below a million as the pages do.
func grouped(n int) string {
	text := fmt.Sprint(n)
	if len(text) > 3 {
		text = strings.Join([]string{text[:len(text)-3], text[len(text)-3:]}, ",")
	}
	return text
}
