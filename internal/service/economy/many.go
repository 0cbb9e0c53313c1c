package economy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
	"guildhall/internal/service/leaderboard"
	"guildhall/internal/service/transfer"
)

// maxBalance is the largest balance: the largest integer that every JSON reader represents
// exactly.
const maxBalance = 1<<53 - 1

// AdjustBalances makes the adjustments in the given order, all of them or none: if one is refused,
// the whole call is refused. AdjustBalances needs one statement for each step, not for each change:
// lock the wallets, decide the changes, and write the wallets and the ledger.
func (*Service) AdjustBalances(ctx context.Context, r gen.AdjustBalancesRequestObject) (gen.AdjustBalancesResponseObject, error) {
	tx, by := db.Write(ctx), auth.Acting(ctx)
	of, note := batch.ChangeOf(ctx, event.From(by)), by.Note()
	list := batch.Each(r.Body.Adjustments, func(asked gen.AdjustBalanceRequest) *change { return asChange(of, note, asked) })
	if err := referencesDiffer(list); err != nil {
		return nil, err
	}
	if err := adjustAll(ctx, tx, list, func(i int, err error) error { return fault.At(place(i), err) }); err != nil {
		return nil, err
	}
	data := make([]gen.BalanceAdjustmentOfMany, len(list))
	for i, c := range list {
		data[i] = gen.BalanceAdjustmentOfMany{BalanceAdjustment: adjusted(c.entry), Replayed: c.replayed}
	}
	return gen.AdjustBalances200JSONResponse{Data: data}, nil
}

// place names an adjustment by its position in the request.
func place(i int) string { return fmt.Sprintf("body /adjustments/%d", i) }

// referencesDiffer refuses a call in which two adjustments have the same reference.
func referencesDiffer(list []*change) error {
	first := map[string]int{}
	for i, c := range list {
		if c.entry.Reference == nil {
			continue
		}
		if before, again := first[*c.entry.Reference]; again {
			return fault.New(fault.Invalid, "invalid_request", "%s/reference: is that of /adjustments/%d; a call names a reference once", place(i), before)
		}
		first[*c.entry.Reference] = i
	}
	return nil
}

// adjustAll makes changes of one guild in their order. A refusal is passed to refused together with
// the index of the refused change.
func adjustAll(ctx context.Context, tx *db.Tx, list []*change, refused func(i int, err error) error) error {
	m, err := hold(ctx, tx, list)
	if err != nil {
		return err
	}
	for i, c := range list {
		if err := m.judge(c); err != nil {
			return refused(i, err)
		}
	}
	return write(ctx, tx, m)
}

// many holds the changes of one call, and their wallets and used references.
type many struct {
	list    []*change
	uses    map[string]entry    // ledger entries by used reference
	wallets map[string]*holding // by member
}

// holding is a wallet that is locked until the unit of work ends.
type holding struct {
	UserID  string    `db:"user_id"`
	Was     *int64    `db:"was"` // balance before the call; nil if the wallet does not exist
	At      time.Time `db:"at"`  // instant for the next change; after a change, the instant of the last change
	Balance int64     `db:"balance"`
	changed bool
}

// hold locks the wallets, in the same order as every other statement, and reads the used
// references. If another unit of work uses a reference after that, write finds the conflict.
func hold(ctx context.Context, tx *db.Tx, list []*change) (*many, error) {
	m, guild := &many{list: list, wallets: map[string]*holding{}}, list[0].By.GuildID
	var references []string
	for _, c := range list {
		m.wallets[c.entry.UserID] = nil
		if c.entry.Reference != nil {
			references = append(references, *c.entry.Reference)
		}
	}
	rows, err := db.Select[holding](ctx, tx, manyHeld, guild, db.Array(slices.Sorted(maps.Keys(m.wallets))))
	if err != nil {
		return nil, fmt.Errorf("hold %d wallets of guild %s: %w", len(m.wallets), guild, err)
	}
	for i := range rows {
		m.wallets[rows[i].UserID] = &rows[i]
	}
	if len(references) > 0 {
		m.uses, err = usesOf(ctx, tx, guild, references)
	}
	return m, err
}

// manyHeld finds and locks the wallets one by one: Postgres has no other plan for a subquery that
// locks. The clock is read after the wallet is locked.
var manyHeld = `
		SELECT g.user_id, w.balance AS was, coalesce(w.balance, 0) AS balance, ` + db.Next("clock_timestamp()", "w.updated_at") + ` AS at
		FROM unnest((SELECT $2::text[])) AS g (user_id)
		LEFT JOIN LATERAL (
			SELECT balance, updated_at FROM wallets WHERE guild_id = $1 AND user_id = g.user_id FOR NO KEY UPDATE
		) w ON true`

// judge decides a change after the earlier changes of the call. judge returns a refusal if the
// balance would leave its limits, or if the guild has used the reference for another change. The
// ledger entries of one member are a millisecond apart.
func (m *many) judge(c *change) error {
	if c.entry.Reference != nil {
		if was, used := m.uses[*c.entry.Reference]; used {
			if err := otherThan(c.entry, was); err != nil {
				return err
			}
			c.entry, c.replayed = was, true
			return nil
		}
	}
	w := m.wallets[c.entry.UserID]
	if err := beyond(w.Balance, c.entry.Delta); err != nil {
		return err
	}
	if w.changed {
		w.At = w.At.Add(time.Millisecond)
	}
	w.changed, w.Balance = true, w.Balance+c.entry.Delta
	c.entry.ID, c.entry.BalanceAfter, c.entry.CreatedAt = db.NewIDAt(w.At), w.Balance, w.At
	return nil
}

// beyond returns the refusal of a change that would move the balance beyond its limits.
func beyond(balance, delta int64) error {
	switch after := balance + delta; {
	case after < 0:
		return fault.New(fault.Refused, "balance_would_be_negative", "The balance is %d and does not cover a change by %d.", balance, delta)
	case after > maxBalance:
		return fault.New(fault.Refused, "balance_limit_exceeded", "The balance would exceed %d.", int64(maxBalance))
	}
	return nil
}

// otherThan refuses a change whose reference already belongs to the ledger entry was, unless the
// change repeats that entry: the same member, delta and counterparty. Reasons are not compared.
func otherThan(c, was entry) error {
	refuse := func(format string, args ...any) error {
		return fault.New(fault.Refused, "reference_already_used", format, args...)
	}
	switch member, delta := c.UserID != was.UserID, c.Delta != was.Delta; {
	case was.ID != "" && !transfer.Same(c.Counterparty, was.Counterparty):
		return refuse("The reference is that of the ledger entry %s, which is another kind of change: an adjustment, or a transfer with another member.", was.ID)
	case was.ID == "":
		return refuse("The reference was used by a change that is not here any more: before the guild moved here, or of a member who is forgotten.")
	case member && delta:
		return refuse("The reference is that of the ledger entry %s, which is another member's and whose delta is %d, not %d.", was.ID, was.Delta, c.Delta)
	case member:
		return refuse("The reference is that of the ledger entry %s, which is another member's.", was.ID)
	case delta:
		return refuse("The reference is that of the ledger entry %s, whose delta is %d, not %d.", was.ID, was.Delta, c.Delta)
	}
	return nil
}

// write stores the wallets and ledger entries, and emits an event for each change. If another unit
// of work has inserted a wallet or used a reference meanwhile, write returns db.Again.
func write(ctx context.Context, tx *db.Tx, m *many) error {
	var rows []entry
	references := 0
	for _, c := range m.list {
		if c.replayed {
			continue
		}
		rows = append(rows, c.entry)
		if c.entry.Reference != nil {
			references++
		}
	}
	if len(rows) == 0 {
		return nil
	}
	var wallets []*holding
	for _, user := range slices.Sorted(maps.Keys(m.wallets)) {
		if m.wallets[user].changed {
			wallets = append(wallets, m.wallets[user])
		}
	}
	by := m.list[0].By
	got, err := db.Get[manyStored](ctx, tx, manyWritten.For(len(wallets)), manyArguments(by, wallets, rows)...)
	if err != nil {
		return fmt.Errorf("adjust %d balances of guild %s: %w", len(rows), by.GuildID, err)
	}
	if got.Wallets != len(wallets) || got.References != references {
		return db.Again
	}
	return nil
}

// manyStored counts the rows that manyWritten has written.
type manyStored struct {
	Wallets    int `db:"wallets"`
	References int `db:"refs"`
}

func manyArguments(by event.Origin, wallets []*holding, rows []entry) []any {
	users, instants, balances := make([]string, len(wallets)), make([]string, len(wallets)), make([]int64, len(wallets))
	before, there := make([]int64, len(wallets)), make([]bool, len(wallets))
	for i, w := range wallets {
		users[i], balances[i], instants[i] = w.UserID, w.Balance, w.At.Format(time.RFC3339Nano)
		if there[i] = w.Was != nil; there[i] {
			before[i] = *w.Was
		}
	}
	n := len(rows)
	members, ids, ats := make([]string, n), make([]string, n), make([]string, n)
	deltas, after, reasons, references := make([]int64, n), make([]int64, n), make([]*string, n), make([]*string, n)
	authors, counterparties := make([]*string, n), make([]*string, n)
	for i, e := range rows {
		members[i], deltas[i], after[i], ids[i], reasons[i], references[i] = e.UserID, e.Delta, e.BalanceAfter, e.ID, e.Reason, e.Reference
		authors[i], counterparties[i] = e.AuthorID, e.Counterparty
		ats[i] = e.CreatedAt.Format(time.RFC3339Nano)
	}
	return []any{
		by.GuildID, db.Array(users), db.Booleans(there), db.Integers(before), db.Integers(balances), db.Array(instants),
		db.Array(members), db.Integers(deltas), db.Integers(after), db.Array(ids), db.Texts(reasons), db.Texts(references),
		db.Array(ats), rows[0].Note, by.JSON(), by.Trace,
		db.Texts(authors), db.Texts(counterparties),
	}
}

// manyWritten writes the wallets after all changes, and a ledger entry and an event for each change
// (step moved). In the rank index, each wallet moves once, from its first balance to its last (step
// wallets_after). References are inserted in sorted order, so that two calls do not deadlock.
var manyWritten = leaderboard.Wallets.Noted("wallets_after", "$1", `
		WITH wallets_after AS MATERIALIZED (
			SELECT user_id, CASE WHEN there THEN was END AS was, is_now, at
			FROM unnest((SELECT $2::text[]), $3::boolean[], $4::bigint[], $5::bigint[], $6::timestamptz[]) AS g (user_id, there, was, is_now, at)
		), moved AS MATERIALIZED (
			SELECT g.*, g.id AS event_id, $14::text AS note, $15::text AS origin, $16::text AS trace
			FROM unnest((SELECT $7::text[]), $8::bigint[], $9::bigint[], $10::text[], $11::text[], $12::text[], $13::timestamptz[], $17::text[], $18::text[])
			     AS g (user_id, delta, is_now, id, reason, reference, updated_at, author_id, counterparty_id)
		), changed AS (
			UPDATE wallets w
			SET balance = a.is_now, updated_at = a.at
			FROM wallets_after a
			WHERE w.guild_id = $1 AND w.user_id = a.user_id AND a.was IS NOT NULL
			RETURNING w.user_id
		), made AS (
			INSERT INTO wallets (guild_id, user_id, balance, updated_at)
			SELECT $1 /*: home.id */, a.user_id, a.is_now, a.at
			FROM wallets_after a /*: a JOIN guilds home ON home.id = $1 */
			WHERE a.was IS NULL
			ON CONFLICT DO NOTHING
			RETURNING user_id
		), referenced AS (
			INSERT INTO ledger_references (guild_id, reference, entry_id)
			SELECT $1 /*: home.id */, m.reference, m.id
			FROM moved m /*: m JOIN guilds home ON home.id = $1 */
			WHERE m.reference IS NOT NULL
			ORDER BY m.reference
			ON CONFLICT DO NOTHING
			RETURNING reference
		), entered AS (
			INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, reason, note, created_at, reference, author_id, counterparty_id)
			SELECT $1 /*: home.id */, m.id, m.user_id, m.delta, m.is_now, m.reason, m.note, m.updated_at, m.reference, m.author_id, m.counterparty_id
			FROM moved m /*: m JOIN guilds home ON home.id = $1 */
		), :rank, :emit
		SELECT (SELECT count(*) FROM changed) + (SELECT count(*) FROM made) AS wallets, (SELECT count(*) FROM referenced) AS refs`, "emit", emitting("$1"))
