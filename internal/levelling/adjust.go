package levelling

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"guildhall/internal/batch"
	"guildhall/internal/db"
	"guildhall/internal/event"
	"guildhall/internal/fault"
	"guildhall/internal/idempotency"
	"guildhall/internal/leaderboard"
)

// change is a change of one member's XP, and what has become of it.
type change struct {
	by      event.Origin
	user    string
	xp      int64
	exactly bool                 // the member gets exactly xp; otherwise so much more
	key     *idempotency.Request // under which nothing may stand yet

	row     row // once it is made
	made    bool
	refusal error
}

// decision is what the statement says of one change.
type decision struct {
	Number int        `db:"number"`
	Before int64      `db:"before"`
	After  int64      `db:"after"`
	At     *time.Time `db:"at"` // of the change; nil: it was not made
}

// statement makes changes of XP, each of another member: see the package batch. A
// change that is allowed and still not made has met a record that came while the
// statement ran. A record that was not there to be held is made and never changed:
// the steps of a coordinator see what was committed between them.
type statement struct {
	batch.Changes[*change]
	text leaderboard.Noted
}

var statements = func() map[batch.Form]statement {
	all := make(map[batch.Form]statement)
	for _, f := range append(batch.Collected(false), batch.Form{}) {
		s := statement{Changes: batch.Changes[*change]{Form: f, GuildOf: guildOf, Columns: columns(f)}}
		s.text = s.noted()
		all[f] = s
	}
	return all
}()

func guildOf(c *change) string { return c.by.GuildID }

func columns(f batch.Form) []batch.Column[*change] {
	list := []batch.Column[*change]{
		batch.Texts("user_id", func(c *change) string { return c.user }),
		batch.Integers("xp", func(c *change) int64 { return c.xp }),
		batch.Booleans("exactly", func(c *change) bool { return c.exactly }),
	}
	if f.Keyed {
		list = append(list, batch.Keys(func(c *change) *idempotency.Request { return c.key })...)
	}
	return list
}

// noted is the text of the statement. By itself the statement makes the record that
// is missing.
func (s statement) noted() leaderboard.Noted {
	ours, moved := `
			SELECT * FROM held`, `, moved AS (
			SELECT * FROM changed WHERE `+batch.Few+`
		)`
	if !s.Collected {
		ours += `
			UNION ALL
			SELECT g.*, 0, NULL, g.xp FROM given g WHERE NOT EXISTS (SELECT FROM held)`
		moved = `, made AS (
			INSERT INTO levels (guild_id, user_id, total_xp, updated_at)
			SELECT home.id, a.user_id, a.after, a.at FROM allowed a JOIN guilds home ON home.id = ` + s.Guild("a") + ` WHERE a.updated_at IS NULL
			ON CONFLICT DO NOTHING
			RETURNING total_xp, updated_at
		), moved AS MATERIALIZED (
			SELECT * FROM changed WHERE ` + batch.Few + `
			UNION ALL
			SELECT g.number, g.guild_id, g.user_id, NULL, m.total_xp, m.updated_at FROM made m, given g
		)`
	}
	return leaderboard.Levels.Noted("moved", s.Guild("moved"), func(note string) string {
		return `
		WITH ` + s.Given() + `, held AS MATERIALIZED (
			SELECT g.*, l.total_xp, l.updated_at, CASE WHEN g.exactly THEN 0 ELSE l.total_xp END + g.xp AS after
			FROM given g
			CROSS JOIN LATERAL (
				SELECT total_xp, updated_at FROM levels WHERE guild_id = ` + s.Guild("g") + ` AND user_id = g.user_id ` + s.Lock() + `
			) l
			WHERE ` + s.Free() + `
		), ours AS (` + ours + `
		), allowed AS MATERIALIZED (
			SELECT *, clock_timestamp() AS at FROM ours WHERE after BETWEEN 0 AND ` + strconv.Itoa(MaxXP) + `
		), changed AS MATERIALIZED (
			UPDATE levels l
			SET previous_xp = a.total_xp, total_xp = a.after, updated_at = ` + db.Next("a.at", "a.updated_at") + `
			FROM allowed a
			WHERE l.guild_id = ` + s.Guild("a") + ` AND l.user_id = a.user_id AND a.updated_at IS NOT NULL
			RETURNING a.number, a.guild_id, a.user_id, a.total_xp AS was, l.total_xp AS is_now, l.updated_at
		)` + moved + `, ` + note + `
		SELECT o.number, o.total_xp AS before, o.after, m.updated_at AS at
		FROM ours o
		LEFT JOIN moved m ON m.number = o.number`
	})
}

// adjustEach makes changes of several members' XP in one statement, and sets what
// has become of each: made or refused. It leaves alone those whose record is
// missing or held by somebody else, and those under whose key something stands.
func adjustEach(ctx context.Context, tx *db.Tx, changes []*change) error {
	form := batch.FormOf(changes, guildOf,
		func(c *change) bool { return c.key != nil }, func(*change) bool { return false })
	return statements[form].run(ctx, tx, changes)
}

// adjust makes one change, whatever it has to wait for. It is Refused, and nothing
// changes, when the result is negative or above MaxXP. The instant is later than
// that of the member's change before.
func adjust(ctx context.Context, tx *db.Tx, c *change) error {
	err := statements[batch.Form{}].run(ctx, tx, []*change{c})
	switch {
	case err != nil:
		return err
	case !c.made && c.refusal == nil:
		return db.Again
	}
	return c.refusal
}

func (s statement) run(ctx context.Context, tx *db.Tx, changes []*change) error {
	for _, c := range changes { // the unit may have been run before
		c.made, c.refusal = false, nil
	}
	var decisions []decision
	if err := tx.SelectContext(ctx, &decisions, s.text.For(len(changes)), s.Arguments(changes)...); err != nil {
		return fmt.Errorf("adjust the XP of %d members: %w", len(changes), err)
	}
	for _, v := range decisions {
		changes[v.Number-1].judge(v)
	}
	return nil
}

// judge sets what a change has come to.
func (c *change) judge(v decision) {
	switch {
	case v.At != nil:
		c.made, c.row = true, row{UserID: c.user, TotalXP: v.After, PreviousXP: v.Before, UpdatedAt: v.At}
	case v.After < 0:
		c.refusal = fault.New(fault.Refused, "xp_would_be_negative", "The member has %d XP, which does not cover a change by %d.", v.Before, v.After-v.Before)
	case v.After > MaxXP:
		c.refusal = fault.New(fault.Refused, "xp_limit_exceeded", "A member can have at most %d XP.", int64(MaxXP))
	}
}
