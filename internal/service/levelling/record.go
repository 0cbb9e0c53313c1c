package levelling

import (
	"time"

	"guildhall/internal/base/wire"
	"guildhall/internal/service/leaderboard"
	"guildhall/internal/service/transfer"
)

// Records are the XP of a guild's members as they move.
var Records = transfer.Kind[moved]{
	Name: "level", Schema: "GuildFileLevel", Table: "levels", Columns: "guild_id, user_id, total_xp, updated_at", Order: "user_id",
	Refusals: map[string]string{"levels_pkey": "this user has a level record in this guild already"},
	Guild:    func(m *moved) string { return m.GuildID },
	New:      func(time.Time) moved { return moved{} },
	Complete: func(m *moved, _ time.Time) error {
		m.UpdatedAt = transfer.Pending
		return nil
	},
	Dated:  []transfer.Column{{Table: "levels", Name: "updated_at"}},
	Settle: func(m *moved, at wire.Time) { m.UpdatedAt = at },
	Finish: leaderboard.Levels.Reloaded,
}

// moved is the XP of a member who moves.
type moved struct {
	GuildID   string    `db:"guild_id" json:"guild_id"`
	UserID    string    `db:"user_id" json:"user_id"`
	TotalXP   int64     `db:"total_xp" json:"total_xp"`
	UpdatedAt wire.Time `db:"updated_at" json:"updated_at"`
}
