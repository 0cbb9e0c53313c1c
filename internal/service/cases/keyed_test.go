package cases

import (
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// Storing records costs as much as the records, also in a guild that the same import has created
// and that has no statistics yet.
func TestRecordsFindTheirCasesByKeyInANewGuild(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Fill(t, d, `INSERT INTO guilds (id, name, owner_id, member_count) SELECT g::text, 'G', '1', 3 FROM generate_series(1, 30) g`, `
		INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, source)
		SELECT (1 + n % 20)::text, 'c' || n, n, '1', '2', 'warn', 'bot' FROM generate_series(1, 20000) n`, `ANALYZE cases`)
	for _, there := range [][]string{nil, {"c1", "c2"}} {
		dbtest.WantKeyed(t, d, "cases", storing, "25", `[{"id":"c1","user_id":"1","moderator_id":"1","type":"warn","reason":"",
			"status":"active","source":"bot","metadata":{},"number":1,"created_at":"2024-01-01","updated_at":"2024-01-01"}]`, db.Array(there))
	}
}
