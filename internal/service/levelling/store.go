package levelling

import (
	"context"
	"fmt"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/service/batch"
)

// row is one member's XP.
type row struct {
	UserID     string     `db:"user_id"`
	TotalXP    int64      `db:"total_xp"`
	PreviousXP int64      `db:"previous_xp"`
	UpdatedAt  *time.Time `db:"updated_at"` // nil: no activity yet
}

const record = `
		SELECT user_id, total_xp, previous_xp, updated_at
		FROM levels
		WHERE guild_id = $1
		  AND user_id = $2`

// records reads several.
var records = batch.RowsOf[row]("levels", "user_id", "total_xp", "previous_xp", "updated_at")

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
