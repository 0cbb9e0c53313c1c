package economy

import (
	"context"
	_ "embed" // statements
	"fmt"
	"slices"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
	"guildhall/internal/service/leaderboard"
)

// change is a change of one balance. The ledger row's id, balance and instant are set
// when it is made.
type change struct {
	batch.Change
	entry    entry
	replayed bool // the row is that of an earlier request
}

// Member is whose wallet is changed.
func (c *change) Member() string { return c.entry.UserID }

// The statement of adjustments that are made together, whole but for what the leaderboard
// notes and what is told. Wallet, ledger row and event carry one instant, later than that
// of the wallet's change before: its ledger stands in the order of effects. The ledger
// row's id begins with that instant: see getEntry.
//
// The UPDATE locks, judges and changes. It leaves these changes to be made alone, as
// AdjustBalances makes several: a wallet that is missing, a balance that forbids the
// change, a reference or a key that has a record, and, where nothing is told, a change
// that an endpoint or a stream listens to. A reference or a key that somebody else is
// about to use fails the whole statement, and so does a row that somebody else holds for
// 10 ms: each change is made alone then. A form without the key takes Postgres 7 % less
// for four changes and nothing less for eight; one with the guild as one value saves
// nothing.
//
// number BETWEEN … holds for every row. Postgres takes it for a condition that few meet,
// and looks rows up by index. A subquery in brackets is looked up for each row and not
// joined. The subqueries around the first array and around what is told hide them:
// Postgres would plan short lists, and what tells, anew each time.
var (
	//go:embed adjust_together.sql
	adjustTogether string

	together = tellingOrNot(changedGuild, adjustTogether)
)

const changedGuild = "moved.guild_id /*: $12 */"

// telling are the CTEs that tell of each change.
func telling(guild string) string {
	return event.Telling(guild, "'economy.balance_changed'", db.With(`
			'{"id":"' || moved.event_id || '","type":"economy.balance_changed","timestamp":"'
			|| to_char(moved.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') || '","guild_id":"' || :guild
			|| '","api_version":"v1","origin":' || moved.origin || ',"data":{"user_id":"' || moved.user_id || '","balance":' || moved.is_now
			|| ',"previous_balance":' || moved.is_now - moved.delta || ',"delta":' || moved.delta
			|| ',"reason":' || coalesce(to_json(moved.reason)::text, 'null') || ',"reference":' || coalesce(to_json(moved.reference)::text, 'null')
			|| ',"ledger_entry_id":"' || moved.id || '"}}'`, "guild", guild))
}

// tellingOrNot is a statement that changes balances, by whether it tells. In its text
// :told stands behind the CTEs that note.
func tellingOrNot(guild, text string) map[bool]leaderboard.Noted {
	return map[bool]leaderboard.Noted{
		false: leaderboard.Wallets.Noted("moved", guild, text, "told", ""),
		true:  leaderboard.Wallets.Noted("moved", guild, text, "told", ", "+telling(guild)),
	}
}

// made is what the statement says of a change that it has made.
type made struct {
	Number  int       `db:"number"`
	ID      string    `db:"id"` // of the ledger row
	Balance int64     `db:"balance"`
	At      time.Time `db:"at"`
}

// adjustEach makes changes of several wallets in one statement.
func (s *Service) adjustEach(ctx context.Context, q db.Querier, list []*change) error {
	changes := withoutTwins(batch.Sorted(list))
	tells := slices.ContainsFunc(changes, func(c *change) bool { return s.listening.Has(c.By.GuildID) })
	rows, err := db.Select[made](ctx, q, together[tells].For(len(changes)), arguments(changes, tells)...)
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
	events, traces := any("{}"), any("{}")
	if tells {
		events, traces = texts(newID), texts(func(c *change) string { return c.By.Trace })
	}
	return append(batch.Columns(changes),
		db.Integers(batch.Each(changes, func(c *change) int64 { return c.entry.Delta })), texts(newID),
		nullable(func(c *change) *string { return c.entry.Reason }), texts(func(c *change) string { return c.entry.Note }),
		nullable(func(c *change) *string { return c.entry.Reference }), changes[0].By.GuildID, tells, events, traces)
}

func newID(*change) string { return db.NewID() }

// withoutTwins are the changes without those whose reference an earlier one has: two of
// them would fail the statement.
func withoutTwins(changes []*change) []*change {
	seen := map[string]bool{}
	return slices.DeleteFunc(changes, func(c *change) bool {
		if c.entry.Reference == nil {
			return false
		}
		name := c.By.GuildID + "/" + *c.entry.Reference
		again := seen[name]
		seen[name] = true
		return again
	})
}
