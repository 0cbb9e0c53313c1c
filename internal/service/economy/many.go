package economy

import (
	"cmp"
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

// many holds the changes of one call or batch, and their wallets and used references.
type many struct {
	list    []*change
	uses    map[of]entry    // ledger entries by used reference
	wallets map[of]*holding // by member
}

// of names a member or a reference of a guild.
type of struct{ guild, name string }

// wallet returns the wallet that a change is about.
func (m *many) wallet(c *change) *holding { return m.wallets[of{c.By.GuildID, c.entry.UserID}] }

// holding is a wallet that is locked until the unit of work ends.
type holding struct {
	GuildID string    `db:"guild_id"`
	UserID  string    `db:"user_id"`
	Was     *int64    `db:"was"` // balance before the call; nil if the wallet does not exist
	At      time.Time `db:"at"`  // instant for the next change; after a change, the instant of the last change
	Balance int64     `db:"balance"`
	changed bool
}

// hold locks the wallets, in the same order as every other statement, and reads the used
// references. If another unit of work uses a reference after that, write finds the conflict.
func hold(ctx context.Context, tx *db.Tx, list []*change) (*many, error) {
	m := &many{list: list, wallets: map[of]*holding{}}
	var references []of
	for _, c := range list {
		m.wallets[of{c.By.GuildID, c.entry.UserID}] = nil
		if c.entry.Reference != nil {
			references = append(references, of{c.By.GuildID, *c.entry.Reference})
		}
	}
	guilds, users := split(slices.SortedFunc(maps.Keys(m.wallets), of.compare))
	rows, err := db.Select[holding](ctx, tx, manyHeld, list[0].By.GuildID, guilds, users)
	if err != nil {
		return nil, fmt.Errorf("hold %d wallets: %w", len(m.wallets), err)
	}
	for i := range rows {
		m.wallets[of{rows[i].GuildID, rows[i].UserID}] = &rows[i]
	}
	if len(references) > 0 {
		m.uses, err = usesOf(ctx, tx, references)
	}
	return m, err
}

func (o of) compare(other of) int {
	return cmp.Or(cmp.Compare(o.guild, other.guild), cmp.Compare(o.name, other.name))
}

// split returns the guilds and the names of list as two parameters of a statement.
func split(list []of) (guilds, names any) {
	return db.Array(batch.Each(list, func(o of) string { return o.guild })), db.Array(batch.Each(list, func(o of) string { return o.name }))
}

// manyHeld finds and locks the wallets one by one: Postgres has no other plan for a subquery that
// locks. The clock is read after the wallet is locked. On a coordinator all wallets are those of
// the guild $1.
var manyHeld = `
		SELECT g.guild_id, g.user_id, w.balance AS was, coalesce(w.balance, 0) AS balance, ` + db.Next("clock_timestamp()", "w.updated_at") + ` AS at
		FROM unnest((SELECT $2::text[]), $3::text[]) AS g (guild_id, user_id)
		LEFT JOIN LATERAL (
			SELECT balance, updated_at FROM wallets WHERE guild_id = g.guild_id /*: $1 */ AND user_id = g.user_id FOR NO KEY UPDATE
		) w ON true
		WHERE $1::text IS NOT NULL`

// judge decides an adjustment after the earlier changes of the call. judge returns a refusal if the
// balance would leave its limits, or if the guild has used the reference for another change.
func (m *many) judge(c *change) error {
	if repeated, err := m.repeated(c); repeated || err != nil {
		return err
	}
	if err := m.covered(c); err != nil {
		return err
	}
	m.make(m.wallet(c).next(), c)
	return nil
}

// repeated reports whether an earlier request has made the change under the same reference. The
// change then gets the ledger entry of that request. If the reference was used for another change,
// repeated returns a refusal.
func (m *many) repeated(c *change) (bool, error) {
	if c.entry.Reference == nil {
		return false, nil
	}
	was, used := m.uses[of{c.By.GuildID, *c.entry.Reference}]
	if !used {
		return false, nil
	}
	if err := otherThan(c.entry, was); err != nil {
		return false, err
	}
	c.entry, c.replayed = was, true
	return true, nil
}

// covered returns a refusal if the change would move the balance beyond its limits.
func (m *many) covered(c *change) error {
	return beyond(m.wallet(c).Balance, c.entry.Delta)
}

// next returns the instant of the wallet's next change. The ledger entries of one member are a
// millisecond apart.
func (w *holding) next() time.Time {
	if w.changed {
		return w.At.Add(time.Millisecond)
	}
	return w.At
}

// make makes a change at an instant, which write stores.
func (m *many) make(at time.Time, c *change) {
	w := m.wallet(c)
	w.changed, w.At, w.Balance = true, at, w.Balance+c.entry.Delta
	c.entry.ID, c.entry.BalanceAfter, c.entry.CreatedAt, c.made = db.NewIDAt(at), w.Balance, at, true
	if c.entry.Reference != nil {
		m.uses[of{c.By.GuildID, *c.entry.Reference}] = c.entry
	}
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

// write stores the wallets and ledger entries of the changes that were made, with the keys of their
// requests, and emits an event for each. If another unit of work has inserted a wallet or used a
// reference meanwhile, write returns db.Again.
func write(ctx context.Context, tx *db.Tx, m *many) error {
	var made []*change
	references := 0
	for _, c := range m.list {
		if !c.made {
			continue
		}
		made = append(made, c)
		if c.entry.Reference != nil {
			references++
		}
	}
	if len(made) == 0 {
		return nil
	}
	var wallets []*holding
	for _, user := range slices.SortedFunc(maps.Keys(m.wallets), of.compare) {
		if m.wallets[user].changed {
			wallets = append(wallets, m.wallets[user])
		}
	}
	got, err := db.Get[manyStored](ctx, tx, manyWritten.For(len(wallets)), manyArguments(wallets, made)...)
	if err != nil {
		return fmt.Errorf("adjust %d balances: %w", len(made), err)
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

func manyArguments(wallets []*holding, made []*change) []any {
	users, instants, balances := make([]string, len(wallets)), make([]string, len(wallets)), make([]int64, len(wallets))
	before, there := make([]int64, len(wallets)), make([]bool, len(wallets))
	for i, w := range wallets {
		users[i], balances[i], instants[i] = w.UserID, w.Balance, w.At.Format(time.RFC3339Nano)
		if there[i] = w.Was != nil; there[i] {
			before[i] = *w.Was
		}
	}
	texts := func(value func(*change) string) any { return db.Array(batch.Each(made, value)) }
	nullable := func(value func(*change) *string) any { return db.Texts(batch.Each(made, value)) }
	tokens, keys, fingerprints := batch.KeysOf(made)
	return []any{
		made[0].By.GuildID, db.Array(users), db.Booleans(there), db.Integers(before), db.Integers(balances), db.Array(instants),
		texts((*change).Member), db.Integers(batch.Each(made, func(c *change) int64 { return c.entry.Delta })),
		db.Integers(batch.Each(made, func(c *change) int64 { return c.entry.BalanceAfter })), texts(func(c *change) string { return c.entry.ID }),
		nullable(func(c *change) *string { return c.entry.Reason }), nullable(func(c *change) *string { return c.entry.Reference }),
		texts(func(c *change) string { return c.entry.CreatedAt.Format(time.RFC3339Nano) }), texts(func(c *change) string { return c.entry.Note }),
		texts(func(c *change) string { return c.By.JSON() }), texts(func(c *change) string { return c.By.Trace }),
		nullable(func(c *change) *string { return c.entry.AuthorID }), nullable(func(c *change) *string { return c.entry.Counterparty }),
		tokens, keys, fingerprints,
		db.Array(batch.Each(wallets, func(w *holding) string { return w.GuildID })), texts(func(c *change) string { return c.By.GuildID }),
	}
}

// manyWritten writes the wallets after all changes, and a ledger entry and an event for each change
// (step moved). In the rank index, each wallet moves once, from its first balance to its last (step
// wallets_after). References are inserted in sorted order, so that two calls do not deadlock. On a
// coordinator all changes are those of the guild $1.
var manyWritten = leaderboard.Wallets.Noted("wallets_after", "wallets_after.guild_id /*: $1 */", `
		WITH wallets_after AS MATERIALIZED (
			SELECT guild_id, user_id, CASE WHEN there THEN was END AS was, is_now, at, $1::text AS one_guild
			FROM unnest((SELECT $2::text[]), $3::boolean[], $4::bigint[], $5::bigint[], $6::timestamptz[], $22::text[])
			     AS g (user_id, there, was, is_now, at, guild_id)
		), moved AS MATERIALIZED (
			SELECT g.*, g.id AS event_id
			FROM unnest((SELECT $7::text[]), $8::bigint[], $9::bigint[], $10::text[], $11::text[], $12::text[], $13::timestamptz[], $14::text[],
			            $15::text[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::bytea[], $23::text[])
			     AS g (user_id, delta, is_now, id, reason, reference, updated_at, note,
			           origin, trace, author_id, counterparty_id, token_id, key, fingerprint, guild_id)
		), changed AS (
			UPDATE wallets w
			SET balance = a.is_now, updated_at = a.at
			FROM wallets_after a
			WHERE w.guild_id = a.guild_id /*: $1 */ AND w.user_id = a.user_id AND a.was IS NOT NULL
			RETURNING w.user_id
		), made AS (
			INSERT INTO wallets (guild_id, user_id, balance, updated_at)
			SELECT a.guild_id /*: home.id */, a.user_id, a.is_now, a.at
			FROM wallets_after a /*: a JOIN guilds home ON home.id = $1 */
			WHERE a.was IS NULL
			ON CONFLICT DO NOTHING
			RETURNING user_id
		), referenced AS (
			INSERT INTO ledger_references (guild_id, reference, entry_id)
			SELECT m.guild_id /*: home.id */, m.reference, m.id
			FROM moved m /*: m JOIN guilds home ON home.id = $1 */
			WHERE m.reference IS NOT NULL
			ORDER BY m.guild_id, m.reference
			ON CONFLICT DO NOTHING
			RETURNING reference
		), entered AS (
			INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, reason, note, created_at, reference, author_id, counterparty_id)
			SELECT m.guild_id /*: home.id */, m.id, m.user_id, m.delta, m.is_now, m.reason, m.note, m.updated_at, m.reference, m.author_id, m.counterparty_id
			FROM moved m /*: m JOIN guilds home ON home.id = $1 */
		), keyed AS (
			INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint, state, status, entry_id, entry_at)
			SELECT m.guild_id /*: home.id */, m.token_id, m.key, m.fingerprint, 'done', 200, m.id, m.updated_at
			FROM moved m /*: m JOIN guilds home ON home.id = $1 */
			WHERE m.key IS NOT NULL
		), :rank, :emit
		SELECT (SELECT count(*) FROM changed) + (SELECT count(*) FROM made) AS wallets, (SELECT count(*) FROM referenced) AS refs`, "emit", emitting("moved.guild_id /*: $1 */"))
