package transfer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/wire"
)

// Counted says how the rows of a kind are numbered within their guild.
type Counted[R any] struct {
	Counter Counter
	// Number returns the row's number, or 0 if it has none yet.
	Number func(r *R) *int64
	// Taken is a statement that selects those of the numbers $2 that the guild $1 has already used.
	Taken string
	// Past reports whether a new row has its own instant in the past, which need not follow those
	// of earlier numbers; nil: none does.
	Past func(r *R) bool
}

// Counter is one of a guild's two counters.
type Counter int

// The counters of a guild.
const (
	CaseNumbers Counter = iota
	TicketNumbers
)

// counters are the last numbers that a guild has given, and when, once their row is locked.
type counters struct {
	held, raised bool
	last         [2]int64
	at           [2]wire.Time
}

// HoldCounters locks the guild's counters until tx ends. It must be called before the numbered rows
// are locked.
func (c *Call) HoldCounters(ctx context.Context, tx *db.Tx) error {
	g, err := db.Get[struct {
		LastCase   int64      `db:"last_case"`
		LastTicket int64      `db:"last_ticket"`
		LastCaseAt *time.Time `db:"last_case_at"`
	}](ctx, tx, `SELECT last_case, last_ticket, last_case_at FROM guilds WHERE id = $1 FOR NO KEY UPDATE`, c.By.GuildID)
	if err != nil {
		return fault.Wrap(err, "hold the counters of guild", c.By.GuildID)
	}
	c.counters.held, c.counters.last = true, [2]int64{g.LastCase, g.LastTicket}
	if g.LastCaseAt != nil {
		c.counters.at[CaseNumbers] = wire.At(*g.LastCaseAt)
	}
	return nil
}

// RaiseCounters stores the numbers that were given, and when. In an import that time is Pending, so
// that a case that waits for the import gets a later time than the import's cases.
func (c *Call) RaiseCounters(ctx context.Context, tx *db.Tx) error {
	if !c.counters.raised {
		return nil
	}
	var at *time.Time
	if t := c.counters.at[CaseNumbers].Time; !t.IsZero() {
		at = &t
	}
	_, err := db.Exec(ctx, tx, `
		UPDATE guilds SET last_case = $2, last_ticket = $3, last_case_at = coalesce($4, last_case_at)
		WHERE id = $1`, c.By.GuildID, c.counters.last[CaseNumbers], c.counters.last[TicketNumbers], at)
	return fault.Wrap(err, "raise the counters of guild", c.By.GuildID)
}

// judge refuses new rows whose number is already used.
func (n *Counted[R]) judge(ctx context.Context, tx *db.Tx, c *Call, rows []*Row[R]) error {
	var given []int64
	for _, row := range rows {
		if number := *n.Number(&row.Is); row.Was == nil && number != 0 {
			given = append(given, number)
		}
	}
	if len(given) == 0 {
		return nil
	}
	taken, err := db.Select[int64](ctx, tx, n.Taken, c.By.GuildID, db.Integers(given))
	if err != nil {
		return fault.Wrap(err, "look which numbers of guild", c.By.GuildID, "are taken")
	}
	for _, row := range rows {
		number := *n.Number(&row.Is)
		if row.Was != nil || number == 0 {
			continue
		}
		// With Look no number is stored for the next batch of the file to find, so Stood is asked
		// too.
		if slices.Contains(taken, number) || c.Look && c.Import.Stood.Already(Ref{"number", c.By.GuildID, fmt.Sprint(n.Counter, number)}) {
			row.Err = Wrong("number", "is taken by another of the guild")
		}
		taken = append(taken, number)
	}
	return nil
}

// number gives new rows without a number the guild's next numbers, above all that are used, and
// gives new rows of the present instants in the order of their numbers. Rows of the past get the
// clock's time: adding a millisecond for each of many rows would run ahead of the clock.
func (n *Counted[R]) number(c *Call, rows []*Row[R]) {
	last, at := &c.counters.last[n.Counter], &c.counters.at[n.Counter]
	for _, row := range rows {
		if row.Was == nil {
			*last = max(*last, *n.Number(&row.Is))
			c.counters.raised = true
		}
	}
	for _, row := range rows {
		if row.Was != nil {
			continue
		}
		if number := n.Number(&row.Is); *number == 0 {
			*last++
			*number = *last
		}
		if n.Past != nil && n.Past(&row.Is) {
			continue
		}
		if !row.At.Time.After(at.Time) && c.Import == nil {
			row.At = wire.Bounded(at.Time.Add(time.Millisecond))
		}
		*at = row.At
	}
}
