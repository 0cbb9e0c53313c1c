package levelling

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
	"guildhall/internal/service/leaderboard"
)

// AdjustXPOfMembers makes adjustments in their order, all of them or none: the first refused
// adjustment refuses the call. It needs one statement a step and not one a change: it locks the
// records, judges the changes, writes the records, and emits events of the levels that have
// moved.
func (*Service) AdjustXPOfMembers(ctx context.Context, r gen.AdjustXPOfMembersRequestObject) (gen.AdjustXPOfMembersResponseObject, error) {
	tx, of := db.Write(ctx), batch.ChangeOf(ctx, event.From(auth.Acting(ctx)))
	list := batch.Each(r.Body.Adjustments, func(asked gen.AdjustXPRequest) *change { return asChange(of, asked) })
	if err := adjustAll(ctx, tx, list, func(i int, err error) error { return fault.At(fmt.Sprintf("body /adjustments/%d", i), err) }); err != nil {
		return nil, err
	}
	data := make([]gen.XPAdjustment, len(list))
	for i, c := range list {
		data[i] = adjusted(c.row)
	}
	return gen.AdjustXPOfMembers200JSONResponse{Data: data}, nil
}

// adjustAll makes changes of one guild in their order. It passes a refusal through refused, with
// the index of the refused change.
func adjustAll(ctx context.Context, tx *db.Tx, list []*change, refused func(i int, err error) error) error {
	held, err := hold(ctx, tx, list)
	if err != nil {
		return err
	}
	for i, c := range list {
		if err := held[c.user].judge(c); err != nil {
			return refused(i, err)
		}
	}
	if err := write(ctx, tx, list[0].By.GuildID, held); err != nil {
		return err
	}
	return emit(ctx, tx, list...)
}

// holding is a member's record that is locked until the unit ends.
type holding struct {
	UserID string    `db:"user_id"`
	Was    *int64    `db:"was"` // XP before the call; nil: the record does not exist
	At     time.Time `db:"at"`  // instant of the next change; after a change, the instant of that change
	Before int64     `db:"before"`
	XP     int64     `db:"total_xp"`
	gained int64     // sum of the deltas of the call
	moved  bool
}

// hold locks the members' records, in the order in which every statement locks them.
func hold(ctx context.Context, tx *db.Tx, list []*change) (map[string]*holding, error) {
	held, guild := map[string]*holding{}, list[0].By.GuildID
	for _, c := range list {
		held[c.user] = nil
	}
	rows, err := db.Select[holding](ctx, tx, manyHeld, guild, db.Array(slices.Sorted(maps.Keys(held))))
	for i := range rows {
		held[rows[i].UserID] = &rows[i]
	}
	return held, fault.Wrap(err, "hold records of guild", guild)
}

// manyHeld looks up and locks record by record: Postgres does not join a subquery that locks in
// another way. The clock is read after the record is locked.
var manyHeld = `
		SELECT g.user_id, l.total_xp AS was, coalesce(l.total_xp, 0) AS total_xp, 0::bigint AS before,
		       ` + db.Next("clock_timestamp()", "l.updated_at") + ` AS at
		FROM unnest((SELECT $2::text[])) AS g (user_id)
		LEFT JOIN LATERAL (
			SELECT total_xp, updated_at FROM levels WHERE guild_id = $1 AND user_id = g.user_id FOR NO KEY UPDATE
		) l ON true`

// judge decides a change after the earlier changes of the call. It returns a refusal when the XP
// would be negative or above MaxXP. Changes of one member are a millisecond apart.
func (h *holding) judge(c *change) error {
	if h.moved {
		h.At = h.At.Add(time.Millisecond)
	}
	at, after := h.At, h.XP*c.kept()+c.xp
	switch {
	case after < 0:
		return fault.New(fault.Refused, "xp_would_be_negative", "The member has %d XP, which does not cover a change by %d.", h.XP, after-h.XP)
	case after > MaxXP:
		return fault.New(fault.Refused, "xp_limit_exceeded", "A member can have at most %d XP.", int64(MaxXP))
	}
	h.moved, h.Before, h.XP = true, h.XP, after
	if !c.exactly {
		h.gained += c.xp
	}
	c.Applied, c.row = true, row{UserID: c.user, TotalXP: after, PreviousXP: h.Before, UpdatedAt: &at}
	return nil
}

// write stores the records. It returns db.Again when another unit has inserted one meanwhile.
func write(ctx context.Context, tx *db.Tx, guild string, held map[string]*holding) error {
	n := len(held)
	users, instants := slices.Sorted(maps.Keys(held)), make([]string, n)
	there, was, before, after, gained := make([]bool, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	for i, user := range users {
		h := held[user]
		instants[i], before[i], after[i], gained[i] = h.At.Format(time.RFC3339Nano), h.Before, h.XP, h.gained
		if there[i] = h.Was != nil; there[i] {
			was[i] = *h.Was
		}
	}
	got, err := db.Get[int](ctx, tx, manyWritten.For(n), guild, db.Array(users), db.Booleans(there), db.Integers(was), db.Integers(before),
		db.Integers(after), db.Array(instants), db.Integers(gained))
	if err != nil {
		return fmt.Errorf("adjust the XP of %d members of guild %s: %w", n, guild, err)
	}
	if got != n {
		return db.Again
	}
	return nil
}

// manyWritten writes the records after all changes. Their rank moves lead from the first XP to
// the last. Where the guild counts weeks and months, the deltas are one row of xp_moves.
var manyWritten = leaderboard.Levels.Noted("moved", "$1", `
		WITH moved AS MATERIALIZED (
			SELECT user_id, CASE WHEN there THEN was END AS was, before, is_now, at, gained
			FROM unnest((SELECT $2::text[]), $3::boolean[], $4::bigint[], $5::bigint[], $6::bigint[], $7::timestamptz[], $8::bigint[])
			     AS g (user_id, there, was, before, is_now, at, gained)
		), changed AS (
			UPDATE levels l
			SET previous_xp = m.before, total_xp = m.is_now, updated_at = m.at
			FROM moved m
			WHERE l.guild_id = $1 AND l.user_id = m.user_id AND m.was IS NOT NULL
			RETURNING l.user_id
		), made AS (
			INSERT INTO levels (guild_id, user_id, total_xp, previous_xp, updated_at)
			SELECT $1 /*: home.id */, m.user_id, m.is_now, m.before, m.at
			FROM moved m /*: m JOIN guilds home ON home.id = $1 */
			WHERE m.was IS NULL
			ON CONFLICT DO NOTHING
			RETURNING user_id
		), period_moves AS (
			INSERT INTO xp_moves (guild_id, at, timezone, users, deltas)
			SELECT $1 /*: home.id */, m.at, s.timezone, m.users, m.deltas
			FROM (SELECT min(at) AS at, array_agg(user_id) AS users, array_agg(gained) AS deltas FROM moved WHERE gained <> 0) m /*: m JOIN guilds home ON home.id = $1 */
			JOIN guild_settings s ON s.guild_id = $1 AND s.xp_periods
			WHERE m.users IS NOT NULL
		), :rank
		SELECT (SELECT count(*) FROM changed) + (SELECT count(*) FROM made)`)
