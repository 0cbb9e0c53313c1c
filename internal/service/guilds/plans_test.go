package guilds

import (
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/page"
)

func TestTheGuildsOfAKeyAreReadThroughAnIndex(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Fill(t, d, `INSERT INTO guilds (id, name, owner_id, updated_at)
		SELECT n::text, 'g', '1', timestamptz '2026-01-01' + n * interval '1 second' FROM generate_series(1, 100000) n`, `ANALYZE guilds`)
	since := time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC)
	some := db.Array(strings.Fields(strings.Repeat("5000 7000 9000 ", 300)))
	for _, p := range []page.P{page.Of(1, 25), page.Of(900, 100)} {
		for _, at := range []*time.Time{nil, &since} {
			var from any
			if at != nil {
				from = *at
			}
			dbtest.WantIndex(t, d, "guilds_changed", every.For(p), from, p.Limit(), p.Offset())
			plan := dbtest.Plan(t, d, namedGuilds, from, p.Limit(), p.Offset(), some)
			if strings.Contains(plan, "Seq Scan") || !strings.Contains(plan, "guilds_pkey") {
				t.Errorf("guilds that are named are not found by their ids:\n%s", plan)
			}
		}
	}
	dbtest.WantIndex(t, d, "guilds_pkey", listAfter, "5", 100)
}

// The query for due guilds costs as much as the due guilds, however many others there are.
func TestGuildsToAskOfAreFoundThroughAnIndex(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Fill(t, d, `INSERT INTO guilds (id, name, owner_id, facts_due_at, removed_at, removed_after)
		SELECT n::text, 'g', '1', CASE WHEN n > 5 THEN now() + n * interval '1 hour' ELSE now() END,
			CASE n WHEN 5 THEN now() END, CASE n WHEN 5 THEN now() END
		FROM generate_series(1, 100000) n`, `ANALYZE guilds`)
	dbtest.WantIndex(t, d, "guilds_facts_due", factsDue, factsLook)
	due, err := db.Select[string](t.Context(), d.Reader(), factsDue, factsLook)
	if err != nil || len(due) != 4 {
		t.Errorf("%v are due, %v", due, err)
	}
	read, err := db.Select[string](t.Context(), d.Reader(), `EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, BUFFERS)
		SELECT id FROM guilds WHERE facts_due_at <= now() AND removed_at IS NULL ORDER BY facts_due_at, id LIMIT 20`)
	if err != nil || strings.Contains(strings.Join(read, " "), "Rows Removed") {
		t.Errorf("rows are read that are not due: %v\n%s", err, strings.Join(read, "\n"))
	}
}
