package levelling

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

const (
	foldGuilds = 100 // guilds that one query finds
	foldRows   = 200 // rows of xp_moves that one transaction adds up, each of up to 100 members
)

// Expired says when the sums of weeks and months expire.
func Expired() []db.Expiry {
	return []db.Expiry{{Table: "xp_periods", Key: "user_id, kind, starts", Since: "kept_until", Kept: "0"}}
}

// FoldMoves adds the rows of xp_moves to the sums of their weeks and months, guild by guild. It
// skips rows that another node is adding up.
func FoldMoves(ctx context.Context, d *db.DB) error {
	var errs []error
	for last := ""; ctx.Err() == nil; {
		guilds, err := db.Select[string](ctx, d.Reader(), guildsWithMoves, last, foldGuilds)
		if err != nil {
			return fault.Wrap(err, "look for guilds with moves of XP")
		}
		for _, guild := range guilds {
			errs = append(errs, fault.Wrap(foldGuild(ctx, d, guild), "add up the moves of XP of guild", guild))
		}
		if len(guilds) < foldGuilds {
			break
		}
		last = guilds[len(guilds)-1]
	}
	return errors.Join(errs...)
}

const guildsWithMoves = `
		SELECT DISTINCT guild_id
		FROM xp_moves
		WHERE guild_id > $1
		ORDER BY guild_id
		LIMIT $2`

// foldGuild adds up the moves of one guild.
func foldGuild(ctx context.Context, d *db.DB, guild string) error {
	for {
		taken := 0
		err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			moves, err := db.Select[move](ctx, tx, takeMoves, guild, foldRows)
			if taken = 0; err != nil || len(moves) == 0 {
				return err
			}
			taken = moves[0].Taken
			return addUp(ctx, tx, guild, sumsOf(moves))
		})
		if err != nil || taken < foldRows {
			return err
		}
	}
}

// move is what a member gained by one statement.
type move struct {
	UserID   string    `db:"user_id"`
	At       time.Time `db:"at"`
	Delta    int64     `db:"delta"`
	Timezone string    `db:"timezone"`
	Taken    int       `db:"taken"` // rows of xp_moves that were taken with this one
}

// takeMoves deletes up to $2 rows of xp_moves and returns their members. Forgetting a member
// changes the rows that name the member, and so waits until the sums of what was taken are
// there to be deleted.
const takeMoves = `
		WITH taken AS (
			DELETE FROM xp_moves
			WHERE guild_id = $1
			  AND ctid = ANY (ARRAY(SELECT ctid FROM xp_moves WHERE guild_id = $1 LIMIT $2 FOR UPDATE SKIP LOCKED))
			RETURNING at, timezone, users, deltas
		)
		SELECT e.user_id, t.at, e.delta, t.timezone, (SELECT count(*) FROM taken) AS taken
		FROM taken t, unnest(t.users, t.deltas) AS e (user_id, delta)`

// sum names the sum of a member's changes in a period.
type sum struct {
	user string
	period
}

// compare orders sums as every statement locks them.
func (s sum) compare(other sum) int {
	return cmp.Or(strings.Compare(s.user, other.user), strings.Compare(s.kind, other.kind), s.start.Compare(other.start))
}

// sumsOf adds moves up by member, week and month.
func sumsOf(moves []move) map[sum]int64 {
	zones, sums := make(map[string]*time.Location), make(map[sum]int64)
	for _, m := range moves {
		zone := zones[m.Timezone]
		if zone == nil {
			zone = zoneOf(m.Timezone)
			zones[m.Timezone] = zone
		}
		day := dayOf(m.At, zone)
		for _, kind := range []string{week, month} {
			s := sum{m.UserID, periodOf(kind, day)}
			sums[s] = max(-MaxXP, min(MaxXP, sums[s]+m.Delta))
		}
	}
	return sums
}

// addUp adds sums to those that are stored. A sum stays within MaxXP either way: XP that is set
// again and again can be gained without end.
func addUp(ctx context.Context, tx *db.Tx, guild string, sums map[sum]int64) error {
	var users, kinds, starts, kept []string
	var xp []int64
	for _, s := range slices.SortedFunc(maps.Keys(sums), sum.compare) {
		users, kinds, xp = append(users, s.user), append(kinds, s.kind), append(xp, sums[s])
		starts, kept = append(starts, s.start.Format(time.DateOnly)), append(kept, s.keptUntil().Format(time.DateOnly))
	}
	_, err := db.Exec(ctx, tx, addToPeriods, guild, db.Array(users), db.Array(kinds), db.Array(starts), db.Integers(xp), db.Array(kept))
	return err
}

// addToPeriods takes the guild from its row, so that the moves of a guild that was deleted go
// without a trace.
const addToPeriods = `
		INSERT INTO xp_periods (guild_id, user_id, kind, starts, xp, kept_until)
		SELECT home.id, g.user_id, g.kind, g.starts, g.xp, g.kept_until
		FROM guilds home
		CROSS JOIN unnest($2::text[], $3::text[], $4::date[], $5::bigint[], $6::date[]) AS g (user_id, kind, starts, xp, kept_until)
		WHERE home.id = $1
		ON CONFLICT (guild_id, user_id, kind, starts) DO UPDATE
		SET xp = least(greatest(xp_periods.xp + excluded.xp, -9007199254740991), 9007199254740991)`
