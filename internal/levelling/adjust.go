package levelling

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

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
	key     *idempotency.Request // to be claimed by the statement that makes the change

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

var claiming = idempotency.Claiming{Rows: "held"}

// adjustment is the statement that makes changes of XP, each of another member.
// It decides each by itself, so that one that is refused is no matter to the
// others, and says of each what it has found. What it says nothing of it has left
// alone.
//
// There are two forms. Collected, it takes the records that are there and that
// nobody holds, and waits for no other transaction longer than a few
// milliseconds. By itself, it waits for the record and makes the one that is
// missing. A change that is allowed and still not made has met a record that came
// while the statement ran. Each record is looked up by itself, whatever Postgres
// thinks of the size of guilds, in the order in which they are locked.
//
// The subquery around the first parameter hides how long the lists are. Postgres
// would otherwise plan the statement anew for each short one, which takes longer
// than running it.
//
// The changes are of one guild, which the statement names ($1), or of several.
func adjustment(collected, several bool) leaderboard.Noted {
	guilds, guild, list, moving, its := ``, `$1::text AS guild_id, `, ``, `$1`, `$1`
	if several {
		guilds, guild, list, moving, its = `guild_id, `, ``, `$1::text[], `, `moved.guild_id`, `g.guild_id`
	}
	wait, soon, missing, made, fresh := ``, `NULL`, ``, ``, ``
	if collected {
		wait, soon = ` SKIP LOCKED`, `set_config('lock_timeout', '10ms', true)`
	} else {
		missing = `
			UNION ALL
			SELECT g.*, 0, NULL, g.xp FROM given g WHERE NOT EXISTS (SELECT FROM held)`
		made = `, made AS (
			INSERT INTO levels (guild_id, user_id, total_xp, updated_at)
			SELECT guild_id, user_id, after, clock_timestamp() FROM allowed WHERE updated_at IS NULL
			ON CONFLICT DO NOTHING
			RETURNING total_xp, updated_at
		)`
		fresh = `
			UNION ALL
			SELECT g.*, NULL, m.total_xp, m.updated_at FROM made m, given g`
	}
	return leaderboard.Levels.Noted("moved", moving, func(note string) string {
		return `
		WITH given AS MATERIALIZED (
			SELECT ` + guild + `g.*, (SELECT ` + soon + `) AS soon
			FROM unnest(` + list + `(SELECT $2::text[]), $3::bigint[], $4::boolean[], $5::text[], $6::text[], $7::bytea[])
			     WITH ORDINALITY AS g (` + guilds + `user_id, xp, exactly, token_id, key, fingerprint, number)
		), held AS MATERIALIZED (
			SELECT g.*, l.total_xp, l.updated_at, CASE WHEN g.exactly THEN 0 ELSE l.total_xp END + g.xp AS after
			FROM (SELECT * FROM given ORDER BY guild_id, user_id) g
			CROSS JOIN LATERAL (
				SELECT total_xp, updated_at FROM levels WHERE guild_id = ` + its + ` AND user_id = g.user_id LIMIT 1 FOR NO KEY UPDATE` + wait + `
			) l
		), ` + claiming.CTE() + `, ours AS MATERIALIZED (
			SELECT * FROM held WHERE ` + claiming.Granted() + missing + `
		), allowed AS MATERIALIZED (
			SELECT * FROM ours WHERE after BETWEEN 0 AND ` + strconv.Itoa(MaxXP) + `
		), changed AS (
			UPDATE levels l
			SET previous_xp = a.total_xp, total_xp = a.after, updated_at = ` + db.Next("a.updated_at") + `
			FROM allowed a
			WHERE l.guild_id = ` + strings.Replace(its, "g.", "a.", 1) + ` AND l.user_id = a.user_id
			RETURNING a.number, a.total_xp AS was, l.total_xp AS is_now, l.updated_at
		)` + made + `, moved AS MATERIALIZED (
			SELECT g.*, c.was, c.is_now, c.updated_at FROM changed c JOIN given g ON g.number = c.number` + fresh + `
		), ` + note + `
		SELECT o.number, o.total_xp AS before, o.after, m.updated_at AS at
		FROM ours o
		LEFT JOIN moved m ON m.number = o.number`
	})
}

var (
	ownAdjustment     = adjustment(false, false)
	guildsAdjustments = adjustment(true, false)
	adjustments       = adjustment(true, true)
)

// adjustEach makes changes of several members' XP in one statement, and sets what
// has become of each: made or refused. It leaves alone those whose record is
// missing or held by somebody else, and those whose key is not to be had.
func adjustEach(ctx context.Context, tx *db.Tx, changes []*change) error {
	for _, c := range changes {
		if c.by.GuildID != changes[0].by.GuildID {
			return run(ctx, tx, adjustments, true, changes)
		}
	}
	return run(ctx, tx, guildsAdjustments, false, changes)
}

// adjust makes one change, whatever it has to wait for. It is Refused, and nothing
// changes, when the result is negative or above MaxXP. The instant is later than
// that of the member's change before.
func adjust(ctx context.Context, tx *db.Tx, c *change) error {
	err := run(ctx, tx, ownAdjustment, false, []*change{c})
	switch {
	case err != nil:
		return err
	case !c.made && c.refusal == nil:
		return db.Again
	}
	return c.refusal
}

func run(ctx context.Context, tx *db.Tx, statement leaderboard.Noted, several bool, changes []*change) error {
	n := len(changes)
	guilds, users, xp, exactly, keys := make([]string, n), make([]string, n), make([]int64, n), make([]bool, n), make([]*idempotency.Request, n)
	for i, c := range changes {
		c.made, c.refusal = false, nil // the unit may have been run before
		guilds[i], users[i], xp[i], exactly[i], keys[i] = c.by.GuildID, c.user, c.xp, c.exactly, c.key
	}
	guild := any(changes[0].by.GuildID)
	if several {
		guild = db.Array(guilds)
	}
	args := append([]any{guild, db.Array(users), db.Integers(xp), db.Booleans(exactly)}, idempotency.Columns(keys)...)
	var decisions []decision
	if err := tx.SelectContext(ctx, &decisions, statement.For(n), args...); err != nil {
		return fmt.Errorf("adjust the XP of %d members: %w", n, err)
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
