package economy

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
	"guildhall/internal/service/leaderboard"
)

// form is one of the statements that change wallets.
type form struct {
	alone     bool
	text      leaderboard.Noted
	arguments func([]*change) []any
}

func arguments(changes []*change) []any {
	return append(batch.Columns(changes), ownColumns(changes)...)
}

// forms returns all statements that change wallets.
func forms() map[string]form {
	return map[string]form{
		"together": {text: adjustBatch, arguments: arguments},
		"transfers": {text: transferBatch, arguments: func(changes []*change) []any {
			return append(batch.Columns(changes), sideColumns(changes)...)
		}},
		"alone": {alone: true, text: manyWritten, arguments: func(changes []*change) []any {
			c := changes[0]
			held := &holding{UserID: c.entry.UserID, Was: new(int64)}
			return manyArguments(c.By, []*holding{held}, []entry{c.entry})
		}},
	}
}

// The statements contain the limits as numbers. A single change waits for locks; changes in a batch
// give up soon.
func TestStatementsHaveTheirLimits(t *testing.T) {
	t.Parallel()
	for name, s := range forms() {
		text := s.text.For(0)
		if !s.alone && !strings.Contains(text, fmt.Sprintf("BETWEEN 0 AND %d", maxBalance)) {
			t.Errorf("%s: another largest balance", name)
		}
		if strings.Contains(text, "'lock_timeout', '10ms'") == s.alone {
			t.Errorf("%s: gives up soon: %t", name, s.alone)
		}
	}
}

// psql accepts each statement, and Postgres can plan each statement, also with a coordinator.
func TestStatementsAreWholeInBothForms(t *testing.T) {
	t.Parallel()
	all := map[string]string{"wallets": walletsOf}
	for name, s := range forms() {
		all[name], all[name+", and asks for the maintainer"] = s.text.For(0), s.text.For(64)
	}
	dbtest.WantPlanned(t, dbtest.New(t).DB, all)
}

// psql accepts the text of each statement with its variables.
func TestPsqlTakesTheStatements(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	note := leaderboard.Wallets.Noted("moved", batch.Guild, ":rank").For(64)
	dbtest.WantPsql(t, d.URL, adjustBatchSQL+storeBatchSQL, adjustBatch.For(64), "rank", note, "emit", emitting(batch.Guild))
	dbtest.WantPsql(t, d.URL, transferBatchSQL+storeBatchSQL, transferBatch.For(64), "rank", note, "emit", emitting(batch.Guild))
}

// Each query reads an index in the index's order, whatever the size of the guild and the number of
// the page.
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
	for index, f := range map[string]filter{"ledger_entries_pkey": {}, "ledger_entries_by_user": {UserID: &user}} {
		sql, args := query("1", f, page.Of(1, 25))
		dbtest.WantPlannedOnce(t, d, index, sql, args...)
	}
	dbtest.WantIndex(t, d, "wallets_pkey", walletOf, "1", user)
	dbtest.WantIndex(t, d, "ledger_entries_pkey", entryWithin, "1", since, since.Add(time.Millisecond), "77")
	for _, index := range []string{"ledger_references_pkey", "ledger_entries_reference"} {
		dbtest.WantIndex(t, d, index, usesBy, "1", db.Array([]string{"r-77", "r-78"}))
	}
}

// Postgres plans the statement of an adjustment once for each connection, for few changes and
// whatever the statistics of members are, because planning takes longer than the change.
func TestAnAdjustmentIsPlannedOnce(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	// With members in many guilds, Postgres estimates several wallets for each member of the large
	// guild.
	dbtest.Fill(t, d, `INSERT INTO wallets (guild_id, user_id, balance) SELECT '1', n::text, 5 FROM generate_series(1, 30000) n`,
		`INSERT INTO wallets (guild_id, user_id, balance) SELECT g::text, n::text, 5 FROM generate_series(2, 600) g, generate_series(1, 50) n`,
		`INSERT INTO ledger_references (guild_id, reference, entry_id) SELECT '1', n::text, 'e' FROM generate_series(1, 10000) n`,
		`INSERT INTO ledger_references (guild_id, reference, entry_id) SELECT g::text, n::text, 'e'
			FROM generate_series(2, 600) g, generate_series(1, 20) n`,
		`ANALYZE wallets, ledger_references`)
	dbtest.WantOnePlan(t, d, len(forms()), "ledger_entries", func(ctx context.Context, tx *db.Tx, i int) error {
		for name, s := range forms() {
			// The statement that also requests the rank index's Maintainer has a plan of its own.
			reference := fmt.Sprint("new ", name, i)
			c := &change{Change: system, entry: entry{ID: db.NewID(), UserID: "7", Delta: 1, Note: "test", Reference: &reference}}
			if _, err := tx.ExecContext(ctx, s.text.For(0), s.arguments([]*change{c})...); err != nil {
				return err
			}
		}
		return nil
	})
}

// The statements of a call with many adjustments are planned once, too.
func TestSeveralAdjustmentsArePlannedOnce(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Fill(t, d, `INSERT INTO wallets (guild_id, user_id, balance) SELECT '1', n::text, 5 FROM generate_series(1, 30000) n`,
		`ANALYZE wallets`)
	dbtest.WantOnePlan(t, d, 2, "", func(ctx context.Context, tx *db.Tx, i int) error {
		list := make([]*change, 100)
		for n := range list {
			list[n] = &change{Change: system, entry: entry{UserID: fmt.Sprint(1 + 100*i + n), Delta: 1, Note: "test"}}
		}
		return adjustAll(ctx, tx, list, func(_ int, err error) error { return err })
	})
}

// An adjustment reads every table by index, however many guilds, rank indexes, endpoints and
// requests there are, also in the form that requests the Maintainer. A connection keeps its plans,
// so the same must be true if the plan was made while the tables were nearly empty.
func TestAnAdjustmentReadsByIndex(t *testing.T) {
	t.Parallel()
	for _, guilds := range []int{1, 5000} {
		d := dbtest.New(t).DB
		fill := func(statement string) {
			dbtest.Fill(t, d, strings.ReplaceAll(statement, "{guilds}", strconv.Itoa(guilds)))
		}
		fill(`INSERT INTO guilds (id, name, owner_id) SELECT (n + 6)::text, 'g', '1' FROM generate_series(1, {guilds}) n`)
		fill(`INSERT INTO wallets (guild_id, user_id, balance) SELECT (g + 6)::text, u::text, 5
			FROM generate_series(1, {guilds}) g, generate_series(1, 5) u`)
		fill(`INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
			SELECT (n + 6)::text, 'e', 'https://example.com', '{case.created}', '', '' FROM generate_series(1, {guilds}) n`)
		fill(`INSERT INTO rank_indexes (guild_id, board, version, state) SELECT (n + 6)::text, 'wallets', 1, 'live'
			FROM generate_series(1, {guilds}) n`)
		fill(`INSERT INTO rank_requests (guild_id, board) SELECT (n + 6)::text, 'wallets' FROM generate_series(1, {guilds}) n`)
		fill(`INSERT INTO ledger_references (guild_id, reference, entry_id) SELECT (n + 6)::text, 'r', 'e' FROM generate_series(1, {guilds}) n`)
		fill(`INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint)
			SELECT (n + 6)::text, 't', k::text, '' FROM generate_series(1, least({guilds}, 1000)) n, generate_series(1, 5) k`)
		fill(`ANALYZE idempotency_keys, guilds, wallets, webhook_endpoints, rank_indexes, rank_requests, ledger_references`)
		adjustmentsReadByIndex(t, d)
	}
}

func adjustmentsReadByIndex(t *testing.T, d *db.DB) {
	t.Helper()
	reference := "r"
	held := &holding{UserID: "1"}
	held.Was = &held.Balance
	args := manyArguments(event.System("7"), []*holding{held, {UserID: "9"}}, []entry{{}})
	for i := 6; i < 13; i++ { // the statement runs several times, with new values each time
		args[i] = "{}"
	}
	args[16], args[17] = "{}", "{}" // authors and counterparties
	for _, asking := range []int{0, 64} {
		wantNoScan(t, dbtest.Plan(t, d, manyWritten.For(asking), args...))
	}
	wantNoScan(t, dbtest.Plan(t, d, manyHeld, "7", db.Array([]string{"1", "2", "3"})))
	for _, s := range forms() {
		if s.alone { // as in the test above
			continue
		}
		changes := make([]*change, 5)
		for i := range changes {
			changes[i] = &change{
				Change: batch.Change{By: event.System("7")},
				entry:  entry{ID: db.NewID(), UserID: strconv.Itoa(i + 1), Delta: 1, Reference: &reference},
			}
		}
		for _, rows := range []int{0, 64} {
			plan := dbtest.Plan(t, d, s.text.For(rows), s.arguments(changes)...)
			wantNoScan(t, plan)
			if strings.Count(plan, "Index") < 3 {
				t.Errorf("little is read by an index:\n%s", plan)
			}
		}
	}
}

func wantNoScan(t *testing.T, plan string) {
	t.Helper()
	// With so few wallets, the worker of a cluster plans for the given values.
	if strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Bitmap") && !dbtest.Coordinator(t) ||
		!strings.Contains(plan, "Index") || strings.Contains(plan, "guilds_pkey") && !dbtest.Coordinator(t) {
		t.Errorf("a table is read whole, or the guild's row for nothing:\n%s", plan)
	}
}

// A change whose result is within the limits, including the limits themselves, is not refused. If a
// row was inserted while the change was being made, the change is tried again.
func TestWhatIsAllowedAndNotMadeIsLeftOpen(t *testing.T) {
	t.Parallel()
	for delta, refused := range map[int64]string{
		-5: "", 0: "", maxBalance - 5: "",
		-6: "balance_would_be_negative", maxBalance - 4: "balance_limit_exceeded",
	} {
		if err := beyond(5, delta); refused == "" && err != nil || refused != "" && !fault.Is(err, refused) {
			t.Errorf("5 and %d: %v, want %q", delta, err, refused)
		}
	}
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1")
	reference := "r"
	for _, meanwhile := range []string{
		`INSERT INTO wallets (guild_id, user_id, balance) VALUES ('1', '7', 5)`,
		`INSERT INTO ledger_references (guild_id, reference, entry_id) VALUES ('1', 'r', 'e')`,
	} {
		c := &change{Change: system, entry: entry{UserID: "7", Delta: 1, Reference: &reference}}
		if err := d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			m, err := hold(ctx, tx, []*change{c})
			if err != nil {
				return err
			}
			dbtest.Exec(t, d, meanwhile)
			if err := m.judge(c); err != nil {
				return err
			}
			if err := write(ctx, tx, m); !errors.Is(err, db.Again) {
				t.Errorf("after %s: %v", meanwhile, err)
			}
			return errors.New("rolled back")
		}); err == nil || err.Error() != "rolled back" {
			t.Error(err)
		}
		dbtest.Exec(t, d, `DELETE FROM wallets`)
	}
}

// Wallets are locked in the same order, whatever the order of the changes: so two statements with
// the same wallets do not deadlock.
func TestWalletsAreLockedInOneOrder(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1", "2")
	dbtest.Exec(t, d, `INSERT INTO wallets (guild_id, user_id, balance)
		SELECT g, u, 5 FROM unnest(ARRAY['1', '2']) g, unnest(ARRAY['3', '4', '5']) u`)
	order := dbtest.Changed(t, d, "wallets", "NEW.guild_id || '/' || NEW.user_id")
	var list []*change
	for _, of := range [][2]string{{"2", "4"}, {"1", "5"}, {"2", "3"}, {"1", "3"}, {"1", "4"}} {
		list = append(list, &change{Change: batch.Change{By: event.System(of[0])}, entry: entry{UserID: of[1], Delta: 1}})
	}
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error { return adjustEach(ctx, tx, list) })
	if got := order(); got != "1/3 1/4 1/5 2/3 2/4" {
		t.Errorf("they are locked in the order %s", got)
	}
}

// The statement for several wallets leaves out changes with a balance beyond the limits, a used
// reference, a key that its token has used, or a missing wallet. The other changes of the batch are
// applied.
func TestWhatCannotBeMadeTogetherIsLeft(t *testing.T) {
	t.Parallel()
	for _, heard := range []bool{false, true} {
		d := dbtest.New(t).DB
		dbtest.AddGuilds(t, d, "1")
		if heard {
			dbtest.Listen(t, d, "1", []string{event.BalanceChanged})
		}
		dbtest.Exec(t, d, `INSERT INTO wallets (guild_id, user_id, balance) SELECT '1', n::text, 5 FROM generate_series(1, 8) n`)
		dbtest.Exec(t, d, `INSERT INTO ledger_references (guild_id, reference, entry_id) VALUES ('1', 'used', 'e'), ('2', 'free', 'e')`)
		dbtest.Exec(t, d, `INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint)
			VALUES ('1', 't', 'used', ''), ('1', 'another', 'free', '')`)
		var list []*change
		add := func(user string, delta int64, reference, key string) {
			c := &change{Change: batch.Change{By: event.System("1")}, entry: entry{UserID: user, Delta: delta}}
			if reference != "" {
				c.entry.Reference = &reference
			}
			if key != "" {
				c.Key = &idempotency.Request{GuildID: "1", TokenID: "t", Key: key, Fingerprint: []byte("f")}
			}
			list = append(list, c)
		}
		add("1", -6, "", "")
		add("2", maxBalance-4, "", "")
		add("3", 1, "used", "")
		add("4", 1, "", "used")
		add("9", 1, "", "")
		add("5", -5, "", "")
		add("6", maxBalance-5, "free", "free")
		dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error { return adjustEach(ctx, tx, list) })
		for i, c := range list {
			if c.Applied != (i > 4) {
				t.Errorf("heard: %t, member %s: made %t", heard, c.entry.UserID, c.Applied)
			}
		}
		got := dbtest.Value[string](t, d, `SELECT string_agg(balance::text, ' ' ORDER BY user_id) FROM wallets`)
		if got != fmt.Sprint("5 5 5 5 0 ", int64(maxBalance), " 5 5") {
			t.Errorf("heard: %t, the members have %s", heard, got)
		}
	}
}

// A statement for a single change has one wallet.
func TestAChangeMadeAloneIsOfOneWallet(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1")
	dbtest.Exec(t, d, `INSERT INTO wallets (guild_id, user_id, balance) SELECT '1', n::text, 5 FROM generate_series(1, 3) n`)
	c := &change{Change: batch.Change{By: event.System("1")}, entry: entry{UserID: "2", Delta: 1}}
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error { return adjustAlone(ctx, tx, c) })
	if c.entry.BalanceAfter != 6 || c.entry.CreatedAt.IsZero() {
		t.Errorf("it has come to %+v", c.entry)
	}
	if got := dbtest.Value[string](t, d, `SELECT string_agg(balance::text, ' ' ORDER BY user_id) FROM wallets`); got != "5 6 5" {
		t.Errorf("the members have %s", got)
	}
}

// If two changes of a batch have the same reference, the first is applied and the second is left
// out, like a change whose reference was used before. The batch does not fail.
func TestAReferenceThatABatchHasTwiceIsUsedOnce(t *testing.T) {
	t.Parallel()
	d, one, other := dbtest.New(t).DB, "one", "other"
	dbtest.AddGuilds(t, d, "1")
	dbtest.Exec(t, d, `INSERT INTO wallets (guild_id, user_id, balance) SELECT '1', n::text, 5 FROM generate_series(1, 4) n`)
	var list []*change
	for i, reference := range []*string{&one, nil, &one, &other} {
		e := entry{UserID: strconv.Itoa(i + 1), Delta: 1, Reference: reference}
		list = append(list, &change{Change: system, entry: e})
	}
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error { return adjustEach(ctx, tx, list) })
	for i, want := range []bool{true, true, false, true} {
		if list[i].Applied != want {
			t.Errorf("change %d: made %t, want %t", i+1, list[i].Applied, want)
		}
	}
}
