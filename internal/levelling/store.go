package levelling

import (
	"context"
	"fmt"
	"time"

	"guildhall/internal/db"
	"guildhall/internal/fault"
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

// adjust changes the member's XP by xp, or gives the member exactly that much.
// It is Refused, and nothing changes, when the result is negative or above
// MaxXP. The instant is later than that of the member's change before.
//
// A record that is there is updated before an absent one is inserted, because
// Postgres holds the row that an INSERT proposes against the constraints before
// it looks for a conflict: a loss would be refused whatever the member has.
func adjust(ctx context.Context, tx *db.Tx, guild, user string, xp int64, exactly bool) (row, error) {
	var r row
	err := tx.GetContext(ctx, &r, `
		WITH changed AS (
			UPDATE levels
			SET previous_xp = total_xp, total_xp = CASE WHEN $4 THEN 0 ELSE total_xp END + $3,
			    updated_at = greatest(clock_timestamp(), later(updated_at))
			WHERE guild_id = $1
			  AND user_id = $2
			RETURNING total_xp, previous_xp, updated_at
		), made AS (
			INSERT INTO levels AS l (guild_id, user_id, total_xp, updated_at)
			SELECT $1, $2, $3, clock_timestamp()
			WHERE NOT EXISTS (SELECT FROM changed)
			ON CONFLICT (guild_id, user_id) DO UPDATE
			SET previous_xp = l.total_xp, total_xp = CASE WHEN $4 THEN 0 ELSE l.total_xp END + excluded.total_xp,
			    updated_at = greatest(excluded.updated_at, later(l.updated_at))
			RETURNING total_xp, previous_xp, updated_at
		)
		SELECT $2 AS user_id, total_xp, previous_xp, updated_at FROM changed
		UNION ALL
		SELECT $2, total_xp, previous_xp, updated_at FROM made`, guild, user, xp, exactly)
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
