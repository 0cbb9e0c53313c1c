package economy

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

// maxBalance is the largest balance: the largest integer that every JSON reader
// holds exactly.
const maxBalance = 1<<53 - 1

// change is a change of one balance. The ledger row's balance and instant are set
// when it is made.
type change struct {
	batch.Change
	entry entry
}

// Subject is the wallet.
func (c *change) Subject() string { return c.By.GuildID + "/" + c.entry.UserID }

// The statements of adjustments, whole but for what the leaderboard notes and what is
// told. Wallet, ledger row and event carry one instant, later than that of the wallet's
// change before: its ledger stands in the order of effects. The ledger row's id
// begins with that instant: see getEntry.
//
// The first two make changes of several wallets. The UPDATE locks, judges and changes.
// It leaves these changes to be made alone: a wallet that is missing, a balance that
// forbids the change, a reference or a key that has a record, and, where nothing is
// told, a change that an endpoint or a stream listens to. A reference or a key that
// somebody else is about to use fails the whole statement, and so does a row that
// somebody else holds for 10 ms: each change is made alone then. A form without the key
// takes Postgres 7 % less for four changes and nothing less for eight; one with the
// guild as one value saves nothing.
//
// The third makes one change, whatever it has to wait for, and the wallet that is
// missing. A wallet is judged as it stands once it is held, and the reference is claimed
// only for a change that the balance allows. A wallet that was not there to be held is
// made and never changed: the steps of a coordinator see what was committed between
// them. A change that is allowed and still not made has met a reference or a wallet
// that came while the statement ran.
//
// number BETWEEN … holds for every row. Postgres takes it for a condition that few meet,
// and looks rows up by index. A subquery in brackets is looked up for each row and not
// joined. The subquery around the first array hides how long the arrays are: Postgres
// would plan short lists anew each time.
var (
	//go:embed adjust_unheard.sql
	adjustUnheard string
	//go:embed adjust_told.sql
	adjustTold string
	//go:embed adjust_alone.sql
	adjustAlone string
	//go:embed tell.sql
	tellSteps string

	unheard = noted(adjustUnheard, "moved.guild_id /*: $12 */")
	told    = noted(adjustTold, "moved.guild_id /*: $12 */")
	alone   = noted(adjustAlone, "$1")
)

func noted(text, guild string) leaderboard.Noted {
	return leaderboard.Wallets.Noted("moved", guild, func(note string) string {
		return db.With(text, "rank", note, "told", telling(guild))
	})
}

// telling are the CTEs that tell of each change (moved): its event with a delivery for
// each endpoint and each of the bot's streams that listens, or nothing at all where none
// does. They are those of event.RecordEach, with a payload that is known once the change
// is made, and worked out only for what is stored.
func telling(guild string) string { return db.With(tellSteps, "guild", guild) }

// made is what a statement says of a change that it has made.
type made struct {
	Number  int       `db:"number"`
	ID      string    `db:"id"` // of the ledger row
	Balance int64     `db:"balance"`
	At      time.Time `db:"at"`
}

// adjustEach makes changes of several wallets in one statement.
func (s *Service) adjustEach(ctx context.Context, q db.Querier, list []*change) error {
	changes, text := inOrder(list), unheard
	tells := slices.ContainsFunc(changes, func(c *change) bool { return s.listening.Has(c.By.GuildID) })
	if tells {
		text = told
	}
	rows, err := db.Select[made](ctx, q, text.For(len(changes)), arguments(changes, tells)...)
	if err != nil {
		return fmt.Errorf("change %d wallets: %w", len(changes), err)
	}
	for _, m := range rows {
		c := changes[m.Number-1]
		c.Made, c.entry.ID, c.entry.BalanceAfter, c.entry.CreatedAt = true, m.ID, m.Balance, m.At
	}
	return nil
}

func arguments(changes []*change, tells bool) []any {
	texts := func(of func(*change) string) any { return db.Array(batch.Each(changes, of)) }
	nullable := func(of func(*change) *string) any { return db.Texts(batch.Each(changes, of)) }
	args := []any{
		texts(func(c *change) string { return c.By.GuildID }),
		texts(func(c *change) string { return c.entry.UserID }),
		db.Integers(batch.Each(changes, func(c *change) int64 { return c.entry.Delta })),
		texts(func(*change) string { return db.NewID() }),
		nullable(func(c *change) *string { return c.entry.Reason }),
		texts(func(c *change) string { return c.entry.Note }),
		nullable(func(c *change) *string { return c.entry.Reference }),
		texts(func(c *change) string { return c.By.JSON() }),
	}
	args = append(args, idempotency.Columns(batch.Each(changes, func(c *change) *idempotency.Request { return c.Key }))...)
	args = append(args, changes[0].By.GuildID)
	if tells {
		args = append(args, texts(func(*change) string { return db.NewID() }), texts(func(c *change) string { return c.By.Trace }))
	}
	return args
}

// inOrder are the changes in the order in which their wallets are locked everywhere,
// without those whose reference an earlier one has: two of them would fail the statement.
func inOrder(list []*change) []*change {
	changes := slices.Clone(list)
	slices.SortFunc(changes, func(a, b *change) int {
		return cmp.Or(cmp.Compare(a.By.GuildID, b.By.GuildID), cmp.Compare(a.entry.UserID, b.entry.UserID))
	})
	type named struct{ guild, reference string }
	seen := map[named]bool{}
	return slices.DeleteFunc(changes, func(c *change) bool {
		if c.entry.Reference == nil {
			return false
		}
		name := named{c.By.GuildID, *c.entry.Reference}
		again := seen[name]
		seen[name] = true
		return again
	})
}

// decision is what the statement says of a change that is made alone.
type decision struct {
	ID      *string    `db:"id"`      // of the ledger row
	Balance int64      `db:"balance"` // before
	At      *time.Time `db:"at"`      // nil: it was not made
	Told    bool       `db:"told"`    // endpoints or streams listen
	Spent   bool       `db:"spent"`   // the reference was used before
}

// adjustAlone makes one change, or returns its refusal; see repeated.
func (s *Service) adjustAlone(ctx context.Context, tx *db.Tx, c *change) error {
	v, err := db.Get[decision](ctx, tx, alone.For(1), c.alone()...)
	if err != nil {
		return fault.Wrap(err, "change the wallet of", c.entry.UserID)
	}
	if v.Told {
		s.listening.Add(c.By.GuildID)
	}
	return c.judge(v)
}

// alone are the arguments of that statement.
func (c *change) alone() []any {
	e := c.entry
	return []any{c.By.GuildID, e.UserID, e.Delta, db.NewID(), e.Reason, e.Note, e.Reference, db.NewID(), c.By.JSON(), c.By.Trace}
}

// judge sets what a change has come to. It is refused when the result is outside the
// limits and when the guild has used the reference before, and db.Again otherwise.
func (c *change) judge(v decision) error {
	switch {
	case v.At != nil:
		c.entry.ID, c.entry.BalanceAfter, c.entry.CreatedAt = *v.ID, v.Balance+c.entry.Delta, *v.At
		return nil
	case v.Spent:
		return errSpent
	}
	return cmp.Or(beyond(v.Balance, c.entry.Delta), db.Again)
}

// beyond is the refusal of a change whose result would be outside the limits.
func beyond(balance, delta int64) error {
	switch after := balance + delta; {
	case after < 0:
		return fault.New(fault.Refused, "balance_would_be_negative", "The balance is %d and does not cover a change by %d.", balance, delta)
	case after > maxBalance:
		return fault.New(fault.Refused, "balance_limit_exceeded", "The balance would exceed %d.", int64(maxBalance))
	}
	return nil
}

// errSpent says that the reference is used; by what, otherThan tells.
var errSpent = fault.New(fault.Refused, "reference_already_used", "The reference is used.")

// otherThan refuses a change whose reference is that of the ledger row, unless it is
// the change that the row tells of. Reasons are not compared.
func otherThan(c, was entry) error {
	refuse := func(format string, args ...any) error {
		return fault.New(fault.Refused, "reference_already_used", format, args...)
	}
	switch member, delta := c.UserID != was.UserID, c.Delta != was.Delta; {
	case was.ID == "":
		return refuse("The reference was used by a change that is not here any more: before the guild moved here, or of a member who is forgotten.")
	case member && delta:
		return refuse("The reference is that of the ledger entry %s, which is another member's and by %d, not by %d.", was.ID, was.Delta, c.Delta)
	case member:
		return refuse("The reference is that of the ledger entry %s, which is another member's.", was.ID)
	case delta:
		return refuse("The reference is that of the ledger entry %s, which is by %d, not by %d.", was.ID, was.Delta, c.Delta)
	}
	return nil
}
