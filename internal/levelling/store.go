package levelling

import (
	"context"
	"fmt"
	"time"

	"guildhall/internal/db"
	"guildhall/internal/fault"
	"guildhall/internal/leaderboard"
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

// adjustment updates a record that is there before it inserts an absent one,
// because Postgres holds the row that an INSERT proposes against the constraints
// before it looks for a conflict: a loss would be refused whatever the member
// has. A row that the upsert made, and not only changed, has no xmax: nobody has
// locked it yet.
var adjustment = leaderboard.Levels.Noted("moved", "$1", func(note string) string {
	return `
		WITH changed AS (
			UPDATE levels
			SET previous_xp = total_xp, total_xp = CASE WHEN $4 THEN 0 ELSE total_xp END + $3,
			    updated_at = ` + db.Next("updated_at") + `
			WHERE guild_id = $1
			  AND user_id = $2
			RETURNING total_xp, previous_xp, updated_at, previous_xp AS was
		), made AS (
			INSERT INTO levels AS l (guild_id, user_id, total_xp, updated_at)
			SELECT $1, $2, $3, clock_timestamp()
			WHERE NOT EXISTS (SELECT FROM changed)
			ON CONFLICT (guild_id, user_id) DO UPDATE
			SET previous_xp = l.total_xp, total_xp = CASE WHEN $4 THEN 0 ELSE l.total_xp END + excluded.total_xp,
			    updated_at = greatest(excluded.updated_at, ` + db.Later("l.updated_at") + `)
			RETURNING total_xp, previous_xp, updated_at, CASE WHEN xmax <> 0 THEN previous_xp END AS was
		), moved AS (
			SELECT $2::text AS user_id, total_xp, previous_xp, updated_at, was, total_xp AS is_now FROM changed
			UNION ALL
			SELECT $2, total_xp, previous_xp, updated_at, was, total_xp FROM made
		), ` + note + `
		SELECT user_id, total_xp, previous_xp, updated_at
		FROM moved`
})

// adjust changes the member's XP by xp, or gives the member exactly that much.
// It is Refused, and nothing changes, when the result is negative or above
// MaxXP. The instant is later than that of the member's change before.
func adjust(ctx context.Context, tx *db.Tx, guild, user string, xp int64, exactly bool) (row, error) {
	var r row
	err := tx.GetContext(ctx, &r, adjustment.For(1), guild, user, xp, exactly)
	return r, refused(err, guild, user)
}

func refused(err error, guild, user string) error {
	switch {
	case db.Violates(err, "levels_not_negative"):
		return fault.New(fault.Refused, "xp_would_be_negative", "The member has less XP than this would take away.")
	case db.Violates(err, "levels_within_limit"):
		return fault.New(fault.Refused, "xp_limit_exceeded", "A member can have at most %d XP.", int64(MaxXP))
	case err != nil:
		return fmt.Errorf("adjust the XP of %s in guild %s: %w", user, guild, err)
	}
	return nil
}
