package levelling

import (
	"cmp"
	"context"
	_ "embed" // statements
	"fmt"
	"slices"
	"time"

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

// Subject is the member's record.
func (c *change) Subject() string { return c.By.GuildID + "/" + c.user }

// kept is how often the XP that the member has counts.
func (c *change) kept() int64 {
	if c.exactly {
		return 0
	}
	return 1
}

// The statements of changes of XP, whole but for what the leaderboard notes. The first
// makes changes of several members, and the second one, as those of balances do:
// economy/adjust.go tells what they have in common. The first leaves what levels have
// to be told of, unless its caller tells it, in the same unit: the database does not
// know the curve.
var (
	//go:embed adjust_together.sql
	adjustTogether string
	//go:embed adjust_alone.sql
	adjustAlone string

	together = noted(adjustTogether, "moved.guild_id /*: $9 */")
	alone    = noted(adjustAlone, "$1")
)

func noted(text, guild string) leaderboard.Noted {
	return leaderboard.Levels.Noted("moved", guild, func(note string) string { return db.With(text, "rank", note) })
}

// decision is what a statement says of one change.
type decision struct {
	Number int        `db:"number"`
	Before int64      `db:"was"`
	After  int64      `db:"is_now"`
	At     *time.Time `db:"at"`   // nil: it was not made
	Told   bool       `db:"told"` // endpoints or streams listen
}

// steps says of a change that the levels in its guild have to be told of, with a
// statement of their own.
func (s *Service) steps(c *change) bool { return s.listening.Has(c.By.GuildID) }

// adjustEach makes changes of several members' XP in one statement, and tells of levels
// with another one if it is called in a unit.
func (s *Service) adjustEach(ctx context.Context, q db.Querier, list []*change) error {
	changes := slices.SortedFunc(slices.Values(list), func(a, b *change) int {
		return cmp.Or(cmp.Compare(a.By.GuildID, b.By.GuildID), cmp.Compare(a.user, b.user))
	})
	tx := db.Unit(ctx)
	rows, err := db.Select[decision](ctx, q, together.For(len(changes)), arguments(changes, tx != nil)...)
	if err != nil {
		return fmt.Errorf("change the XP of %d members: %w", len(changes), err)
	}
	for _, v := range rows {
		changes[v.Number-1].set(v)
	}
	if tx == nil {
		return nil
	}
	return tell(ctx, tx, changes...)
}

func arguments(changes []*change, tells bool) []any {
	args := []any{
		db.Array(batch.Each(changes, func(c *change) string { return c.By.GuildID })),
		db.Array(batch.Each(changes, func(c *change) string { return c.user })),
		db.Integers(batch.Each(changes, (*change).kept)),
		db.Integers(batch.Each(changes, func(c *change) int64 { return c.xp })),
		db.Array(batch.Each(changes, func(c *change) string { return c.By.JSON() })),
	}
	args = append(args, idempotency.Columns(batch.Each(changes, func(c *change) *idempotency.Request { return c.Key }))...)
	return append(args, changes[0].By.GuildID, tells)
}

// adjustAlone makes one change, and tells of the level, or returns its refusal.
func (s *Service) adjustAlone(ctx context.Context, tx *db.Tx, c *change) error {
	v, err := db.Get[decision](ctx, tx, alone.For(1), c.By.GuildID, c.user, c.kept(), c.xp)
	if err != nil {
		return fault.Wrap(err, "change the XP of", c.user)
	}
	if v.Told {
		s.listening.Add(c.By.GuildID)
	}
	if err := c.judge(v); err != nil {
		return err
	}
	return tell(ctx, tx, c)
}

// judge sets what a change has come to. It is refused when the result is negative or
// above MaxXP, and db.Again when it is allowed and was not made.
func (c *change) judge(v decision) error {
	switch {
	case v.At != nil:
		c.set(v)
		return nil
	case v.After < 0:
		return fault.New(fault.Refused, "xp_would_be_negative", "The member has %d XP, which does not cover a change by %d.", v.Before, v.After-v.Before)
	case v.After > MaxXP:
		return fault.New(fault.Refused, "xp_limit_exceeded", "A member can have at most %d XP.", int64(MaxXP))
	}
	return db.Again
}

func (c *change) set(v decision) {
	c.Made, c.row = true, row{UserID: c.user, TotalXP: v.After, PreviousXP: v.Before, UpdatedAt: v.At}
}
