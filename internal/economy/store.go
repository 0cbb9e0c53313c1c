package economy

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"guildhall/internal/db"
	"guildhall/internal/event"
	"guildhall/internal/fault"
	"guildhall/internal/page"
)

// row is a wallet as stored. A member who has none reads as the zero balance.
type row struct {
	UserID    string     `db:"user_id"`
	Balance   int64      `db:"balance"`
	UpdatedAt *time.Time `db:"updated_at"`
}

// entry is a ledger row as stored. Rows are never changed.
type entry struct {
	ID           string    `db:"id"`
	UserID       string    `db:"user_id"`
	Delta        int64     `db:"delta"`
	BalanceAfter int64     `db:"balance_after"`
	Reason       *string   `db:"reason"`
	Note         string    `db:"note"`
	CreatedAt    time.Time `db:"created_at"`
}

// wallet returns the member's wallet, or the zero record.
func wallet(ctx context.Context, q db.Querier, guild, user string) (row, error) {
	var w row
	err := q.GetContext(ctx, &w, `
		SELECT user_id, balance, updated_at
		FROM wallets
		WHERE guild_id = $1 AND user_id = $2`, guild, user)
	switch {
	case db.Missing(err):
		return row{UserID: user}, nil
	case err != nil:
		return row{}, fmt.Errorf("read wallet of %s in guild %s: %w", user, guild, err)
	}
	return w, nil
}

const (
	// The index wallets_leaderboard holds exactly this order.
	firstPages = `
		SELECT user_id, balance
		FROM wallets
		WHERE guild_id = $1
		ORDER BY -balance, length(user_id), user_id
		LIMIT $2 OFFSET $3`

	// What lies deep is found through the leaderboard's map.
	deepPages = `
		SELECT user_id, balance
		FROM wallets_after($1, $3, $2)`

	// deep is from where on the map is worth the look.
	deep = 1000
)

// richest returns one page of the guild's wallets, the largest balance first.
// A deep page costs little more than the first.
func richest(ctx context.Context, q db.Querier, guild string, p page.P) ([]row, error) {
	query := firstPages
	if p.Offset() >= deep {
		query = deepPages
	}
	var list []row
	if err := q.SelectContext(ctx, &list, query, guild, p.Limit(), p.Offset()); err != nil {
		return nil, fmt.Errorf("read economy leaderboard of guild %s: %w", guild, err)
	}
	return list, nil
}

// adjust moves the balance of e.UserID by e.Delta, writes the ledger row e and
// records the event, all in one statement. It returns the wallet and the
// ledger row as stored. A result outside the limits is Refused and changes
// nothing.
//
// An existing wallet is updated before an absent one is inserted: the row an
// upsert proposes would have to satisfy wallets_not_negative even where only
// its update would run.
func adjust(ctx context.Context, tx *db.Tx, by event.Origin, e entry) (row, entry, error) {
	head, tail := eventData(e)
	w := row{UserID: e.UserID}
	err := tx.GetContext(ctx, &w, `
		WITH changed AS (
			UPDATE wallets SET balance = balance + $3, updated_at = now()
			WHERE guild_id = $1 AND user_id = $2
			RETURNING balance
		), made AS (
			INSERT INTO wallets AS w (guild_id, user_id, balance)
			SELECT $1, $2, $3
			WHERE NOT EXISTS (SELECT FROM changed)
			ON CONFLICT (guild_id, user_id) DO UPDATE
			SET balance = w.balance + excluded.balance, updated_at = now()
			RETURNING balance
		), moved AS (
			SELECT balance FROM changed UNION ALL SELECT balance FROM made
		), entered AS (
			INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, reason, note)
			SELECT $1, $4, $2, $3, balance, $5, $6 FROM moved
		)
		SELECT $2 AS user_id, balance, now() AS updated_at
		FROM moved, record_event($1, $7, $8, $9,
			$10::text || balance || ',"previous_balance":' || balance - $3 || $11::text)`,
		by.GuildID, e.UserID, e.Delta, e.ID, e.Reason, e.Note,
		db.NewID(), event.BalanceChanged, by.JSON(), head, tail)
	switch {
	case db.Violates(err, "wallets_not_negative"):
		return row{}, entry{}, fault.New(fault.Refused, "balance_would_be_negative", "The balance does not cover a change by %d.", e.Delta)
	case db.Violates(err, "wallets_within_limit"):
		return row{}, entry{}, fault.New(fault.Refused, "balance_limit_exceeded", "The balance would exceed 9007199254740991.")
	case err != nil:
		return row{}, entry{}, fmt.Errorf("adjust wallet of %s in guild %s: %w", e.UserID, by.GuildID, err)
	}
	e.BalanceAfter, e.CreatedAt = w.Balance, *w.UpdatedAt
	return w, e, nil
}

// eventData is the data of economy.balance_changed around the two balances,
// which only the statement knows.
func eventData(e entry) (head, tail string) {
	reason, err := json.Marshal(e.Reason)
	if err != nil {
		panic(err) // a string or null
	}
	return `{"user_id":"` + e.UserID + `","balance":`,
		`,"delta":` + strconv.FormatInt(e.Delta, 10) + `,"reason":` + string(reason) + `,"ledger_entry_id":"` + e.ID + `"}`
}

// entries returns one page of the ledger, newest first. Without a user it is
// the whole guild's; each form has its own index.
func entries(ctx context.Context, q db.Querier, guild string, user *string, since *time.Time, p page.P) ([]entry, error) {
	var list []entry
	var err error
	if user == nil {
		err = q.SelectContext(ctx, &list, `
			SELECT id, user_id, delta, balance_after, reason, note, created_at
			FROM ledger_entries
			WHERE guild_id = $1 AND created_at >= coalesce($2, '-infinity'::timestamptz)
			ORDER BY created_at DESC, id DESC
			LIMIT $3 OFFSET $4`, guild, since, p.Limit(), p.Offset())
	} else {
		err = q.SelectContext(ctx, &list, `
			SELECT id, user_id, delta, balance_after, reason, note, created_at
			FROM ledger_entries
			WHERE guild_id = $1 AND user_id = $2 AND created_at >= coalesce($3, '-infinity'::timestamptz)
			ORDER BY created_at DESC, id DESC
			LIMIT $4 OFFSET $5`, guild, *user, since, p.Limit(), p.Offset())
	}
	if err != nil {
		return nil, fmt.Errorf("read ledger of guild %s: %w", guild, err)
	}
	return list, nil
}
