package levelling

import (
	"context"
	_ "embed" // statements

	"guildhall/internal/base/db"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
	"guildhall/internal/service/leaderboard"
)

// adjustBatch makes a batch of changes of XP. economy/adjust.go explains what it shares with the
// statement of balances. It contains the level curve, and emits an event for each change that
// moves a level. Where the guild counts weeks and months it appends what was added to xp_moves.
var (
	//go:embed adjust_batch.sql
	adjustBatchSQL string

	adjustBatch = leaderboard.Levels.Noted("moved", batch.Guild, adjustBatchSQL,
		"level_was", levelOf("moved.was"), "level_is", levelOf("moved.is_now"), "emit", emitLevels)
)

// emitLevels are the steps that emit an event for each level that has moved.
var emitLevels = event.EmitDataSQL("stepped", "stepped.guild_id /*: $9 */", "stepped.type", `
			'{"level":' || stepped.level || ',"previous_level":' || stepped.previous_level || ',"total_xp":' || stepped.is_now
			|| ',"user_id":"' || stepped.user_id || '"}'`)

// adjustedRow is the statement's result for an applied change.
type adjustedRow struct {
	batch.Row
	row
}

// adjustEach makes changes of several members' XP in one statement.
func adjustEach(ctx context.Context, q db.Querier, list []*change) error {
	return batch.Make(ctx, q, adjustBatch.For, list, ownColumns, func(c *change, m adjustedRow) { c.row = m.row })
}

// ownColumns returns the parameters of adjustBatch that follow batch.Columns.
func ownColumns(changes []*change) []any {
	return []any{db.Integers(batch.Each(changes, (*change).kept)), db.Integers(batch.Each(changes, func(c *change) int64 { return c.xp }))}
}
