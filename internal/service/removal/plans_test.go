package removal

import (
	"fmt"
	"strings"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// In every table a guild's rows are found by an index, however large the table is.
func TestTheRowsOfAGuildAreFoundByAnIndex(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	tables, err := db.GuildTables(t.Context(), d.Reader())
	if err != nil {
		t.Fatal(err)
	}
	if last := tables[len(tables)-1]; last != "guilds" {
		t.Fatalf("the last table is %s", last)
	}
	for _, table := range append(tables[:len(tables)-1], "api_tokens") {
		for _, query := range []string{rowsOf(table), deleteRows(table)} {
			second := any(look)
			if strings.HasPrefix(query, "DELETE") {
				second = `{"(0,1)"}`
			}
			plan := dbtest.Plan(t, d, query, "1", second)
			if strings.Contains(plan, "Seq Scan") || !strings.Contains(plan, "Index") && !strings.Contains(plan, "Tid Scan") {
				t.Errorf("%s\n%s", query, plan)
			}
		}
	}
	dbtest.WantIndex(t, d, "guilds_leaving", leaving, 15, atOnce)
}

// A member's rows are probed guild by guild; a hash join would read whole tables.
func TestTheGuildsOfAMemberAreProbedByIndexes(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	plan := dbtest.Plan(t, d, knownGuilds, "1", db.Array([]string(nil)))
	for n := 1; n <= 9; n++ {
		if !strings.Contains(plan, fmt.Sprintf("(SubPlan %d)", n)) || strings.Contains(plan, "Seq Scan") {
			t.Fatal(plan)
		}
	}
}
