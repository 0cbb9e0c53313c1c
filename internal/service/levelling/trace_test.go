package levelling

import (
	"context"
	"testing"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
)

// Levels that rise together are told of by one statement for each token, and
// each event has the trace of its own change.
func TestALevelUpHasTheTraceOfItsChange(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1")
	dbtest.Exec(t, d, `INSERT INTO levels (guild_id, user_id, total_xp) SELECT '1', n::text, 0 FROM generate_series(11, 14) n`)
	dbtest.Listen(t, d, "1", []string{event.LevelUp})
	want := map[string]string{"11": "one", "12": "other", "13": "", "14": "of another token"}
	var list []*change
	for user, trace := range want {
		by := event.From(auth.By{GuildID: "1", ID: "token"})
		if user == "14" {
			by.ID = "another"
		}
		by.Trace = trace
		list = append(list, &change{Change: batch.Change{By: by}, user: user, xp: 100_000})
	}
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		return adjustAll(ctx, tx, list, func(_ int, err error) error { return err })
	})
	var stored []struct{ User, Trace, Statement string }
	// Rows that one statement has stored have the same cmin.
	err := d.Reader().SelectContext(t.Context(), &stored, `
		SELECT convert_from(payload, 'UTF8')::jsonb #>> '{data,user_id}' AS user, coalesce(trace, '') AS trace, cmin::text AS statement
		FROM webhook_events
		WHERE guild_id = '1'`)
	if err != nil || len(stored) != len(want) {
		t.Fatalf("%d events of %d levels: %v", len(stored), len(want), err)
	}
	users := map[string]int{}
	for _, e := range stored {
		if trace, there := want[e.User]; !there || e.Trace != trace {
			t.Errorf("the event of member %s has the trace %q, want %q", e.User, e.Trace, trace)
		}
		users[e.Statement]++
	}
	if len(users) != 2 {
		t.Errorf("by statement there are %v events, want those of each token together", users)
	}
}

// adjustAlone makes one change in a unit.
func adjustAlone(ctx context.Context, tx *db.Tx, c *change) error {
	return adjustAll(ctx, tx, []*change{c}, func(_ int, err error) error { return err })
}
