package economy

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"guildhall/internal/db"
	"guildhall/internal/db/dbtest"
	"guildhall/internal/event"
	"guildhall/internal/page"
)

// Each of the store's reads goes through an index and in its order, whatever the
// size of the guild and however deep the page.
func TestReadsUseTheirIndexes(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Fill(t, d, `
		INSERT INTO wallets (guild_id, user_id, balance)
		SELECT guild, n::text, n % 1000 FROM (VALUES ('1', 30000), ('2', 20000)) AS g (guild, total), generate_series(1, total) n`, `
		INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, note, created_at, reference)
		SELECT guild, n::text, (n % 7)::text, 1, 1, 'import', timestamptz '2026-01-01' + n * interval '1 minute', 'r-' || n
		FROM (VALUES ('1', 30000), ('2', 20000)) AS g (guild, total), generate_series(1, total) n`, `
		INSERT INTO ledger_references (guild_id, reference, entry_id) SELECT guild_id, reference, id FROM ledger_entries`,
		`ANALYZE wallets, ledger_entries, ledger_references`)
	user, reference := "5", "r-77"
	since := time.Date(2026, 1, 9, 0, 0, 0, 0, time.UTC)
	for _, p := range []page.P{page.Of(1, 25), page.Of(39, 25), page.Of(60, 25), page.Of(600, 25)} {
		for _, c := range []struct {
			name, index string
			filter      filter
		}{
			{"all", "ledger_entries_pkey", filter{}},
			{"since", "ledger_entries_pkey", filter{Since: since}},
			{"a member", "ledger_entries_by_user", filter{UserID: &user}},
			{"a member since", "ledger_entries_by_user", filter{UserID: &user, Since: since}},
			{"a reference", "ledger_entries_reference", filter{Reference: &reference}},
			{"a reference of a member", "ledger_entries_reference", filter{Reference: &reference, UserID: &user, Since: since}},
		} {
			t.Run(fmt.Sprintf("%s, %d rows down", c.name, p.Offset()), func(t *testing.T) {
				t.Parallel()
				sql, args := query("1", c.filter, p)
				dbtest.WantIndex(t, d, c.index, sql, args...)
			})
		}
	}
	dbtest.WantIndex(t, d, "wallets_pkey", walletOf, "1", user)
}

// Postgres plans the statement of an adjustment once for a connection, however
// few changes it is used for: planning takes longer than the change.
func TestAnAdjustmentIsPlannedOnce(t *testing.T) {
	t.Parallel()
	ctx, d := context.Background(), dbtest.New(t).DB
	dbtest.Fill(t, d, `INSERT INTO wallets (guild_id, user_id, balance) SELECT '1', n::text, 5 FROM generate_series(1, 30000) n`, `ANALYZE wallets`)
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		for range 30 {
			for _, make := range []func(*change) error{
				func(c *change) error { return adjust(ctx, tx, c) },
				func(c *change) error { _, err := adjustEach(ctx, tx, []*change{c}); return err },
			} {
				if err := make(&change{by: system, entry: entry{ID: db.NewID(), UserID: "7", Delta: 1, Note: "test"}}); err != nil {
					return err
				}
			}
		}
		var plans []int
		err := tx.SelectContext(ctx, &plans, `
			SELECT custom_plans FROM pg_prepared_statements
			WHERE statement LIKE '%ledger_entries%' AND generic_plans + custom_plans > 20`)
		if err == nil && (len(plans) != 2 || plans[0] > 5 || plans[1] > 5) {
			err = fmt.Errorf("of 30 and more adjustments so many were planned by themselves: %v", plans)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// What an adjustment looks up, it looks up by index, however many guilds, maps,
// endpoints and requests there are; also when it asks for the leaderboards' keeper.
func TestAnAdjustmentReadsByIndex(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Fill(t, d, `INSERT INTO guilds (id, name, owner_id) SELECT n::text, 'g', '1' FROM generate_series(1, 5000) n`,
		`INSERT INTO wallets (guild_id, user_id, balance) SELECT g::text, u::text, 5 FROM generate_series(1, 5000) g, generate_series(1, 5) u`,
		`INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
		 SELECT n::text, 'e', 'https://example.com', '{case.created}', '', '' FROM generate_series(1, 5000) n`,
		`INSERT INTO rank_maps (guild_id, board, version, state) SELECT n::text, 'wallets', 1, 'live' FROM generate_series(1, 5000) n`,
		`INSERT INTO rank_requests (guild_id, board) SELECT n::text, 'wallets' FROM generate_series(1, 5000) n`,
		`INSERT INTO ledger_references (guild_id, reference, entry_id) SELECT n::text, 'r', 'e' FROM generate_series(1, 5000) n`,
		`ANALYZE guilds, wallets, webhook_endpoints, rank_maps, rank_requests, ledger_references`)
	some := func(n int, several bool) []any {
		changes := make([]*change, n)
		for i := range changes {
			changes[i] = &change{by: event.System("7"), entry: entry{ID: db.NewID(), UserID: strconv.Itoa(i + 1), Delta: 1}}
		}
		return arguments(several, changes)
	}
	for _, c := range []struct {
		statement string
		args      []any
	}{
		{ownAdjustment.For(0), some(1, false)},
		{ownAdjustment.For(64), some(1, false)},
		{guildsAdjustments.For(0), some(5, false)},
		{guildsAdjustments.For(64), some(5, false)},
		{adjustments.For(0), some(5, true)},
		{adjustments.For(64), some(5, true)},
	} {
		plan := dbtest.Plan(t, d, c.statement, c.args...)
		if strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Bitmap") || strings.Count(plan, "Index") < 3 {
			t.Errorf("a table is read whole:\n%s", plan)
		}
	}
}
