package cases

import (
	"regexp"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// changeScan is a scan of case_changes in a plan, and keyedChange one that looks a case up.
var changeScan, keyedChange = regexp.MustCompile(`(?:Scan|using \S+) on case_changes `),
	regexp.MustCompile(`using \S+ on case_changes .*\n\s*Index Cond: \(\(guild_id = .* AND \(case_id = `)

// Storing records costs as much as the records, also in a guild that the same import has created
// and that has no statistics yet.
func TestRecordsFindTheirCasesByKeyInANewGuild(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Fill(t, d, `INSERT INTO guilds (id, name, owner_id, member_count) SELECT g::text, 'G', '1', 3 FROM generate_series(1, 30) g`, `
		INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, source)
		SELECT (1 + n % 20)::text, 'c' || n, n, '1', '2', 'warn', 'bot' FROM generate_series(1, 20000) n`, `
		INSERT INTO case_changes (guild_id, case_id, at, origin, changes)
		SELECT guild_id, id, created_at, '{}', '[]' FROM cases`, `ANALYZE cases, case_changes`)
	for _, there := range [][]string{nil, {"c1", "c2"}} {
		args := []any{
			"25", `[{"id":"c1","user_id":"1","moderator_id":"1","type":"warn","reason":"",
			"status":"active","source":"bot","metadata":{},"number":1,"created_at":"2024-01-01","updated_at":"2024-01-01"}]`, db.Array(there),
			`[]`, `{}`,
		}
		dbtest.WantKeyed(t, d, "cases", storing, args...)
		plan := dbtest.Plan(t, d, storing, args...)
		scans, keyed := len(changeScan.FindAllString(plan, -1)), len(keyedChange.FindAllString(plan, -1))
		if !dbtest.Coordinator(t) && scans != keyed {
			t.Errorf("changes are not found by their cases:\n%s", plan)
		}
	}
}
