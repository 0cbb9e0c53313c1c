package economy

import (
	"context"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/wire"
	"guildhall/internal/service/leaderboard"
	"guildhall/internal/service/transfer"
)

// Wallets are the wallets of a guild as they move. Their ledger does not: each
// wallet starts a new one, with a row that says so.
var Wallets = transfer.Kind[moved]{
	Name: "wallet", Schema: "GuildFileWallet", Table: "wallets", Columns: "guild_id, user_id, balance, updated_at", Order: "user_id",
	Refusals: map[string]string{"wallets_pkey": "this user has a wallet in this guild already"},
	Guild:    func(w *moved) string { return w.GuildID },
	New:      func(time.Time) moved { return moved{} },
	Complete: func(w *moved, _ time.Time) error {
		w.UpdatedAt = transfer.Pending
		return nil
	},
	Dated:  []transfer.Column{{Table: "ledger_entries", Name: "created_at", ID: "id"}, {Table: "wallets", Name: "updated_at"}},
	Settle: func(w *moved, at wire.Time) { w.UpdatedAt = at },
	After:  begin,
	Finish: leaderboard.Wallets.Reloaded,
}

// moved is a wallet that moves.
type moved struct {
	GuildID   string    `db:"guild_id" json:"guild_id"`
	UserID    string    `db:"user_id" json:"user_id"`
	Balance   int64     `db:"balance" json:"balance"`
	UpdatedAt wire.Time `db:"updated_at" json:"updated_at"`
}

// begin gives wallets the first row of their ledgers.
func begin(ctx context.Context, tx *db.Tx, wallets []moved) error {
	type first struct {
		GuildID string `db:"guild_id"`
		entry
	}
	rows := make([]first, len(wallets))
	for i, w := range wallets {
		rows[i] = first{w.GuildID, entry{ID: db.NewIDAt(w.UpdatedAt.Time), UserID: w.UserID, Delta: w.Balance, BalanceAfter: w.Balance, Note: "import", CreatedAt: w.UpdatedAt.Time}}
	}
	return db.CopyRows(ctx, tx, "ledger_entries", "guild_id, id, user_id, delta, balance_after, note, created_at", rows)
}

// References are those that changes of a guild's economy have used. They move
// although the ledger does not, so that none is taken a second time.
var References = transfer.Kind[reference]{
	Name: "reference", Schema: "GuildFileReference", Table: "ledger_references", Columns: "guild_id, reference", Order: "reference",
	Refusals: map[string]string{"ledger_references_pkey": "this guild has used this reference already"},
	Guild:    func(r *reference) string { return r.GuildID },
	New:      func(time.Time) reference { return reference{} },
}

type reference struct {
	GuildID   string `db:"guild_id" json:"guild_id"`
	Reference string `db:"reference" json:"reference"`
}
