package economy

import (
	"context"
	"fmt"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
	"guildhall/internal/service/batch"
)

// row is a stored wallet. A member without a wallet has a balance of zero.
type row struct {
	UserID    string     `db:"user_id"`
	Balance   int64      `db:"balance"`
	UpdatedAt *time.Time `db:"updated_at"`
}

const columns = "user_id, balance, updated_at"

// entry is a stored ledger entry. Entries are never updated.
type entry struct {
	ID           string    `db:"id"`
	UserID       string    `db:"user_id"`
	Delta        int64     `db:"delta"`
	BalanceAfter int64     `db:"balance_after"`
	Reason       *string   `db:"reason"`
	Reference    *string   `db:"reference"` // the caller's name for the change
	Note         string    `db:"note"`
	CreatedAt    time.Time `db:"created_at"`
	AuthorID     *string   `db:"author_id"`       // who acted through the caller
	Counterparty *string   `db:"counterparty_id"` // the other member of a transfer
}

const entryColumns = "id, user_id, delta, balance_after, reason, reference, note, created_at, author_id, counterparty_id"

// wallet returns the member's wallet, with a balance of zero if there is no row.
func wallet(ctx context.Context, q db.Querier, guild, user string) (row, error) {
	w, err := db.Get[row](ctx, q, walletOf, guild, user)
	switch {
	case db.Missing(err):
		return row{UserID: user}, nil
	case err != nil:
		return row{}, fault.Wrap(err, "read wallet of", user, "in guild", guild)
	}
	return w, nil
}

const walletOf = `
		SELECT ` + columns + `
		FROM wallets
		WHERE guild_id = $1 AND user_id = $2`

// lookup is a request for a member's wallet; answerEach sets the wallet.
type lookup struct {
	guild  string
	wallet row // with a balance of zero if there is no row
}

func answer(ctx context.Context, q db.Querier, one *lookup) (err error) {
	one.wallet, err = wallet(ctx, q, one.guild, one.wallet.UserID)
	return err
}

// answerEach reads the wallets of several lookups in one statement.
func answerEach(ctx context.Context, q db.Querier, list []*lookup) error {
	rows, err := db.Select[struct {
		Number int `db:"number"`
		row
	}](ctx, q, walletsOf, db.Array(batch.Each(list, func(one *lookup) string { return one.guild })),
		db.Array(batch.Each(list, func(one *lookup) string { return one.wallet.UserID })), list[0].guild)
	if err != nil {
		return fmt.Errorf("read %d wallets: %w", len(list), err)
	}
	for _, w := range rows {
		list[w.Number-1].wallet = w.row
	}
	return nil
}

// walletsOf reads the wallets one by one: without the OFFSET, Postgres would read small tables
// whole. The subquery around the first array hides the length of the arrays: otherwise Postgres
// would make a new plan for short arrays each time.
const walletsOf = `
		SELECT g.number, w.*
		FROM unnest((SELECT $1::text[]), $2::text[]) WITH ORDINALITY AS g (guild_id, user_id, number)
		CROSS JOIN LATERAL (
			SELECT ` + columns + ` FROM wallets WHERE guild_id = g.guild_id /*: $3 */ AND user_id = g.user_id OFFSET 0
		) w
		WHERE $3::text IS NOT NULL`

// entryOf returns a ledger entry by its instant and id.
func entryOf(ctx context.Context, q db.Querier, guild, id string, at time.Time) (entry, error) {
	e, err := db.Get[entry](ctx, q, entryBy, guild, at, id)
	return e, fault.Wrap(err, "read ledger entry", id, "of guild", guild)
}

const entryBy = `
		SELECT ` + entryColumns + `
		FROM ledger_entries
		WHERE guild_id = $1 AND created_at = $2 AND id = $3`

var errNoEntry = fault.New(fault.NotFound, "not_found", "No such ledger entry.")

// getEntry returns the ledger entry with the id. The id begins with the millisecond of the entry,
// so its row can be found through the primary key.
func getEntry(ctx context.Context, q db.Querier, guild, id string) (entry, error) {
	at, ok := db.InstantOf(id)
	if !ok {
		return entry{}, errNoEntry
	}
	e, err := db.Get[entry](ctx, q, entryWithin, guild, at, at.Add(time.Millisecond), id)
	if db.Missing(err) {
		return entry{}, errNoEntry
	}
	return e, fault.Wrap(err, "read ledger entry", id, "of guild", guild)
}

const entryWithin = `
		SELECT ` + entryColumns + `
		FROM ledger_entries
		WHERE guild_id = $1 AND created_at >= $2 AND created_at < $3 AND id = $4`

// use is a used reference with the ledger entry that used it. The entry is empty if it does not
// exist: the reference was imported, or the member was forgotten.
type use struct {
	Name string `db:"name"`
	entry
}

// usesOf returns the ledger entries of the used ones among the references.
func usesOf(ctx context.Context, q db.Querier, guild string, references []string) (map[string]entry, error) {
	rows, err := db.Select[use](ctx, q, usesBy, guild, db.Array(references))
	uses := make(map[string]entry, len(rows))
	for _, u := range rows {
		uses[u.Name] = u.entry
	}
	return uses, fault.Wrap(err, "read who has used references of guild", guild)
}

const usesBy = `
		SELECT r.reference AS name, coalesce(e.id, '') AS id, coalesce(e.user_id, '') AS user_id, coalesce(e.delta, 0) AS delta,
		       coalesce(e.balance_after, 0) AS balance_after, e.reason, e.reference, coalesce(e.note, '') AS note,
		       coalesce(e.created_at, 'epoch') AS created_at, e.author_id, e.counterparty_id
		FROM unnest((SELECT $2::text[])) AS g (reference)
		CROSS JOIN LATERAL (
			SELECT reference FROM ledger_references WHERE guild_id = $1 AND reference = g.reference OFFSET 0
		) r
		LEFT JOIN LATERAL (
			SELECT ` + entryColumns + `
			FROM ledger_entries
			WHERE guild_id = $1 AND reference = g.reference OFFSET 0
		) e ON true`

// filter narrows the list of ledger entries. The zero value selects all entries.
type filter struct {
	UserID    *string
	Reference *string
	Since     time.Time
}

// The lists of all entries and of a member's entries have an index each: the primary key of
// ledger_entries, and ledger_entries_by_user.
var (
	ledger = page.Table{Name: "ledger_entries", Columns: entryColumns}

	newest = page.Newest(ledger, "guild_id = $1 AND created_at >= $4")

	newestOfUser = page.Newest(ledger, "guild_id = $1 AND created_at >= $4 AND user_id = $5")
)

// referenced selects the ledger entry with a given reference.
const referenced = `
		SELECT ` + entryColumns + `
		FROM ledger_entries
		WHERE guild_id = $1
		  AND reference = $5
		  AND created_at >= $4
		  AND ($6::text IS NULL OR user_id = $6)
		LIMIT $2 OFFSET $3`

// query returns the statement that lists the guild's ledger entries that match f, and its
// arguments.
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

// entries returns one page of ledger entries, newest first, and one more entry if there is one.
func entries(ctx context.Context, q db.Querier, guild string, f filter, p page.P) ([]entry, error) {
	sql, args := query(guild, f, p)
	list, err := db.Select[entry](ctx, q, sql, args...)
	return list, fault.Wrap(err, "read ledger of guild", guild)
}
