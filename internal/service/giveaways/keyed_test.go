package giveaways

import (
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// Storing records costs as much as the records, also in a guild that the same import has created
// and that has no statistics yet.
func TestRecordsFindTheirGiveawaysAndEntriesByKeyInANewGuild(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Fill(t, d, `INSERT INTO guilds (id, name, owner_id, member_count) SELECT g::text, 'G', '1', 3 FROM generate_series(1, 30) g`, `
		INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, starts_at, ends_at)
		SELECT (1 + n % 20)::text, 'g' || n, 'active', 'A hat', 1, '5', now(), '2040-01-01' FROM generate_series(1, 20000) n`, `
		INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id, entries, entered_at)
		SELECT guild_id, id, n::text, 1, now() FROM giveaways, generate_series(1, 2) n`,
		`ANALYZE giveaways, giveaway_entries`, `
		INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, starts_at, ends_at)
		VALUES ('25', 'g', 'active', 'A hat', 1, '5', now(), '2040-01-01')`)
	for _, there := range [][]string{nil, {"g1", "g2"}} {
		dbtest.WantKeyed(t, d, "giveaways", storing, "25",
			`[{"id":"g1","status":"active","prize":"A hat","winner_count":1,"winners":[],"channel_id":"5",
			"source":"bot","metadata":{},"starts_at":"2024-01-01","ends_at":"2040-01-01","created_at":"2024-01-01","updated_at":"2024-01-01"}]`,
			db.Array(there), true)
	}
	one, n := db.Array([]string{"g"}), db.Integers([]int64{1})
	dbtest.WantKeyed(t, d, "giveaway_entries", storingEntries, "25",
		`[{"giveaway_id":"g","user_id":"7","entries":0,"entered_at":"2024-01-01"}]`, one, db.Array([]string{"7"}))
	dbtest.WantKeyed(t, d, "giveaways", storingCounts, "25", one, n, n, false, time.Now())
}
