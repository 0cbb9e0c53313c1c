package economy

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
)

// The event of each change has the trace of its own request, whatever else is in the batch.
func TestAnEventHasTheTraceOfItsChange(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "7", "8")
	for _, guild := range []string{"7", "8"} {
		dbtest.Exec(t, d, `INSERT INTO wallets (guild_id, user_id, balance) SELECT $1, n::text, 0 FROM generate_series(1, 4) n`, guild)
		dbtest.Listen(t, d, guild, []string{event.BalanceChanged})
	}
	made := map[string]string{} // the trace of each ledger entry
	changeOf := func(guild, user, id, trace string, keyed, referenced bool) *change {
		c := &change{Change: batch.Change{By: event.System(guild)}, entry: entry{UserID: user, Delta: 1, Note: "test"}}
		c.By.Trace = trace
		if keyed {
			c.Key = &idempotency.Request{TokenID: "token", Key: id}
		}
		if referenced {
			c.entry.Reference = &id
		}
		return c
	}
	for n := range 8 {
		keyed, referenced, guilds := n&1 > 0, n&2 > 0, []string{"7", "7", "7"}
		if n&4 > 0 {
			if dbtest.Coordinator(t) {
				break // with a coordinator, a batch has one guild
			}
			guilds[1] = "8"
		}
		for _, traces := range [][]string{{"", "", ""}, {"one", "", "other"}} {
			var list []*change
			for i, trace := range traces {
				list = append(list, changeOf(guilds[i], fmt.Sprint(i+1), fmt.Sprintf("%d-%d-%s", n, i, traces[0]), trace, keyed, referenced))
			}
			alone := changeOf("7", "4", fmt.Sprintf("%d-alone-%s", n, traces[0]), traces[0], false, referenced)
			err := d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				if err := adjustEach(ctx, tx, list); err != nil {
					return err
				}
				return adjustAlone(ctx, tx, alone)
			})
			if err != nil || slices.ContainsFunc(list, func(c *change) bool { return !c.Applied }) {
				t.Fatalf("keyed %t, referenced %t, of %v: %v", keyed, referenced, guilds, err)
			}
			for _, c := range append(list, alone) {
				made[c.entry.ID] = c.By.Trace
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

// adjustAlone makes one change in a unit of work.
func adjustAlone(ctx context.Context, tx *db.Tx, c *change) error {
	return adjustAll(ctx, tx, []*change{c}, func(_ int, err error) error { return err })
}
