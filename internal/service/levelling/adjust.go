package levelling

import (
	"context"
	_ "embed" // statements
	"fmt"

	"guildhall/internal/base/db"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
	"guildhall/internal/service/leaderboard"
)

// The statement of changes of XP that are made together, whole but for what the
// leaderboard notes. It does as that of balances: economy/adjust.go tells what they have
// in common. It knows the curve, and tells of the changes that move a level.
var (
	//go:embed adjust_together.sql
	adjustTogether string

	together = leaderboard.Levels.Noted("moved", changedGuild, adjustTogether,
		"level_was", levelOf("moved.was"), "level_is", levelOf("moved.is_now"), "told", tellLevels)
)

const changedGuild = "moved.guild_id /*: $9 */"

// tellLevels are the CTEs that tell of the levels that have moved.
var tellLevels = event.TellingOf("stepped", "stepped.guild_id /*: $9 */", "stepped.type", `
			'{"level":' || stepped.level || ',"previous_level":' || stepped.previous_level || ',"total_xp":' || stepped.is_now
			|| ',"user_id":"' || stepped.user_id || '"}'`)

// made is what the statement says of a change that it has made.
type made struct {
	Number int `db:"number"`
	row
}

// adjustEach makes changes of several members' XP in one statement.
func adjustEach(ctx context.Context, q db.Querier, list []*change) error {
	changes := batch.Sorted(list)
	rows, err := db.Select[made](ctx, q, together.For(len(changes)), arguments(changes)...)
	if err != nil {
		return fmt.Errorf("change the XP of %d members: %w", len(changes), err)
	}
	for _, m := range rows {
		c := changes[m.Number-1]
		c.Made, c.row = true, m.row
	}
	return nil
}

func arguments(changes []*change) []any {
	return append(batch.Columns(changes), db.Integers(batch.Each(changes, (*change).kept)),
		db.Integers(batch.Each(changes, func(c *change) int64 { return c.xp })), changes[0].By.GuildID,
		db.Array(batch.Each(changes, func(*change) string { return db.NewID() })),
		db.Array(batch.Each(changes, func(c *change) string { return c.By.Trace })))
}
