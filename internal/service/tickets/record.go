package tickets

import (
	"context"
	"maps"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/metadata"
	"guildhall/internal/base/wire"
	"guildhall/internal/service/transfer"
)

// row is a stored ticket. Its JSON is the ticket's record in guild files.
type row struct {
	GuildID       string          `db:"guild_id" json:"guild_id"`
	ID            string          `db:"id" json:"id"`
	Number        int64           `db:"number" json:"number"`
	Status        string          `db:"status" json:"status"`
	Subject       *string         `db:"subject" json:"subject"`
	OpenerID      string          `db:"opener_id" json:"opener_id"`
	ClaimedByID   *string         `db:"claimed_by_id" json:"claimed_by_id"`
	ChannelID     *string         `db:"channel_id" json:"channel_id"`
	CloseReason   *string         `db:"close_reason" json:"close_reason"`
	ClosedByID    *string         `db:"closed_by_id" json:"closed_by_id"`
	Metadata      metadata.Values `db:"metadata" json:"metadata"`
	CreatedAt     wire.Time       `db:"created_at" json:"created_at"`
	UpdatedAt     wire.Time       `db:"updated_at" json:"updated_at"`
	ClosedAt      *wire.Time      `db:"closed_at" json:"closed_at"`
	Category      *string         `db:"category" json:"category"`
	Priority      string          `db:"priority" json:"priority"`
	MessageCount  int64           `db:"message_count" json:"-"` // counted from the transcript
	LastMessageAt *wire.Time      `db:"last_message_at" json:"-"`
}

var (
	members = transfer.ColumnsOf[row]("id", "number", "created_at")
	columns = members.All()
)

// entry is a stored transcript entry. Its JSON is the entry's record in guild files.
type entry struct {
	GuildID          string    `db:"guild_id" json:"guild_id"`
	TicketID         string    `db:"ticket_id" json:"ticket_id"`
	ID               string    `db:"id" json:"id"`
	Kind             string    `db:"kind" json:"kind"`
	Internal         *bool     `db:"internal" json:"internal"`
	AuthorID         *string   `db:"author_id" json:"author_id"`
	AuthorType       string    `db:"author_type" json:"author_type"`
	Content          string    `db:"content" json:"content"`
	ChannelMessageID *string   `db:"channel_message_id" json:"channel_message_id"`
	CreatedAt        wire.Time `db:"created_at" json:"created_at"`
	Posted           bool      `db:"posted" json:"-"` // posted by the API

	Attachments     attachments `db:"attachments" json:"attachments"`
	EditedAt        *wire.Time  `db:"edited_at" json:"edited_at"`
	DeletedAt       *wire.Time  `db:"deleted_at" json:"deleted_at"`
	OriginalContent *string     `db:"original_content" json:"original_content"`
}

var (
	entryMembers = transfer.ColumnsOf[entry]("ticket_id", "id", "created_at")
	entryColumns = entryMembers.All()
)

// Records is the record kind of tickets.
var Records = transfer.Kind[row]{
	Name: "ticket", Schema: "GuildFileTicket", Table: "tickets", Columns: members.Moved(), Order: "number",
	Refusals: map[string]string{
		"tickets_pkey":   "a ticket with this id exists already",
		"tickets_number": "this guild has a ticket with this number already",
		openChannel:      "another open ticket of this guild has this channel",
	},
	Guild:   func(t *row) string { return t.GuildID },
	Defines: func(t *row) transfer.Ref { return refOf(t.GuildID, t.ID) },
	Find: `
		SELECT guild_id AS guild, id FROM tickets
		WHERE (guild_id, id) IN (SELECT * FROM unnest($1::text[], $2::text[]))`,
	New: func(now time.Time) row {
		return row{Status: open, Priority: normal, CreatedAt: wire.At(now)}
	},
	Complete: complete,
	Dated:    dated,
	Before: func(ctx context.Context, tx *db.Tx, rows []row) error {
		return transfer.Number(ctx, tx, "last_ticket", rows, func(t *row) (string, *int64) { return t.GuildID, &t.Number })
	},
	Writer: &writer,
}

// dated lists the column that an import dates at its end: of new tickets, and of tickets that got
// transcript entries.
var dated = []transfer.Column{{Table: "tickets", Name: "updated_at"}}

func refOf(guild, id string) transfer.Ref {
	return transfer.Ref{Kind: "ticket", Guild: guild, ID: id}
}

func complete(t *row, now time.Time) error {
	transfer.MintID(&t.ID)
	const closedOnly = "belongs only to a ticket with the status closed"
	switch {
	case t.Status == open && t.ClosedAt != nil:
		return transfer.Wrong("closed_at", closedOnly)
	case t.Status == open && t.CloseReason != nil:
		return transfer.Wrong("close_reason", closedOnly)
	case t.Status == open && t.ClosedByID != nil:
		return transfer.Wrong("closed_by_id", closedOnly)
	case t.Status == closed && t.ClosedAt == nil:
		at := wire.At(now)
		t.ClosedAt = &at
	}
	t.CreatedAt = transfer.Past(t.CreatedAt, now)
	if t.ClosedAt != nil {
		at := transfer.Past(*t.ClosedAt, now)
		t.ClosedAt = &at
	}
	t.UpdatedAt = transfer.Pending
	return t.Metadata.Check()
}

// Transcripts is the record kind of transcript entries, in the order of reading. Files keep
// milliseconds only; within one, the id decides, here as after an import.
var Transcripts = transfer.Kind[entry]{
	Name: "ticket_message", Schema: "GuildFileTicketMessage", Table: "ticket_messages", Columns: entryMembers.Moved(),
	Export: `
		SELECT m.*
		FROM ticket_messages m
		JOIN tickets t ON t.guild_id = m.guild_id AND t.id = m.ticket_id
		WHERE m.guild_id = $1`,
	Order:    "t.number, date_trunc('milliseconds', m.created_at), m.id",
	Refusals: map[string]string{"ticket_messages_pkey": "a message with this id exists already"},
	Guild:    func(e *entry) string { return e.GuildID },
	Needs:    func(e *entry) []transfer.Ref { return []transfer.Ref{refOf(e.GuildID, e.TicketID)} },
	New:      func(now time.Time) entry { return entry{Kind: kindMessage, CreatedAt: wire.At(now)} },
	Complete: completeEntry,
	Dated:    dated,
	Before:   count,
	Writer:   &entryWriter,
}

func completeEntry(e *entry, now time.Time) error {
	transfer.MintID(&e.ID)
	e.CreatedAt = transfer.Past(e.CreatedAt, now)
	for _, at := range []*wire.Time{e.EditedAt, e.DeletedAt} {
		if at != nil {
			*at = transfer.Past(*at, now)
		}
	}
	note := e.Kind == kindNote
	if e.Internal != nil && *e.Internal != note {
		return transfer.Wrong("internal", "must be true for notes and false for everything else")
	}
	e.Internal = &note
	if e.AuthorType == "" {
		e.AuthorType = bySystem
		if note || e.Kind == kindMessage {
			e.AuthorType = byStaff
		}
	}
	return nil
}

// count adds messages to the counters of their tickets.
func count(ctx context.Context, tx *db.Tx, rows []entry) error {
	type tally struct {
		n    int64
		last wire.Time
	}
	tallies := make(map[transfer.Ref]tally)
	for _, e := range rows {
		if e.Kind == kindMessage {
			r := transfer.Ref{Guild: e.GuildID, ID: e.TicketID}
			t := tallies[r]
			tallies[r] = tally{t.n + 1, transfer.Latest(t.last, &e.CreatedAt)}
		}
	}
	for guild, refs := range transfer.InGuilds(maps.Keys(tallies)) {
		var ids, lasts []string
		var counts []int64
		for _, r := range refs {
			ids, counts, lasts = append(ids, r.ID), append(counts, tallies[r].n), append(lasts, tallies[r].last.Time.Format(time.RFC3339Nano))
		}
		if _, err := db.Exec(ctx, tx, `
			WITH held AS (
				SELECT t.id, added.n, added.last::timestamptz
				FROM unnest($2::text[], $3::bigint[], $4::text[]) AS added (id, n, last)
				JOIN tickets t ON t.guild_id = $1 AND t.id = added.id
				ORDER BY t.id
				FOR NO KEY UPDATE OF t
			)
			UPDATE tickets t
			SET message_count = t.message_count + held.n,
			    last_message_at = greatest(t.last_message_at, held.last),
			    updated_at = $5
			FROM held
			WHERE t.guild_id = $1
			  AND t.id = held.id`, guild, db.Array(ids), db.Integers(counts), db.Array(lasts), transfer.Pending); err != nil {
			return fault.Wrap(err, "count the messages of tickets of guild", guild)
		}
	}
	return nil
}
