package economy

import (
	"context"
	_ "embed" // statements

	"guildhall/internal/base/db"
	"guildhall/internal/service/batch"
	"guildhall/internal/service/leaderboard"
)

// adjustBatch applies a batch of adjustments. Wallet, ledger entry and event have the same instant,
// which is later than the instant of the wallet's previous change: so the ledger of a wallet has
// the order of its effects. The ledger entry and the event have the same id. The id begins with the
// instant (see getEntry) and ends like the id that was generated for the change. Functions of an
// instant are immutable only AT TIME ZONE, and a coordinator accepts only immutable functions
// there.
//
// The UPDATE locks a wallet, decides the change and applies it. The UPDATE leaves out a change if
// the wallet does not exist, the balance forbids the change, the reference or the key already has a
// row, or an earlier change of the batch has the same reference. A change that is left out falls
// back and is made like the changes of AdjustBalances. If another transaction is inserting the same
// reference or key, or holds the lock of a row for longer than 10 ms, the whole statement fails and
// every change of the batch falls back.
//
// number BETWEEN … is true for every row. Because of the condition, Postgres expects few rows and
// reads wallets by index. A subquery in brackets is evaluated for each row and not joined. The
// subquery around the first array hides the length of the arrays: otherwise Postgres would make a
// new plan for short arrays each time.
var (
	//go:embed adjust_batch.sql
	adjustBatchSQL string

	//go:embed store_batch.sql
	storeBatchSQL string // the steps after moved, of this statement and of transferBatch

	adjustBatch = leaderboard.Wallets.Noted("moved", batch.Guild, adjustBatchSQL+storeBatchSQL, "emit", emitting(batch.Guild))
)

// adjustedRow is the statement's result for an applied change: the columns of the ledger entry that
// the statement has set.
type adjustedRow struct {
	batch.Row
	entry
}

// adjustEach applies changes of several wallets in one statement.
func adjustEach(ctx context.Context, q db.Querier, list []*change) error {
	return batch.Make(ctx, q, adjustBatch.For, list, ownColumns, (*change).entered)
}

// entered sets what the statement has set in the ledger entry of a change.
func (c *change) entered(m adjustedRow) {
	c.entry.ID, c.entry.BalanceAfter, c.entry.CreatedAt = m.ID, m.BalanceAfter, m.CreatedAt
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
