package economy

import (
	"context"
	_ "embed" // statements

	"guildhall/internal/base/db"
	"guildhall/internal/service/batch"
	"guildhall/internal/service/leaderboard"
)

// adjustBatch makes a batch of adjustments. Wallet, ledger entry and event bear one instant,
// which is later than the instant of the wallet's previous change, so a wallet's ledger stands
// in the order of effects. The ledger entry and the event share an id, which begins with that
// instant (see getEntry) and ends like the id that was minted for the change. Functions of an instant are immutable only AT TIME ZONE,
// and a coordinator accepts no other functions there.
//
// The UPDATE locks, judges and changes a wallet. It skips these changes, which fall back and
// are made as AdjustBalances makes several: the wallet is missing, the balance forbids the
// change, the reference or the key has a row, or an earlier change of the batch has the same
// reference. If another transaction is about to use a reference or a key, or holds a row for
// 10 ms, the whole statement fails and every change of the batch falls back.
//
// number BETWEEN … is true for every row. Postgres expects few rows to satisfy the condition,
// and so looks wallets up by index. A subquery in brackets is evaluated for each row and not
// joined. The subquery around the first array hides the length of the arrays: Postgres would
// plan short arrays anew each time.
var (
	//go:embed adjust_batch.sql
	adjustBatchSQL string

	adjustBatch = leaderboard.Wallets.Noted("moved", batch.Guild, adjustBatchSQL, "told", telling(batch.Guild))
)

// adjustedRow is the statement's result for an applied change: the columns of its ledger
// entry that the statement has set.
type adjustedRow struct {
	batch.Row
	entry
}

// adjustEach makes changes of several wallets in one statement.
func adjustEach(ctx context.Context, q db.Querier, list []*change) error {
	return batch.Make(ctx, q, adjustBatch.For, list, ownColumns, func(c *change, m adjustedRow) {
		c.entry.ID, c.entry.BalanceAfter, c.entry.CreatedAt = m.ID, m.BalanceAfter, m.CreatedAt
	})
}

// ownColumns returns the parameters of adjustBatch that follow batch.Columns.
func ownColumns(changes []*change) []any {
	nullable := func(of func(*change) *string) any { return db.Texts(batch.Each(changes, of)) }
	return []any{
		db.Integers(batch.Each(changes, func(c *change) int64 { return c.entry.Delta })),
		nullable(func(c *change) *string { return c.entry.Reason }), db.Array(batch.Each(changes, func(c *change) string { return c.entry.Note })),
		nullable(func(c *change) *string { return c.entry.Reference }), nullable(func(c *change) *string { return c.entry.AuthorID }),
	}
}
