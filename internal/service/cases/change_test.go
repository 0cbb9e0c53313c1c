package cases

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// Of a case that is changed for ever its creation and the newest 500 changes are kept, whoever
// changes it.
func TestTheNewestChangesAreKept(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1")
	by := auth.System("1")
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		c, err := insert(ctx, tx, by, row{GuildID: "1", ID: "c", UserID: "7", ModeratorID: "8", Type: "note", Status: active, Source: "api"})
		for i := 0; err == nil && i < keptChanges+20; i++ {
			is := c
			is.Reason = fmt.Sprint("reason ", i)
			c, err = edit(ctx, tx, by, c, is, nil)
		}
		return err
	})
	if n := dbtest.Value[int](t, d, `SELECT count(*)::int FROM case_changes`); n != keptChanges+1 {
		t.Errorf("%d changes are kept, want %d and the creation", n, keptChanges)
	}
	first := dbtest.Value[string](t, d, `SELECT changes::text FROM case_changes ORDER BY at LIMIT 1`)
	second := dbtest.Value[string](t, d, `SELECT changes::text FROM case_changes ORDER BY at OFFSET 1 LIMIT 1`)
	if first != "[]" || !strings.Contains(second, `"reason 20"`) {
		t.Errorf("the oldest are %s and %s", first, second)
	}
}

func TestChangesAreReadByTheirCase(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1", "2")
	dbtest.Fill(t, d, many, `
		INSERT INTO case_changes (guild_id, case_id, at, origin, changes)
		SELECT guild_id, id, updated_at + n * interval '1 ms', '{}', CASE WHEN n = 0 THEN '[]' ELSE '[{}]' END::jsonb
		FROM cases, generate_series(0, 1) n`, `ANALYZE cases, case_changes`)
	plan := dbtest.Plan(t, d, listingChanges, "1", "case-5", 26, 0, `{}`)
	if !strings.Contains(plan, " using case_changes_pkey ") || strings.Contains(plan, "Seq Scan") {
		t.Errorf("the changes are not found through their case:\n%s", plan)
	}
	if plan := dbtest.Plan(t, d, storedChanges, "1", db.Array([]string{"case-5", "case-6"})); strings.Contains(plan, "Seq Scan") {
		t.Errorf("a file does not find changes through their cases:\n%s", plan)
	}
}
