package levelling

import (
	"context"

	"guildhall/gen"
	"guildhall/internal/base/db"
	"guildhall/internal/service/leaderboard"
)

// The functions of this file read XP for people, in the dashboard, each bound to a guild.

// Record is a member's XP and level as the API shows them.
type Record = gen.LevelRecord

// RecordOf returns a member's XP and level, zero for a member without activity.
func RecordOf(ctx context.Context, q db.Querier, guild, user string) (Record, error) {
	r, err := get(ctx, q, guild, user)
	return show(r), err
}

// RankOf returns a member's place on the leaderboard. It is NotFound for a member without a
// record.
func RankOf(ctx context.Context, q db.Querier, guild, user string) (leaderboard.Place, error) {
	return leaderboard.Levels.Rank(ctx, q, guild, user, false)
}
