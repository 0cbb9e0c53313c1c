package economy

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"guildhall/internal/batch"
	"guildhall/internal/db"
	"guildhall/internal/db/dbtest"
	"guildhall/internal/event"
	"guildhall/internal/idempotency"
)

// The event of each change has the trace in which that one was asked for, whatever
// else is in its batch.
func TestAnEventHasTheTraceOfItsChange(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Exec(t, d, `INSERT INTO guilds (id, name, owner_id) VALUES ('7', 'g', '1')`)
	dbtest.Exec(t, d, `INSERT INTO wallets (guild_id, user_id, balance) SELECT '7', n::text, 0 FROM generate_series(1, 4) n`)
	dbtest.Listen(t, d, "7", []string{event.BalanceChanged})
	made := map[string]string{} // the trace by the ledger entry
	changeOf := func(user, id, trace string, keyed, referenced bool) *change {
		c := &change{Change: batch.Change{By: event.System("7")}, entry: entry{ID: id, UserID: user, Delta: 1, Note: "test"}}
		c.By.Trace, made[id] = trace, trace
		if keyed {
			c.UnderKey(idempotency.Request{TokenID: "token", Key: id})
		}
		if referenced {
			c.entry.Reference = &id
		}
		return c
	}
	for n := range 4 {
		keyed, referenced := n&1 > 0, n&2 > 0
		for _, traces := range [][]string{{"", "", ""}, {"one", "", "other"}} {
			var list []*change
			for i, trace := range traces {
				list = append(list, changeOf(fmt.Sprint(i+1), fmt.Sprintf("%d-%d-%s", n, i, traces[0]), trace, keyed, referenced))
			}
			alone := changeOf("4", fmt.Sprintf("%d-alone-%s", n, traces[0]), traces[0], false, referenced)
			err := d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				if err := statements.Each(ctx, tx, list); err != nil {
					return err
				}
				return statements.One(ctx, tx, alone)
			})
			if err != nil || slices.ContainsFunc(list, func(c *change) bool { return !c.Made }) {
				t.Fatalf("keyed %t, referenced %t: %v", keyed, referenced, err)
			}
		}
	}
	var stored []struct{ Entry, Trace string }
	err := d.Reader().SelectContext(t.Context(), &stored, `
		SELECT convert_from(payload, 'UTF8')::jsonb #>> '{data,ledger_entry_id}' AS entry, coalesce(trace, '') AS trace FROM webhook_events`)
	if err != nil || len(stored) != len(made) {
		t.Fatalf("%d events of %d changes: %v", len(stored), len(made), err)
	}
	for _, e := range stored {
		if want, there := made[e.Entry]; !there || e.Trace != want {
			t.Errorf("the event of %s has the trace %q, want %q", e.Entry, e.Trace, want)
		}
	}
}
