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
)

// maxBalance is the largest balance: the largest integer that every JSON reader
// holds exactly.
const maxBalance = 1<<53 - 1

// AdjustBalances makes adjustments in their order, all of them or none: the first that
// is refused refuses the call. It takes a statement for each step and not one for each
// change: the wallets are held, the changes judged, and what has become of wallets and
// ledger is written.
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

// place is where an adjustment stands in the request.
func place(i int) string { return fmt.Sprintf("body /adjustments/%d", i) }

// referencesDiffer refuses a call that names a reference twice.
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

// adjustAll makes changes of one guild in their order. refused says of which one a refusal
// is.
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

// many are the changes of one call, of one guild, with what they meet.
type many struct {
	list    []*change
	uses    map[string]entry    // of references that are used
	wallets map[string]*holding // by member
}

// holding is a wallet that is held until the unit ends.
type holding struct {
	UserID  string    `db:"user_id"`
	Was     *int64    `db:"was"` // nil: there is none yet
	At      time.Time `db:"at"`  // of the change that comes next; once one is made, of the last
	Balance int64     `db:"balance"`
	changed bool
}

// hold holds the wallets, in the order in which all hold them, and looks up the
// references. One that is used later than that is found when it is written.
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

// manyHeld looks each wallet up and locks it by itself: a subquery that locks is not
// joined in another way. The clock is read once the wallet is held.
var manyHeld = `
		SELECT g.user_id, w.balance AS was, coalesce(w.balance, 0) AS balance, ` + db.Next("clock_timestamp()", "w.updated_at") + ` AS at
		FROM unnest((SELECT $2::text[])) AS g (user_id)
		LEFT JOIN LATERAL (
			SELECT balance, updated_at FROM wallets WHERE guild_id = $1 AND user_id = g.user_id FOR NO KEY UPDATE
		) w ON true`

// judge decides a change after those before it, or returns its refusal: when the result
// is outside the limits, and when the guild has used the reference before, for another
// change. Rows of one member are a millisecond apart.
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

// beyond is the refusal of a change whose result would be outside the limits.
func beyond(balance, delta int64) error {
	switch after := balance + delta; {
	case after < 0:
		return fault.New(fault.Refused, "balance_would_be_negative", "The balance is %d and does not cover a change by %d.", balance, delta)
	case after > maxBalance:
		return fault.New(fault.Refused, "balance_limit_exceeded", "The balance would exceed %d.", int64(maxBalance))
	}
	return nil
}

// otherThan refuses a change whose reference is that of the ledger row, unless it is
// the change that the row tells of. Reasons are not compared.
func otherThan(c, was entry) error {
	refuse := func(format string, args ...any) error {
		return fault.New(fault.Refused, "reference_already_used", format, args...)
	}
	switch member, delta := c.UserID != was.UserID, c.Delta != was.Delta; {
	case was.ID == "":
		return refuse("The reference was used by a change that is not here any more: before the guild moved here, or of a member who is forgotten.")
	case member && delta:
		return refuse("The reference is that of the ledger entry %s, which is another member's and by %d, not by %d.", was.ID, was.Delta, c.Delta)
	case member:
		return refuse("The reference is that of the ledger entry %s, which is another member's.", was.ID)
	case delta:
		return refuse("The reference is that of the ledger entry %s, which is by %d, not by %d.", was.ID, was.Delta, c.Delta)
	}
	return nil
}

// write stores what the changes have made of wallets and ledger, and tells of each. It
// is db.Again when a wallet or a use of a reference has come meanwhile.
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

// manyStored is what the statement has written.
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
	members, ids, ats, events := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	deltas, after, reasons, references := make([]int64, n), make([]int64, n), make([]*string, n), make([]*string, n)
	for i, e := range rows {
		members[i], deltas[i], after[i], ids[i], reasons[i], references[i] = e.UserID, e.Delta, e.BalanceAfter, e.ID, e.Reason, e.Reference
		ats[i], events[i] = e.CreatedAt.Format(time.RFC3339Nano), db.NewID()
	}
	return []any{
		by.GuildID, db.Array(users), db.Booleans(there), db.Integers(before), db.Integers(balances), db.Array(instants),
		db.Array(members), db.Integers(deltas), db.Integers(after), db.Array(ids), db.Texts(reasons), db.Texts(references),
		db.Array(ats), db.Array(events), rows[0].Note, by.JSON(), by.Trace,
	}
}

// manyWritten writes wallets as they stand after all changes (wallets_after), of which
// ranks know the first and the last balance, and a ledger row and an event for each
// change (moved). Those who hold references write them in one order.
var manyWritten = leaderboard.Wallets.Noted("wallets_after", "$1", `
		WITH wallets_after AS MATERIALIZED (
			SELECT user_id, CASE WHEN there THEN was END AS was, is_now, at
			FROM unnest((SELECT $2::text[]), $3::boolean[], $4::bigint[], $5::bigint[], $6::timestamptz[]) AS g (user_id, there, was, is_now, at)
		), moved AS MATERIALIZED (
			SELECT g.*, $15::text AS note, $16::text AS origin, $17::text AS trace
			FROM unnest((SELECT $7::text[]), $8::bigint[], $9::bigint[], $10::text[], $11::text[], $12::text[], $13::timestamptz[], $14::text[])
			     AS g (user_id, delta, is_now, id, reason, reference, updated_at, event_id)
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
			INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, reason, note, created_at, reference)
			SELECT $1 /*: home.id */, m.id, m.user_id, m.delta, m.is_now, m.reason, m.note, m.updated_at, m.reference
			FROM moved m /*: m JOIN guilds home ON home.id = $1 */
		), :rank, :told
		SELECT (SELECT count(*) FROM changed) + (SELECT count(*) FROM made) AS wallets, (SELECT count(*) FROM referenced) AS refs`, "told", telling("$1"))
