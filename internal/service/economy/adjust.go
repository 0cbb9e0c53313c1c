package economy

import (
	"context"
	_ "embed" // statements

	"guildhall/internal/base/db"
	"guildhall/internal/service/batch"
	"guildhall/internal/service/leaderboard"
)

// The statement of adjustments that are made together, whole but for what the leaderboard
// notes and what is told. Wallet, ledger row and event carry one instant, later than that
// of the wallet's change before: its ledger stands in the order of effects. The ledger
// row's id begins with that instant, see getEntry, and ends as the event's. Functions of
// an instant are immutable AT TIME ZONE alone, and a coordinator takes no others there.
//
// The UPDATE locks, judges and changes. It leaves these changes to be made alone, as
// AdjustBalances makes several: a wallet that is missing, a balance that forbids the
// change, a reference or a key that has a record, and a reference that a change before it
// has. A reference or a key that somebody
// else is about to use fails the whole statement, and so does a row that somebody else holds
// for 10 ms: each change is made alone then.
//
// number BETWEEN … holds for every row. Postgres takes it for a condition that few meet,
// and looks rows up by index. A subquery in brackets is looked up for each row and not
// joined. The subquery around the first array hides it: Postgres would plan short lists
// anew each time.
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

func ownColumns(changes []*change) []any {
	nullable := func(of func(*change) *string) any { return db.Texts(batch.Each(changes, of)) }
	return []any{
		db.Integers(batch.Each(changes, func(c *change) int64 { return c.entry.Delta })),
		nullable(func(c *change) *string { return c.entry.Reason }), db.Array(batch.Each(changes, func(c *change) string { return c.entry.Note })),
		nullable(func(c *change) *string { return c.entry.Reference }),
	}
}
