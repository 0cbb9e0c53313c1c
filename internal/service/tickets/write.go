package tickets

import (
	"context"
	"strings"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/transfer"
)

// writer creates and changes tickets by records. Records never change a channel on the platform:
// the due time of a channel stays, as long as there is a channel. The stored permissions are
// dropped with their channel.
var writer = transfer.Writer[row]{
	Schema: "RecordTicket",
	Key:    idOf,
	Hold:   transfer.Held(idOf, namedTickets),
	Revise: revise,
	Shown: func(t *row) transfer.Shown {
		return transfer.Shown{ID: t.ID, Number: &t.Number, UpdatedAt: &t.UpdatedAt}
	},
	Counted: &transfer.Counted[row]{
		Counter: transfer.TicketNumbers,
		Number:  func(t *row) *int64 { return &t.Number },
		Taken:   `SELECT number FROM tickets WHERE guild_id = $1 AND number = ANY ($2)`,
	},
	Store: store,
	Emit:  emitChanges,
}

func idOf(t *row) string { return t.ID }

var namedTickets = `
		SELECT ` + columns + `
		FROM tickets
		WHERE guild_id = $1
		  AND id = ANY ($2)
		ORDER BY id`

// revise completes a ticket. A ticket that is reopened loses the members about its end, unless the
// record sets them.
func revise(c *transfer.Call, r *transfer.Row[row]) error {
	is, was := &r.Is, r.Was
	if was != nil {
		is.ClosedAt = transfer.Stands(is.ClosedAt, was.ClosedAt, c.Now)
	}
	if was != nil && was.Status == closed {
		switch {
		case is.Status == closed && is.ClosedAt == nil:
			is.ClosedAt = was.ClosedAt
		case is.Status == open:
			clearUnchanged(&is.CloseReason, was.CloseReason)
			clearUnchanged(&is.ClosedByID, was.ClosedByID)
			if is.ClosedAt != nil && is.ClosedAt.Alike(*was.ClosedAt) {
				is.ClosedAt = nil
			}
		}
	}
	stays := was != nil && is.ClosedAt != nil && was.ClosedAt != nil && is.ClosedAt.Alike(*was.ClosedAt)
	if err := complete(is, c.Now); err != nil || was == nil {
		return err
	}
	is.CreatedAt, is.UpdatedAt = was.CreatedAt, was.UpdatedAt
	if stays {
		is.ClosedAt = was.ClosedAt // the ticket may have been closed after the call began
	}
	return nil
}

// clearUnchanged clears a member that has not changed.
func clearUnchanged(is **string, was *string) {
	if transfer.Same(*is, was) {
		*is = nil
	}
}

// changes lists the changed members for the event ticket.updated. The status, the claim and, if the
// status changes, the members about the ticket's end have events of their own.
func changes(was, is *row) []string {
	but := []string{"status", "claimed_by_id"}
	if was.Status != is.Status {
		but = append(but, "close_reason", "closed_by_id", "closed_at")
	}
	return members.Changed(was, is, but...)
}

// step is one event of a change, with the transcript entry that describes it.
type step struct {
	typ     string
	changed []string
	entry   *entry
}

// steps returns the events of a created or changed ticket in their order.
func steps(r *transfer.Row[row]) (list []step) {
	was, is := r.Was, &r.Is
	if was == nil {
		list = append(list, step{typ: event.TicketOpened})
		if is.Status == closed {
			list = append(list, step{typ: event.TicketClosed})
		}
		return list
	}
	switch {
	case transfer.Same(was.ClaimedByID, is.ClaimedByID):
	case was.ClaimedByID == nil:
		list = append(list, step{typ: event.TicketClaimed, entry: &entry{Kind: kindClaim, Content: "Claimed by " + *is.ClaimedByID + "."}})
	default:
		list = append(list, step{typ: event.TicketAssigned, entry: &entry{Kind: kindAssign, Content: "Assigned to " + or(is.ClaimedByID, "nobody") + "."}})
	}
	if changed := changes(was, is); len(changed) > 0 {
		list = append(list, step{typ: event.TicketUpdated, changed: changed})
	}
	switch {
	case was.Status == is.Status:
	case is.Status == closed:
		reason := or(is.CloseReason, "")
		if strings.TrimSpace(reason) == "" {
			reason = "Closed."
		}
		list = append(list, step{typ: event.TicketClosed, entry: &entry{Kind: kindClose, AuthorID: is.ClosedByID, Content: reason}})
	default:
		list = append(list, step{typ: event.TicketReopened, entry: &entry{Kind: kindReopen, Content: "Reopened."}})
	}
	return list
}

// instants returns the instants of a change's n steps, a millisecond apart; the last one is the
// row's.
func instants(last wire.Time, n int) []time.Time {
	list := make([]time.Time, n)
	for i := range list {
		list[i] = last.Time.Add(time.Duration(i-n+1) * time.Millisecond)
	}
	return list
}

// store inserts and updates tickets and adds transcript entries about the changes. An import brings
// its own transcripts.
func store(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[row]) error {
	rows, err := refuseTaken(ctx, tx, c, rows)
	if err != nil {
		return err
	}
	var entries []entry
	for _, r := range rows {
		list := steps(r)
		if c.Import == nil {
			r.At = wire.Bounded(r.At.Time.Add(time.Duration(max(len(list), 1)-1) * time.Millisecond))
			entries = append(entries, entriesOf(c, r, list)...)
		}
		r.Is.UpdatedAt = r.At
	}
	// Tickets that leave their channels come first, since the unique index is checked within a
	// statement too.
	leaving, others := split(rows, leavesChannel)
	for _, part := range [][]*transfer.Row[row]{leaving, others} {
		if err := storeRows(ctx, tx, c, part); err != nil {
			return err
		}
	}
	for _, e := range entries {
		t := row{GuildID: c.By.GuildID, ID: e.TicketID, UpdatedAt: e.CreatedAt}
		if _, err := write(ctx, tx, t, e); err != nil {
			return err
		}
	}
	return nil
}

// storeRows inserts and updates rows in one statement.
func storeRows(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[row]) error {
	if len(rows) == 0 {
		return nil
	}
	err := transfer.StoreRows(ctx, tx, c, rows, idOf, storing)
	if db.Violates(err, openChannel) {
		return db.Again // another ticket has taken the channel: the call is retried
	}
	return fault.Wrap(err, "store tickets of guild", c.By.GuildID)
}

func split(rows []*transfer.Row[row], by func(*transfer.Row[row]) bool) (yes, no []*transfer.Row[row]) {
	for _, r := range rows {
		if by(r) {
			yes = append(yes, r)
		} else {
			no = append(no, r)
		}
	}
	return yes, no
}

// holdsChannel reports whether a ticket is open and has a channel.
func holdsChannel(t *row) bool { return t != nil && t.Status == open && t.ChannelID != nil }

// leavesChannel reports whether a record closes an open ticket with a channel, or removes its
// channel.
func leavesChannel(r *transfer.Row[row]) bool { return holdsChannel(r.Was) && !holdsChannel(&r.Is) }

// refuseTaken refuses rows that would be a second open ticket in a channel, and returns the others.
// A ticket that another record of the call closes has left its channel.
func refuseTaken(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[row]) ([]*transfer.Row[row], error) {
	var channels []string
	left := map[string]bool{}
	for _, r := range rows {
		if holdsChannel(&r.Is) {
			channels = append(channels, *r.Is.ChannelID)
		}
		if leavesChannel(r) {
			left[r.Is.ID] = true
		}
	}
	if len(channels) == 0 {
		return rows, nil
	}
	list, err := db.Select[row](ctx, tx, `
		SELECT `+columns+`
		FROM tickets
		WHERE guild_id = $1
		  AND status = 'open'
		  AND channel_id = ANY ($2)`, c.By.GuildID, db.Array(channels))
	if err != nil {
		return nil, fault.Wrap(err, "look for the open tickets of channels of guild", c.By.GuildID)
	}
	holder := map[string]*row{}
	for i := range list {
		if !left[list[i].ID] {
			holder[*list[i].ChannelID] = &list[i]
		}
	}
	for _, r := range rows {
		if !holdsChannel(&r.Is) {
			continue
		}
		channel := *r.Is.ChannelID
		if other := holder[channel]; other != nil && other.ID != r.Is.ID {
			r.Err = channelInUse(channel, other.Number)
			continue
		}
		holder[channel] = &r.Is
	}
	_, stored := split(rows, func(r *transfer.Row[row]) bool { return r.Err != nil })
	return stored, nil
}

// entriesOf returns the transcript entries about changes of status, unless the call contains an
// entry of that kind.
func entriesOf(c *transfer.Call, r *transfer.Row[row], list []step) (entries []entry) {
	at := instants(r.At, len(list))
	for i, s := range list {
		if s.entry != nil && !c.Noted[kindRef(c.By.GuildID, r.Is.ID, s.entry.Kind)] {
			e := *s.entry
			e.TicketID, e.AuthorType, e.CreatedAt = r.Is.ID, bySystem, wire.At(at[i])
			entries = append(entries, e)
		}
	}
	return entries
}

var storing = `
		WITH given AS MATERIALIZED (
			SELECT ` + members.Moved() + `
			FROM jsonb_populate_recordset(NULL::tickets, $2)
		), changed AS (
			UPDATE tickets t
			SET ` + members.Set("g", nil) + `,
			    channel_lock = CASE WHEN t.channel_id = g.channel_id THEN t.channel_lock END,
			    channel_due_at = CASE WHEN g.channel_id IS NOT NULL THEN t.channel_due_at END,
			    channel_try_at = CASE WHEN g.channel_id IS NOT NULL THEN t.channel_try_at END
			FROM given g
			WHERE t.guild_id = $1 AND t.id = g.id AND t.id = ANY ($3)
			RETURNING t.id
		), made AS (
			INSERT INTO tickets (` + members.Moved() + `)
			SELECT ` + members.From("g", nil) + `
			FROM given g JOIN guilds home ON home.id = $1
			WHERE g.id <> ALL ($3)
			ON CONFLICT DO NOTHING
			RETURNING id
		)
		SELECT (SELECT count(*) FROM changed) + (SELECT count(*) FROM made)`

// emitChanges records the events of created and changed tickets, each a millisecond after the
// previous one and all with the final state.
func emitChanges(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[row]) error {
	stored, err := transfer.Stored(ctx, tx, c, rows, idOf, namedTickets)
	if err != nil {
		return fault.Wrap(err, "read tickets of guild", c.By.GuildID)
	}
	changes := make(map[string][]event.Change)
	for _, r := range rows {
		// The counters include the messages of the same call by now.
		t, list := *stored[r.Is.ID], steps(r)
		at := instants(r.At, len(list))
		for i, s := range list {
			e := event.Change{At: at[i], Data: show(t)}
			if s.typ == event.TicketUpdated {
				e.Data = showChange(t, s.changed)
			}
			changes[s.typ] = append(changes[s.typ], e)
		}
	}
	return event.RecordTypes(ctx, tx, event.From(c.By), changes)
}
