package economy

import (
	"context"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/leaderboard"
	"guildhall/internal/service/transfer"
)

// Wallets is the record kind of wallets. The ledger is not part of a guild file: an import starts a
// new ledger for each wallet, with an entry whose note says so.
var Wallets = transfer.Kind[moved]{
	Name: "wallet", Schema: "GuildFileWallet", Table: "wallets", Columns: "guild_id, user_id, balance, updated_at", Order: "user_id",
	Refusals: map[string]string{"wallets_pkey": "this user has a wallet in this guild already"},
	Guild:    func(w *moved) string { return w.GuildID },
	New:      func(time.Time) moved { return moved{} },
	Complete: func(w *moved, _ time.Time) error {
		w.UpdatedAt = transfer.Pending
		return nil
	},
	Dated:      []transfer.Column{{Table: "ledger_entries", Name: "created_at", ID: "id"}, {Table: "wallets", Name: "updated_at"}},
	SetInstant: func(w *moved, at wire.Time) { w.UpdatedAt = at },
	After:      begin,
	Finish:     leaderboard.Wallets.Reloaded,
	Writer: &transfer.Writer[moved]{
		Schema: "RecordWallet",
		Points: func(w *moved) *int64 { return &w.Balance },
		Key:    func(w *moved) string { return w.UserID },
		Hold:   transfer.Held(func(w *moved) string { return w.UserID }, heldWallets),
		Revise: func(_ *transfer.Call, row *transfer.Row[moved]) error {
			if row.Was != nil {
				row.Is.UpdatedAt = row.Was.UpdatedAt
			}
			return nil
		},
		Shown: func(w *moved) transfer.Shown { return transfer.Shown{ID: w.UserID, UpdatedAt: &w.UpdatedAt} },
		Store: setBalances,
	},
}

const heldWallets = `
		SELECT guild_id, user_id, balance, updated_at
		FROM wallets
		WHERE guild_id = $1
		  AND user_id = ANY ($2)
		ORDER BY user_id`

// moved is a wallet in a record or a guild file.
type moved struct {
	GuildID   string    `db:"guild_id" json:"guild_id"`
	UserID    string    `db:"user_id" json:"user_id"`
	Balance   int64     `db:"balance" json:"balance"`
	UpdatedAt wire.Time `db:"updated_at" json:"updated_at"`
}

// begin writes the first ledger entry of imported wallets.
func begin(ctx context.Context, tx *db.Tx, wallets []moved) error {
	type first struct {
		GuildID string `db:"guild_id"`
		entry
	}
	rows := make([]first, len(wallets))
	for i, w := range wallets {
		rows[i] = first{w.GuildID, entry{ID: db.NewIDAt(w.UpdatedAt.Time), UserID: w.UserID, Delta: w.Balance, BalanceAfter: w.Balance, Note: imported, CreatedAt: w.UpdatedAt.Time}}
	}
	return db.CopyRows(ctx, tx, "ledger_entries", "guild_id, id, user_id, delta, balance_after, note, created_at", rows)
}

// setBalances sets the balances of the wallets in the records. setBalances updates existing
// wallets, inserts the others, and writes a ledger entry and an event for each. A new wallet with a
// balance of 0 gets neither.
func setBalances(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[moved]) error {
	var users, entries, instants []string
	var was, is []int64
	var there []bool
	for _, row := range rows {
		var before int64
		if row.Was != nil {
			before = row.Was.Balance
		}
		users, there, was, is = append(users, row.Is.UserID), append(there, row.Was != nil), append(was, before), append(is, row.Is.Balance)
		entries = append(entries, db.NewIDAt(row.At.Time))
		instants = append(instants, row.At.Time.Format(time.RFC3339Nano))
	}
	note := c.By.Note()
	if c.Import != nil {
		note = imported
	}
	by := event.From(c.By).In(ctx)
	n, err := db.Get[int](ctx, tx, setStatements[c.Emit].For(len(rows)), c.By.GuildID, db.Array(users), db.Booleans(there),
		db.Integers(was), db.Integers(is), db.Array(instants), db.Array(entries), note, by.JSON(), by.Trace)
	if err != nil {
		return fault.Wrap(err, "set balances in guild", c.By.GuildID)
	}
	if n != len(rows) {
		return db.Again
	}
	return nil
}

var (
	// setText sets balances. leaderboard.Noted and emitting add the other steps.
	setText = `
		WITH moved AS MATERIALIZED (
			SELECT user_id, CASE WHEN there THEN was END AS was, is_now, updated_at, id, CASE WHEN is_now <> was THEN id END AS event_id,
			       is_now - was AS delta, NULL::text AS reason, NULL::text AS reference, NULL::text AS author_id, $8::text AS note, $9::text AS origin, $10::text AS trace
			FROM unnest($2::text[], $3::boolean[], $4::bigint[], $5::bigint[], $6::timestamptz[], $7::text[])
				AS g (user_id, there, was, is_now, updated_at, id)
		), changed AS (
			UPDATE wallets w
			SET balance = m.is_now, updated_at = m.updated_at
			FROM moved m
			WHERE w.guild_id = $1 AND w.user_id = m.user_id AND m.was IS NOT NULL
			RETURNING w.user_id
		), made AS (
			INSERT INTO wallets (guild_id, user_id, balance, updated_at)
			SELECT home.id, m.user_id, m.is_now, m.updated_at FROM moved m JOIN guilds home ON home.id = $1 WHERE m.was IS NULL
			ON CONFLICT DO NOTHING
			RETURNING user_id
		), entered AS (
			INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, note, created_at)
			SELECT home.id, m.id, m.user_id, m.delta, m.is_now, m.note, m.updated_at
			FROM moved m JOIN guilds home ON home.id = $1
			WHERE m.delta <> 0
		), :rank:emit
		SELECT (SELECT count(*) FROM changed) + (SELECT count(*) FROM made)`

	setStatements = map[bool]leaderboard.Noted{ // by whether events are emitted
		false: leaderboard.Wallets.Noted("moved", "$1", setText, "emit", ""),
		true:  leaderboard.Wallets.Noted("moved", "$1", setText, "emit", ", "+emitting("$1")),
	}
)

// imported is the note of ledger entries that an import has written.
const imported = "import"

// References is the record kind of used references. They are part of a guild file, although the
// ledger is not, so that no reference is used twice after an import.
var References = transfer.Kind[reference]{
	Name: "reference", Schema: "GuildFileReference", Table: "ledger_references", Columns: "guild_id, reference", Order: "reference",
	Refusals: map[string]string{"ledger_references_pkey": "this guild has used this reference already"},
	Guild:    func(r *reference) string { return r.GuildID },
	New:      func(time.Time) reference { return reference{} },
	Writer: &transfer.Writer[reference]{
		Schema: "RecordReference",
		Key:    func(r *reference) string { return r.Reference },
		Hold:   transfer.Held(func(r *reference) string { return r.Reference }, usedReferences),
		Revise: func(*transfer.Call, *transfer.Row[reference]) error { return nil },
		Shown:  func(r *reference) transfer.Shown { return transfer.Shown{ID: r.Reference} },
		Store:  useReferences,
	},
}

const usedReferences = `
		SELECT guild_id, reference
		FROM ledger_references
		WHERE guild_id = $1
		  AND reference = ANY ($2)
		ORDER BY reference`

// useReferences marks references as used. If another unit of work has used one of them,
// useReferences returns db.Again.
func useReferences(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[reference]) error {
	list := make([]string, len(rows))
	for i, row := range rows {
		list[i] = row.Is.Reference
	}
	n, err := db.Exec(ctx, tx, `
		INSERT INTO ledger_references (guild_id, reference)
		SELECT home.id, r.reference
		FROM unnest($2::text[]) AS r (reference) JOIN guilds home ON home.id = $1
		ORDER BY r.reference
		ON CONFLICT DO NOTHING`, c.By.GuildID, db.Array(list))
	if err != nil {
		return fault.Wrap(err, "use references in guild", c.By.GuildID)
	}
	if n != len(rows) {
		return db.Again
	}
	return nil
}

type reference struct {
	GuildID   string `db:"guild_id" json:"guild_id"`
	Reference string `db:"reference" json:"reference"`
}
