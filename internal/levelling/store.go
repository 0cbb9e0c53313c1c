package levelling

import (
	"context"
	"fmt"
	"time"

	"guildhall/internal/db"
	"guildhall/internal/page"
)

// row is one member's XP.
type row struct {
	UserID     string     `db:"user_id"`
	TotalXP    int64      `db:"total_xp"`
	PreviousXP int64      `db:"previous_xp"`
	UpdatedAt  *time.Time `db:"updated_at"` // nil: no activity yet
}

const (
	record = `
		SELECT user_id, total_xp, previous_xp, updated_at
		FROM levels
		WHERE guild_id = $1
		  AND user_id = $2`

	// Numeric order of a snowflake is length, then text; the index
	// levels_leaderboard holds exactly this order.
	firstPages = `
		SELECT user_id, total_xp, previous_xp, updated_at
		FROM levels
		WHERE guild_id = $1
		ORDER BY -total_xp, length(user_id), user_id
		LIMIT $2 OFFSET $3`

	// What lies deep is found through the leaderboard's map.
	deepPages = `
		SELECT user_id, total_xp, previous_xp, updated_at
		FROM levels_after($1, $3, $2)`

	// deep is from where on the map is worth the look.
	deep = 1000
)

// get returns the member's XP; without any activity that is the zero record.
func get(ctx context.Context, q db.Querier, guild, user string) (row, error) {
	var r row
	err := q.GetContext(ctx, &r, record, guild, user)
	switch {
	case db.Missing(err):
		return row{UserID: user}, nil
	case err != nil:
		return row{}, fmt.Errorf("read the XP of %s in guild %s: %w", user, guild, err)
	}
	return r, nil
}

// top returns the page of members with the most XP, and one member more when
// there is one. A deep page costs little more than the first.
func top(ctx context.Context, q db.Querier, guild string, p page.P) ([]row, error) {
	query := firstPages
	if p.Offset() >= deep {
		query = deepPages
	}
	var rows []row
	if err := q.SelectContext(ctx, &rows, query, guild, p.Limit(), p.Offset()); err != nil {
		return nil, fmt.Errorf("read the XP leaderboard of guild %s: %w", guild, err)
	}
	return rows, nil
}
