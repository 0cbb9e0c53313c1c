package levelling

import (
	"context"
	_ "embed" // statements
	"fmt"

	"guildhall/internal/base/db"
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

// Member is whose XP is changed.
func (c *change) Member() string { return c.user }

// kept is how often the XP that the member has counts.
func (c *change) kept() int64 {
	if c.exactly {
		return 0
	}
	return 1
}

// The statement of changes of XP that are made together, whole but for what the
// leaderboard notes. It does as that of balances: economy/adjust.go tells what they have
// in common. It leaves what levels have to be told of, unless its caller tells it, in the
// same unit: the database does not know the curve.
var (
	//go:embed adjust_together.sql
	adjustTogether string

	together = leaderboard.Levels.Noted("moved", changedGuild, adjustTogether)
)

const changedGuild = "moved.guild_id /*: $9 */"

// made is what the statement says of a change that it has made.
type made struct {
	Number int `db:"number"`
	row
}

// steps says of a change that the levels in its guild have to be told of, with a
// statement of their own.
func (s *Service) steps(c *change) bool { return s.listening.Has(c.By.GuildID) }

// adjustEach makes changes of several members' XP in one statement, and tells of levels
// with another one if it is called in a unit.
func (s *Service) adjustEach(ctx context.Context, q db.Querier, list []*change) error {
	changes, tx := batch.Sorted(list), db.Unit(ctx)
	rows, err := db.Select[made](ctx, q, together.For(len(changes)), arguments(changes, tx != nil)...)
	if err != nil {
		return fmt.Errorf("change the XP of %d members: %w", len(changes), err)
	}
	for _, m := range rows {
		c := changes[m.Number-1]
		c.Made, c.row = true, m.row
	}
	if tx == nil {
		return nil
	}
	return tell(ctx, tx, changes...)
}

func arguments(changes []*change, tells bool) []any {
	return append(batch.Columns(changes), db.Integers(batch.Each(changes, (*change).kept)),
		db.Integers(batch.Each(changes, func(c *change) int64 { return c.xp })), changes[0].By.GuildID, tells)
}
