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
	"guildhall/internal/leaderboard"
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
	Reference    *string   `db:"reference"` // the caller's own name of it
	Note         string    `db:"note"`
	CreatedAt    time.Time `db:"created_at"`
}

// wallet returns the member's wallet, or the zero record.
func wallet(ctx context.Context, q db.Querier, guild, user string) (row, error) {
	var w row
	err := q.GetContext(ctx, &w, walletOf, guild, user)
	switch {
	case db.Missing(err):
		return row{UserID: user}, nil
	case err != nil:
		return row{}, fmt.Errorf("read wallet of %s in guild %s: %w", user, guild, err)
	}
	return w, nil
}

const walletOf = `
		SELECT user_id, balance, updated_at
		FROM wallets
		WHERE guild_id = $1 AND user_id = $2`

// adjustment claims the reference, if there is one, before it changes anything:
// who comes second finds it taken, after a wait for who came first, changes
// nothing and gets no row. A row that the upsert made, and not only changed, has
// no xmax: nobody has locked it yet.
var adjustment = leaderboard.Wallets.Noted("moved", "$1", func(note string) string {
	return `
		WITH claimed AS (
			INSERT INTO ledger_references (guild_id, reference, entry_id)
			SELECT $1, $11, $4
			WHERE $11::text IS NOT NULL
			ON CONFLICT DO NOTHING
			RETURNING entry_id
		), changed AS (
			UPDATE wallets SET balance = balance + $3, updated_at = ` + db.Next("updated_at") + `
			WHERE guild_id = $1 AND user_id = $2
			  AND ($11::text IS NULL OR EXISTS (SELECT FROM claimed))
			RETURNING balance, updated_at, balance - $3 AS was
		), made AS (
			INSERT INTO wallets AS w (guild_id, user_id, balance, updated_at)
			SELECT $1, $2, $3, clock_timestamp()
			WHERE NOT EXISTS (SELECT FROM changed)
			  AND ($11::text IS NULL OR EXISTS (SELECT FROM claimed))
			ON CONFLICT (guild_id, user_id) DO UPDATE
			SET balance = w.balance + excluded.balance, updated_at = greatest(excluded.updated_at, ` + db.Later("w.updated_at") + `)
			RETURNING balance, updated_at, CASE WHEN xmax <> 0 THEN balance - $3 END AS was
		), moved AS (
			SELECT $2::text AS user_id, balance, updated_at, was, balance AS is_now FROM changed
			UNION ALL
			SELECT $2, balance, updated_at, was, balance FROM made
		), entered AS (
			INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, reason, note, created_at, reference)
			SELECT $1, $4, $2, $3, balance, $5, $6, updated_at, $11 FROM moved
		), ` + note + `, ` + told.CTEs() + `
		SELECT user_id, balance, updated_at
		FROM moved`
})

// told puts the two balances, which only the statement knows, into the payload.
var told = event.Telling{
	Rows: "moved", Guild: "$1", Type: "'" + event.BalanceChanged + "'", ID: "$7", At: "moved.updated_at",
	Payload: `$8::text || ` + event.Stamp("moved.updated_at") + ` || $9::text || moved.balance || ',"previous_balance":' || moved.balance - $3 || $10::text`,
}

// adjust moves the balance of e.UserID by e.Delta, writes the ledger row e and
// records the event, all in one statement. It returns the wallet and the
// ledger row as stored. A result outside the limits and a reference that the
// guild has used are Refused and change nothing.
//
// Wallet, ledger row and event carry one instant, later than that of the
// wallet's change before: its ledger stands in the order of effects.
//
// An existing wallet is updated before an absent one is inserted: the row an
// upsert proposes would have to satisfy wallets_not_negative even where only
// its update would run.
func adjust(ctx context.Context, tx *db.Tx, by event.Origin, e entry) (row, entry, error) {
	id := db.NewID()
	envelope := event.NewEnvelope(by, id, event.BalanceChanged)
	head, tail := eventData(e)
	w := row{UserID: e.UserID}
	err := tx.GetContext(ctx, &w, adjustment.For(1),
		by.GuildID, e.UserID, e.Delta, e.ID, e.Reason, e.Note,
		id, envelope.Head, envelope.Middle+head, tail+event.Tail, e.Reference)
	switch {
	case db.Missing(err):
		return row{}, entry{}, referenceUsed(ctx, tx, by.GuildID, *e.Reference)
	case db.Violates(err, "wallets_not_negative"):
		return row{}, entry{}, uncovered(err, e.Delta)
	case db.Violates(err, "wallets_within_limit"):
		return row{}, entry{}, fault.New(fault.Refused, "balance_limit_exceeded", "The balance would exceed 9007199254740991.")
	case err != nil:
		return row{}, entry{}, fmt.Errorf("adjust wallet of %s in guild %s: %w", e.UserID, by.GuildID, err)
	}
	e.BalanceAfter, e.CreatedAt = w.Balance, *w.UpdatedAt
	return w, e, nil
}

// uncovered is the refusal that names the balance: that of the row which the
// constraint has refused, without the change. No statement can ask for it any
// more in this transaction, and later it would be another one.
func uncovered(err error, delta int64) error {
	after, wrong := strconv.ParseInt(db.Proposed(err, 3), 10, 64)
	if wrong != nil {
		return fault.New(fault.Refused, "balance_would_be_negative", "The balance does not cover a change by %d.", delta)
	}
	return fault.New(fault.Refused, "balance_would_be_negative", "The balance is %d and does not cover a change by %d.", after-delta, delta)
}

// referenceUsed is the refusal that names the ledger row with the reference.
func referenceUsed(ctx context.Context, tx *db.Tx, guild, reference string) error {
	var id *string
	err := tx.GetContext(ctx, &id, `
		SELECT entry_id
		FROM ledger_references
		WHERE guild_id = $1 AND reference = $2`, guild, reference)
	if err != nil {
		return fmt.Errorf("read who has used the reference of a change in guild %s: %w", guild, err)
	}
	if id == nil {
		return fault.New(fault.Refused, "reference_already_used", "The guild used this reference before it moved here.")
	}
	return fault.New(fault.Refused, "reference_already_used", "The reference is that of the ledger entry %s.", *id)
}

// eventData is the data of economy.balance_changed around the two balances,
// which only the statement knows.
func eventData(e entry) (head, tail string) {
	reason, err := json.Marshal(e.Reason)
	if err != nil {
		panic(err) // a string or null
	}
	reference, err := json.Marshal(e.Reference)
	if err != nil {
		panic(err)
	}
	return `{"user_id":"` + e.UserID + `","balance":`,
		`,"delta":` + strconv.FormatInt(e.Delta, 10) + `,"reason":` + string(reason) + `,"reference":` + string(reference) + `,"ledger_entry_id":"` + e.ID + `"}`
}

// filter narrows the ledger. The zero value lets everything through.
type filter struct {
	UserID    *string
	Reference *string
	Since     time.Time
}

// The whole ledger and a member's have an index each: the ledger's primary key,
// and by_user.
var (
	ledger = page.Table{Name: "ledger_entries", Columns: "id, user_id, delta, balance_after, reason, reference, note, created_at"}

	newest = page.Newest(ledger, "guild_id = $1 AND created_at >= $4")

	newestOfUser = page.Newest(ledger, "guild_id = $1 AND created_at >= $4 AND user_id = $5")
)

// referenced is a list of one row at most.
const referenced = `
		SELECT id, user_id, delta, balance_after, reason, reference, note, created_at
		FROM ledger_entries
		WHERE guild_id = $1
		  AND reference = $5
		  AND created_at >= $4
		  AND ($6::text IS NULL OR user_id = $6)
		LIMIT $2 OFFSET $3`

// query is the statement that lists the rows of guild's ledger that pass f, and
// its arguments.
func query(guild string, f filter, p page.P) (string, []any) {
	args := []any{guild, p.Limit(), p.Offset(), f.Since}
	switch {
	case f.Reference != nil:
		return referenced, append(args, *f.Reference, f.UserID)
	case f.UserID != nil:
		return newestOfUser.For(p), append(args, *f.UserID)
	}
	return newest.For(p), args
}

// entries returns one page of the ledger, newest first, and one row more when
// there is one.
func entries(ctx context.Context, q db.Querier, guild string, f filter, p page.P) ([]entry, error) {
	var list []entry
	sql, args := query(guild, f, p)
	if err := q.SelectContext(ctx, &list, sql, args...); err != nil {
		return nil, fmt.Errorf("read ledger of guild %s: %w", guild, err)
	}
	return list, nil
}
