package levelling

import (
	"context"
	"fmt"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/service/batch"
)

// row is one member's XP.
type row struct {
	UserID     string     `db:"user_id"`
	TotalXP    int64      `db:"total_xp"`
	PreviousXP int64      `db:"previous_xp"`
	UpdatedAt  *time.Time `db:"updated_at"` // nil if the member has no activity yet
}

const columns = "user_id, total_xp, previous_xp, updated_at"

const levelOfMember = `
		SELECT ` + columns + `
		FROM levels
		WHERE guild_id = $1
		  AND user_id = $2`

// lookup is a request for a member's record; answerEach sets the record.
type lookup struct {
	guild  string
	record row // zero if there is no row
}

func answer(ctx context.Context, q db.Querier, one *lookup) (err error) {
	one.record, err = get(ctx, q, one.guild, one.record.UserID)
	return err
}

// answerEach reads the records of several lookups in one statement.
func answerEach(ctx context.Context, q db.Querier, list []*lookup) error {
	rows, err := db.Select[struct {
		Number int `db:"number"`
		row
	}](ctx, q, recordsOf, db.Array(batch.Each(list, func(one *lookup) string { return one.guild })),
		db.Array(batch.Each(list, func(one *lookup) string { return one.record.UserID })), list[0].guild)
	if err != nil {
		return fmt.Errorf("read the XP of %d members: %w", len(list), err)
	}
	for _, m := range rows {
		list[m.Number-1].record = m.row
	}
	return nil
}

// recordsOf has the same form as walletsOf in package economy.
const recordsOf = `
		SELECT g.number, l.*
		FROM unnest((SELECT $1::text[]), $2::text[]) WITH ORDINALITY AS g (guild_id, user_id, number)
		CROSS JOIN LATERAL (
			SELECT ` + columns + ` FROM levels WHERE guild_id = g.guild_id /*: $3 */ AND user_id = g.user_id OFFSET 0
		) l
		WHERE $3::text IS NOT NULL`

// get returns the member's record, or a record of zeros if there is no row.
func get(ctx context.Context, q db.Querier, guild, user string) (row, error) {
	r, err := db.Get[row](ctx, q, levelOfMember, guild, user)
	switch {
	case db.Missing(err):
		return row{UserID: user}, nil
	case err != nil:
		return row{}, fault.Wrap(err, "read the XP of", user, "in guild", guild)
	}
	return r, nil
}
