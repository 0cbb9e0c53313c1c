package levelling

import (
	"context"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/leaderboard"
	"guildhall/internal/service/transfer"
)

// Records is the record kind of the members' XP.
var Records = transfer.Kind[moved]{
	Name: "level", Schema: "GuildFileLevel", Table: "levels", Columns: "guild_id, user_id, total_xp, updated_at", Order: "user_id",
	Refusals: map[string]string{"levels_pkey": "this user has a level record in this guild already"},
	Guild:    func(m *moved) string { return m.GuildID },
	New:      func(time.Time) moved { return moved{} },
	Complete: func(m *moved, _ time.Time) error {
		m.UpdatedAt = transfer.Pending
		return nil
	},
	Dated:      []transfer.Column{{Table: "levels", Name: "updated_at"}},
	SetInstant: func(m *moved, at wire.Time) { m.UpdatedAt = at },
	Finish:     leaderboard.Levels.Reloaded,
	Writer: &transfer.Writer[moved]{
		Schema: "RecordLevel",
		Points: func(m *moved) *int64 { return &m.TotalXP },
		Key:    func(m *moved) string { return m.UserID },
		Hold:   transfer.Held(func(m *moved) string { return m.UserID }, heldLevels),
		Revise: func(_ *transfer.Call, row *transfer.Row[moved]) error {
			if row.Was != nil {
				row.Is.UpdatedAt = row.Was.UpdatedAt
			}
			return nil
		},
		Shown: func(m *moved) transfer.Shown { return transfer.Shown{ID: m.UserID, UpdatedAt: &m.UpdatedAt} },
		Store: setXP,
		Emit:  emitRecords,
	},
}

const heldLevels = `
		SELECT guild_id, user_id, total_xp, updated_at
		FROM levels
		WHERE guild_id = $1
		  AND user_id = ANY ($2)
		ORDER BY user_id`

// setXP sets the XP of the members in the records. setXP updates existing rows and inserts the
// others.
func setXP(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[moved]) error {
	var users, instants []string
	var was, is []int64
	var there []bool
	for _, row := range rows {
		var before int64
		if row.Was != nil {
			before = row.Was.TotalXP
		}
		users, there, was, is = append(users, row.Is.UserID), append(there, row.Was != nil), append(was, before), append(is, row.Is.TotalXP)
		instants = append(instants, row.At.Time.Format(time.RFC3339Nano))
	}
	n, err := db.Get[int](ctx, tx, setStatement.For(len(rows)), c.By.GuildID, db.Array(users), db.Booleans(there),
		db.Integers(was), db.Integers(is), db.Array(instants))
	if err != nil {
		return fault.Wrap(err, "set XP in guild", c.By.GuildID)
	}
	if n != len(rows) {
		return db.Again
	}
	return nil
}

// setStatement sets XP.
var setStatement = leaderboard.Levels.Noted("moved", "$1", `
		WITH moved AS MATERIALIZED (
			SELECT user_id, CASE WHEN there THEN was END AS was, is_now, updated_at
			FROM unnest($2::text[], $3::boolean[], $4::bigint[], $5::bigint[], $6::timestamptz[]) AS g (user_id, there, was, is_now, updated_at)
		), changed AS (
			UPDATE levels l
			SET previous_xp = m.was, total_xp = m.is_now, updated_at = m.updated_at
			FROM moved m
			WHERE l.guild_id = $1 AND l.user_id = m.user_id AND m.was IS NOT NULL
			RETURNING l.user_id
		), made AS (
			INSERT INTO levels (guild_id, user_id, total_xp, updated_at)
			SELECT home.id, m.user_id, m.is_now, m.updated_at FROM moved m JOIN guilds home ON home.id = $1 WHERE m.was IS NULL
			ON CONFLICT DO NOTHING
			RETURNING user_id
		), :rank
		SELECT (SELECT count(*) FROM changed) + (SELECT count(*) FROM made)`)

// emitRecords emits events for the levels that the records have changed.
func emitRecords(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[moved]) error {
	list := make([]*change, len(rows))
	for i, row := range rows {
		a := &change{user: row.Is.UserID, row: levelRow(row)}
		a.Applied, a.By = true, event.From(c.By).In(ctx)
		list[i] = a
	}
	return emit(ctx, tx, list...)
}

// levelRow returns the row that a record leads to.
func levelRow(r *transfer.Row[moved]) row {
	is := row{UserID: r.Is.UserID, TotalXP: r.Is.TotalXP, UpdatedAt: &r.At.Time}
	if r.Was != nil {
		is.PreviousXP = r.Was.TotalXP
	}
	return is
}

// moved is the XP of a member in a record or a guild file.
type moved struct {
	GuildID   string    `db:"guild_id" json:"guild_id"`
	UserID    string    `db:"user_id" json:"user_id"`
	TotalXP   int64     `db:"total_xp" json:"total_xp"`
	UpdatedAt wire.Time `db:"updated_at" json:"updated_at"`
}
