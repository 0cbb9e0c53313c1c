package levelling

import (
	"strconv"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/service/batch"
	"guildhall/internal/service/leaderboard"
)

// change is a change of one member's XP.
type change struct {
	batch.Change
	user    string
	xp      int64
	exactly bool // the member gets exactly xp; otherwise so much more

	row row // once it is made
}

// decision is what the statement says of one change.
type decision struct {
	batch.Decision
	Before int64 `db:"before"`
	After  int64 `db:"after"`
}

// statement makes changes of XP, each of another member: see the package batch. A
// change that is allowed and still not made has met a record that came while the
// statement ran. A record that was not there to be held is made and never changed:
// the steps of a coordinator see what was committed between them. The instant is
// later than that of the member's change before.
type statement struct{ batch.Changes[*change] }

var statements = batch.StatementsOf[*change, decision](false, columns,
	func(c batch.Changes[*change]) leaderboard.Noted { return statement{c}.noted() })

// Referenced is false: XP has no references.
func (*change) Referenced() bool { return false }

func columns(f batch.Form) []batch.Column[*change] {
	list := []batch.Column[*change]{
		batch.Texts("user_id", func(c *change) string { return c.user }),
		batch.Integers("xp", func(c *change) int64 { return c.xp }),
		batch.Booleans("exactly", func(c *change) bool { return c.exactly }),
	}
	if f.Keyed {
		list = append(list, batch.Keys(func(c *change) *idempotency.Request { return c.Key })...)
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

// Judge sets what a change has come to. It is refused when the result is negative or
// above MaxXP.
func (c *change) Judge(v decision) {
	switch {
	case v.At != nil:
		c.Made, c.row = true, row{UserID: c.user, TotalXP: v.After, PreviousXP: v.Before, UpdatedAt: v.At}
	case v.After < 0:
		c.Refusal = fault.New(fault.Refused, "xp_would_be_negative", "The member has %d XP, which does not cover a change by %d.", v.Before, v.After-v.Before)
	case v.After > MaxXP:
		c.Refusal = fault.New(fault.Refused, "xp_limit_exceeded", "A member can have at most %d XP.", int64(MaxXP))
	}
}
