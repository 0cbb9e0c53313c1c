package tickets

import (
	"context"
	"maps"
	"slices"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/schema"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/transfer"
)

// entryWriter creates and changes transcript entries by records.
var entryWriter = transfer.Writer[entry]{
	Schema: "RecordTicketMessage",
	Key:    entryKey,
	Note:   func(c *transfer.Call, e *entry) { c.Knows(kindRef(c.By.GuildID, e.TicketID, e.Kind)) },
	Hold:   holdEntries,
	Revise: reviseEntry,
	Shown:  func(e *entry) transfer.Shown { return transfer.Shown{ID: e.ID} },
	Store:  storeEntries,
	Emit:   emitEntries,
}

// kindRef returns the note that a call contains an entry of a kind for a ticket.
func kindRef(guild, ticket, kind string) transfer.Ref {
	return transfer.Ref{Kind: "ticket_message " + kind, Guild: guild, ID: ticket}
}

// entryKey returns the key of an entry: its id, or the id of its message on the platform.
func entryKey(e *entry) string {
	if e.ID != "" {
		return "id/" + e.ID
	}
	return channelKey(e)
}

// channelKey identifies the entry's message on the platform; empty: it has none.
func channelKey(e *entry) string {
	if e.ChannelMessageID == nil {
		return ""
	}
	return "channel/" + e.TicketID + "/" + *e.ChannelMessageID
}

var (
	entriesByID = `
		SELECT ` + entryColumns + `
		FROM ticket_messages
		WHERE guild_id = $1
		  AND id = ANY ($2)`

	// Imports may have created several entries of one message: the first counts.
	entriesOfChannel = `
		SELECT ` + entryColumns + `
		FROM ticket_messages
		WHERE guild_id = $1
		  AND channel_message_id = ANY ($2)
		ORDER BY created_at, id`
)

// holdEntries locks the tickets of entries, and thereby the entries: whoever writes to a transcript
// locks its ticket. A dry run does not see tickets that the file would create.
func holdEntries(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[entry]) error {
	var ids, channel []string
	for _, r := range rows {
		ids = append(ids, r.Is.ID)
		if r.Is.ChannelMessageID != nil {
			channel = append(channel, *r.Is.ChannelMessageID)
		}
	}
	held, err := holdTickets(ctx, tx, c, rows)
	if err != nil {
		return err
	}
	there, err := db.Select[entry](ctx, tx, entriesByID, c.By.GuildID, db.Array(ids))
	if err != nil {
		return fault.Wrap(err, "read entries of tickets of guild", c.By.GuildID)
	}
	of, err := db.Select[entry](ctx, tx, entriesOfChannel, c.By.GuildID, db.Array(channel))
	if err != nil {
		return fault.Wrap(err, "read messages of tickets of guild", c.By.GuildID)
	}
	byKey := make(map[string]*entry)
	for i := range there {
		byKey["id/"+there[i].ID] = &there[i]
	}
	for i := range of {
		if key := channelKey(&of[i]); byKey[key] == nil {
			byKey[key] = &of[i]
		}
	}
	find(c, rows, byKey, held)
	return nil
}

// find sets the stored entry of each row. It refuses a record of a message that the call already
// contains under another key. In an import, entries are found by id only, since an export may
// contain a message that earlier imports have stored twice.
func find(c *transfer.Call, rows []*transfer.Row[entry], byKey map[string]*entry, held map[string]row) {
	named := make(map[string]bool)
	for _, r := range rows {
		if _, ok := held[r.Is.TicketID]; !ok && !c.Expects(refOf(c.By.GuildID, r.Is.TicketID)) {
			r.Err = fault.New(fault.NotFound, "not_found", "No such ticket.")
			continue
		}
		r.Was = byKey[entryKey(&r.Is)]
		if c.Import != nil && r.Is.ID != "" {
			continue
		}
		other := byKey[channelKey(&r.Is)]
		switch {
		case r.Was == nil:
			r.Was = other
		case other != nil && other.ID != r.Was.ID:
			r.Err = transfer.Wrong("channel_message_id", "belongs to another entry of the ticket, %s", other.ID)
		}
		names := []string{entryKey(&r.Is), channelKey(&r.Is)}
		if r.Was != nil {
			names = append(names, "id/"+r.Was.ID)
		}
		names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
		if slices.ContainsFunc(names, func(name string) bool { return named[name] }) {
			r.Err = transfer.Wrong("", "names a message that stands in this call already")
		}
		for _, name := range names {
			named[name] = true
		}
	}
}

// holdTickets locks the tickets of entries in the order of their ids.
func holdTickets(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[entry]) (map[string]row, error) {
	of := make(map[string]row)
	for _, r := range rows {
		of[r.Is.TicketID] = row{}
	}
	query := namedTickets
	if !c.Look {
		query += `
		FOR NO KEY UPDATE`
	}
	list, err := db.Select[row](ctx, tx, query, c.By.GuildID, db.Array(slices.Sorted(maps.Keys(of))))
	if err != nil {
		return nil, fault.Wrap(err, "hold tickets of guild", c.By.GuildID)
	}
	clear(of)
	for _, t := range list {
		of[t.ID] = t
	}
	return of, nil
}

// withoutText is the content of a message without text.
const withoutText = "[attachment]"

// reviseEntry completes an entry. An entry that the API has posted keeps its kind and author.
func reviseEntry(c *transfer.Call, r *transfer.Row[entry]) error {
	is, was := &r.Is, r.Was
	if schema.Blank(is.Content) {
		is.Content = withoutText
	}
	if was == nil {
		return completeEntry(is, c.Now)
	}
	if is.ID != was.ID {
		return transfer.Wrong("id", "never changes; the message is the entry %s", was.ID)
	}
	if is.TicketID != was.TicketID {
		return transfer.Wrong("ticket_id", "never changes; it is %s", was.TicketID)
	}
	if was.Posted {
		is.Kind, is.AuthorType, is.Internal = was.Kind, was.AuthorType, was.Internal
		if was.AuthorID != nil {
			is.AuthorID = was.AuthorID
		}
		if is.ChannelMessageID == nil {
			is.ChannelMessageID = was.ChannelMessageID
		}
	}
	if or(is.Internal, false) == or(was.Internal, false) {
		is.Internal = nil
	}
	edited(c, is, was)
	err := completeEntry(is, c.Now)
	is.CreatedAt = was.CreatedAt
	return err
}

// edited sets the instant of an edit and keeps the original text. An edit is a change of content or
// attachments. A record that repeats a known edit or deletion changes nothing.
func edited(c *transfer.Call, is, was *entry) {
	if is.DeletedAt == nil || was.DeletedAt != nil {
		is.DeletedAt = was.DeletedAt
	}
	content := is.Content != was.Content
	switch {
	case !content && is.Attachments.sameFiles(was.Attachments):
		if c.Import == nil || is.EditedAt == nil {
			is.EditedAt = was.EditedAt
		}
		return
	case is.EditedAt == nil || was.EditedAt != nil && is.EditedAt.Alike(*was.EditedAt):
		now := wire.At(c.Now)
		is.EditedAt = &now
	}
	if content && is.OriginalContent == nil {
		first := was.Content
		is.OriginalContent = &first
	}
}

// tally is what entries change about their ticket.
type tally struct {
	at    wire.Time // the instant of the message's last change
	moved bool      // at was set by this call
	n     int64     // number of new messages
	last  *wire.Time
	again bool // the last message has to be looked up again
}

// storeEntries inserts and updates transcript entries and updates the counters of their tickets.
// Each entry is dated after the last change of its ticket. New entries that are dated now are one
// millisecond apart.
func storeEntries(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[entry]) error {
	held, err := holdTickets(ctx, tx, c, rows)
	if err != nil {
		return err
	}
	tallies := make(map[string]*tally)
	for _, r := range rows {
		t := tallies[r.Is.TicketID]
		if t == nil {
			t = &tally{at: held[r.Is.TicketID].UpdatedAt}
			tallies[r.Is.TicketID] = t
		}
		t.count(c, r)
	}
	if err := transfer.StoreRows(ctx, tx, c, rows, func(e *entry) string { return e.ID }, storingEntries); err != nil {
		return fault.Wrap(err, "store entries of tickets of guild", c.By.GuildID)
	}
	return storeTallies(ctx, tx, c, tallies)
}

// count sets the instant of an entry and adds the entry to its ticket's tally. Entries from the
// past share one instant: a millisecond for each of many would run ahead of the clock.
func (t *tally) count(c *transfer.Call, r *transfer.Row[entry]) {
	if c.Import == nil {
		next, now := t.at.Time, r.Was == nil && !r.Is.CreatedAt.Time.Before(c.Now)
		if now || !t.moved {
			next = next.Add(time.Millisecond)
		}
		if !r.At.Time.After(next) {
			r.At = wire.Bounded(next)
		}
		if now {
			r.Is.CreatedAt = r.At
		}
	}
	t.at, t.moved = r.At, true
	was, is := r.Was != nil && r.Was.Kind == kindMessage, r.Is.Kind == kindMessage
	switch {
	case is && !was:
		t.n++
		last := r.Is.CreatedAt
		if t.last != nil {
			last = transfer.Latest(last, t.last)
		}
		t.last = &last
	case was && !is:
		t.n--
		t.again = true
	}
}

var storingEntries = `
		WITH given AS MATERIALIZED (
			SELECT ` + entryMembers.Moved() + `
			FROM jsonb_populate_recordset(NULL::ticket_messages, $2)
		), changed AS (
			UPDATE ticket_messages m
			SET ` + entryMembers.Set("g", nil) + `
			FROM given g
			WHERE m.guild_id = $1 AND m.id = g.id AND m.id = ANY ($3)
			RETURNING m.id
		), made AS (
			INSERT INTO ticket_messages (` + entryMembers.Moved() + `)
			SELECT ` + entryMembers.From("g", nil) + `
			FROM given g JOIN guilds home ON home.id = $1
			WHERE g.id <> ALL ($3)
			ON CONFLICT DO NOTHING
			RETURNING id
		)
		SELECT (SELECT count(*) FROM changed) + (SELECT count(*) FROM made)`

// storeTallies stores the counters of tickets, which are locked.
func storeTallies(ctx context.Context, tx *db.Tx, c *transfer.Call, tallies map[string]*tally) error {
	ids := slices.Sorted(maps.Keys(tallies))
	var counts []int64
	var ats, lasts, again []string
	for _, id := range ids {
		t := tallies[id]
		c.Touches(refOf(c.By.GuildID, id), t.at)
		counts, ats = append(counts, t.n), append(ats, t.at.Time.UTC().Format(time.RFC3339Nano))
		last := "-infinity"
		if t.last != nil {
			last = t.last.String() // truncated, as the entry's instant is stored
		}
		lasts = append(lasts, last)
		if t.again {
			again = append(again, id)
		}
	}
	_, err := db.Exec(ctx, tx, storingTallies, c.By.GuildID, db.Array(ids), db.Integers(counts), db.Array(ats), db.Array(lasts))
	if err != nil {
		return fault.Wrap(err, "count the messages of tickets of guild", c.By.GuildID)
	}
	if len(again) == 0 {
		return nil
	}
	_, err = db.Exec(ctx, tx, `
		UPDATE tickets t
		SET last_message_at = m.last
		FROM (
			SELECT ticket_id, max(created_at) FILTER (WHERE kind = 'message') AS last
			FROM ticket_messages
			WHERE guild_id = $1
			  AND ticket_id = ANY ($2)
			GROUP BY ticket_id
		) m
		WHERE t.guild_id = $1
		  AND t.id = m.ticket_id`, c.By.GuildID, db.Array(again))
	return fault.Wrap(err, "look for the last message of tickets of guild", c.By.GuildID)
}

const storingTallies = `
		UPDATE tickets t
		SET message_count = t.message_count + more.n, updated_at = more.at,
		    last_message_at = greatest(t.last_message_at, nullif(more.last, '-infinity'))
		FROM unnest($2::text[], $3::bigint[], $4::timestamptz[], $5::timestamptz[]) AS more (id, n, at, last)
		WHERE t.guild_id = $1
		  AND t.id = ANY ($2)
		  AND t.id = more.id`

// emitEntries records the events of messages and notes that records have created or changed.
func emitEntries(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[entry]) error {
	changes := make(map[string][]event.Change)
	for _, r := range rows {
		if r.Is.Kind != kindMessage && r.Is.Kind != kindNote {
			continue
		}
		change := event.Change{At: r.At.Time, Data: showEntry(r.Is)}
		typ := event.TicketMessage
		if r.Was != nil {
			typ = event.TicketMessageUpdated
			change.Data = showEntryChange(r.Is, entryMembers.Changed(r.Was, &r.Is, "edited_at", "original_content", "internal"))
		}
		changes[typ] = append(changes[typ], change)
	}
	return event.RecordTypes(ctx, tx, event.From(c.By), changes)
}

// mirrored returns the entry of a locked ticket for a message on the platform, or nil.
func mirrored(ctx context.Context, tx *db.Tx, t row, message string) (*entry, error) {
	list, err := db.Select[entry](ctx, tx, entriesOfChannel, t.GuildID, db.Array([]string{message}))
	if err != nil {
		return nil, fault.Wrap(err, "look for message", message, "of ticket", t.ID, "of guild", t.GuildID)
	}
	for i := range list {
		if list[i].TicketID == t.ID {
			return &list[i], nil
		}
	}
	return nil, nil
}
