package levelling

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
)

// One statement for each token emits the events of all levels that rise together, and each event
// has the trace of its own change.
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
	// Rows that the same statement has inserted have the same cmin.
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

// A batch emits events of levels in the same way as a call with several changes, with the trace of
// each change.
func TestABatchTellsOfLevelsAsACallDoes(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1")
	dbtest.Listen(t, d, "1", []string{event.LevelUp, event.LevelDown})
	emitted := func(adjust func(ctx context.Context, tx *db.Tx, list []*change) error) (all string) {
		dbtest.Exec(t, d, `DELETE FROM webhook_deliveries`)
		dbtest.Exec(t, d, `DELETE FROM webhook_events`)
		dbtest.Exec(t, d, `DELETE FROM levels`)
		dbtest.Exec(t, d, `INSERT INTO levels (guild_id, user_id, total_xp) SELECT '1', n::text, 1000 FROM generate_series(11, 15) n`)
		var list []*change
		for i, c := range []struct {
			token string
			xp    int64
		}{{`a"b`, 100_000}, {"bk_one", -1000}, {"token", 1}, {"token", MaxXP - 1000}, {"token", -1}} {
			by := event.From(auth.By{GuildID: "1", ID: c.token})
			by.Trace = fmt.Sprint("trace", i)
			list = append(list, &change{Change: batch.Change{By: by}, user: fmt.Sprint(11 + i), xp: c.xp})
		}
		dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error { return adjust(ctx, tx, list) })
		var rows []struct{ ID, At, Payload string }
		err := d.Reader().SelectContext(t.Context(), &rows, `
			SELECT v.id, to_char(v.occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS at,
			       concat_ws(' ', v.type, v.trace, convert_from(v.payload, 'UTF8')) AS payload
			FROM webhook_events v
			JOIN webhook_deliveries w ON w.guild_id = v.guild_id AND w.event_id = v.id AND w.event_type = v.type AND w.event_at = v.occurred_at
			ORDER BY convert_from(v.payload, 'UTF8')::json #>> '{data,user_id}'`)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			all += strings.NewReplacer(r.ID, "ID", r.At, "AT").Replace(r.Payload) + "\n"
		}
		return all
	}
	call := emitted(func(ctx context.Context, tx *db.Tx, list []*change) error {
		return adjustAll(ctx, tx, list, func(_ int, err error) error { return err })
	})
	together := emitted(func(ctx context.Context, tx *db.Tx, list []*change) error { return adjustEach(ctx, tx, list) })
	if together != call || strings.Count(call, "\n") != 3 || !strings.Contains(call, `xp.level_down trace1 {"id":"ID"`) {
		t.Errorf("a batch emits\n%s, a call\n%s", together, call)
	}
}

// adjustAlone makes one change in a unit of work.
func adjustAlone(ctx context.Context, tx *db.Tx, c *change) error {
	return adjustAll(ctx, tx, []*change{c}, func(_ int, err error) error { return err })
}
