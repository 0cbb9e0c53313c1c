package tickets

import (
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// Storing records costs as much as the records, also in a guild that the same import has created
// and that has no statistics yet.
func TestRecordsFindTheirTicketsAndEntriesByKeyInANewGuild(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Fill(t, d, `INSERT INTO guilds (id, name, owner_id, member_count) SELECT g::text, 'G', '1', 3 FROM generate_series(1, 30) g`,
		`INSERT INTO tickets (guild_id, id, number, opener_id) SELECT (1 + n % 20)::text, 't' || n, n, '1' FROM generate_series(1, 20000) n`, `
		INSERT INTO ticket_messages (guild_id, ticket_id, id, kind, internal, author_type, content)
		SELECT guild_id, id, id || n, 'message', false, 'staff', 'Hi' FROM tickets, generate_series(1, 2) n`,
		`ANALYZE tickets, ticket_messages`, `INSERT INTO tickets (guild_id, id, number, opener_id) VALUES ('25', 't', 1, '1')`)
	const created = `"created_at":"2024-01-01","updated_at":"2024-01-01"`
	for _, there := range [][]string{nil, {"t1", "t2"}} {
		dbtest.WantKeyed(t, d, "tickets", storing, "25",
			`[{"id":"t1","opener_id":"1","number":7,"status":"open","priority":"normal","metadata":{},`+created+`}]`, db.Array(there))
		dbtest.WantKeyed(t, d, "ticket_messages", storingEntries, "25",
			`[{"ticket_id":"t","id":"t1","kind":"message","internal":false,"author_type":"staff","content":"Hi","attachments":[],`+created+`}]`,
			db.Array(there))
	}
	at := db.Array([]string{"2024-01-01"})
	dbtest.WantKeyed(t, d, "tickets", storingTallies, "25", db.Array([]string{"t"}), db.Integers([]int64{1}), at, at)
}
