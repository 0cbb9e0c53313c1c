package tickets

import (
	"context"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/metadata"
	"guildhall/internal/base/page"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/event"
)

var byID = `
	SELECT ` + columns + `
	FROM tickets
	WHERE guild_id = $1
	  AND id = $2`

// policy holds the guild's settings for closing tickets.
type policy struct {
	RequireReason bool   `db:"require_close_reason"`
	Action        string `db:"close_action"`
}

// filter selects and orders the tickets of a list. The zero value selects all, newest first.
type filter struct {
	Status, OpenerID, ClaimedByID, ChannelID, Category, Priority string
	Unclaimed                                                    bool
	Number                                                       int64
	Activity                                                     bool // order by the last message
	// Changed, if not nil, selects tickets that changed at this time or later and orders them by
	// their last change.
	Changed  *time.Time
	Metadata *metadata.Lookup
}

// There is a statement for each index that serves the list: the plan of a prepared statement must
// hold for every value, and an optional condition cannot use an index.
var (
	// Numbers are distinct and start at 1, so the highest number bounds the number of tickets.
	table = page.Table{Name: "tickets", Columns: columns, Reach: "(SELECT max(number) FROM tickets WHERE guild_id = $1)"}

	newest = page.Newest(table, `guild_id = $1`)

	// The subquery hides the status: from version 17 on, Postgres would plan each page of a rare
	// status anew.
	newestOfStatus = page.Newest(table, `guild_id = $1
		  AND status = (SELECT $4::text)`)

	newestOfOpener = page.Narrowed(table, `guild_id = $1
		  AND opener_id = $4
		  AND ($5::text = '' OR status = $5)
		  AND ($6::text = '' OR claimed_by_id = $6)
		  AND (NOT $7 OR claimed_by_id IS NULL)
		  AND ($8::text = '' OR category = $8)
		  AND ($9::text = '' OR priority = $9)`)

	newestOfClaim = page.Narrowed(table, `guild_id = $1
		  AND claimed_by_id = $4
		  AND ($5::text = '' OR status = $5)
		  AND ($6::text = '' OR category = $6)
		  AND ($7::text = '' OR priority = $7)`)

	newestOfCategory = page.Narrowed(table, `guild_id = $1
		  AND category = $4
		  AND ($5::text = '' OR status = $5)
		  AND ($6::text = '' OR priority = $6)
		  AND (NOT $7 OR claimed_by_id IS NULL)`)

	newestOfPriority = page.Narrowed(table, `guild_id = $1
		  AND priority = $4
		  AND ($5::text = '' OR status = $5)
		  AND (NOT $6 OR claimed_by_id IS NULL)`)

	newestUnclaimed = page.Newest(table, `guild_id = $1
		  AND claimed_by_id IS NULL`)

	newestUnclaimedOfStatus = page.Newest(table, `guild_id = $1
		  AND claimed_by_id IS NULL
		  AND status = $4`)

	// Inside a CASE the filters lead Postgres neither to another index nor to the estimate that
	// sorting the few remaining rows is cheaper.
	changed = page.Changed(table, `guild_id = $1
		  AND updated_at >= $4
		  AND CASE
		        WHEN ($5::text = '' OR status = $5)
		         AND ($6::text = '' OR opener_id = $6)
		         AND ($7::text = '' OR claimed_by_id = $7)
		         AND (NOT $8 OR claimed_by_id IS NULL)
		         AND ($9::text = '' OR channel_id = $9)
		         AND ($10::text = '' OR category = $10)
		         AND ($11::text = '' OR priority = $11)
		         AND ($12::bigint = 0 OR number = $12)
		        THEN true
		      END`)

	foundNewest  = page.Found(table, ofFound, "created_at DESC, id DESC")
	foundActive  = page.Found(table, ofFound, "last_message_at DESC NULLS LAST, id DESC")
	foundChanged = page.Found(table, ofFound, "updated_at, id")
)

// narrowed are the filters of a list whose rows are found by something else first.
const narrowed = `
			  AND ($6::text = '' OR status = $6)
			  AND ($7::text = '' OR opener_id = $7)
			  AND ($8::text = '' OR claimed_by_id = $8)
			  AND (NOT $9 OR claimed_by_id IS NULL)
			  AND ($10::text = '' OR channel_id = $10)
			  AND ($11::text = '' OR category = $11)
			  AND ($12::text = '' OR priority = $12)`

// ofFound narrows tickets that are found by their metadata.
const ofFound = narrowed + `
			   AND ($13::bigint = 0 OR number = $13)
			   AND ($14::timestamptz IS NULL OR updated_at >= $14)`

// A list by the last message filters within the index and then reads the rows page by page.
var (
	active = `
		SELECT ` + columns + `
		FROM tickets
		WHERE guild_id = $1
		  AND id = ANY (ARRAY (
		      SELECT id
		      FROM tickets
		      WHERE guild_id = $1
		      ORDER BY last_message_at DESC NULLS LAST, id DESC
		      LIMIT $2 OFFSET $3))
		ORDER BY last_message_at DESC NULLS LAST, id DESC`

	activeOfStatus = `
		SELECT ` + columns + `
		FROM tickets
		WHERE guild_id = $1
		  AND id = ANY (ARRAY (
		      SELECT id
		      FROM tickets
		      WHERE guild_id = $1
		        AND status = $4
		        AND CASE WHEN (NOT $5 OR claimed_by_id IS NULL) AND ($6::text = '' OR category = $6) AND ($7::text = '' OR priority = $7) THEN true END
		      ORDER BY last_message_at DESC NULLS LAST, id DESC
		      LIMIT $2 OFFSET $3))
		ORDER BY last_message_at DESC NULLS LAST, id DESC`

	activeNarrowed = `
		SELECT ` + columns + `
		FROM tickets
		WHERE guild_id = $1
		  AND id = ANY (ARRAY (
		      SELECT id
		      FROM tickets
		      WHERE guild_id = $1
		        AND CASE WHEN (NOT $4 OR claimed_by_id IS NULL) AND ($5::text = '' OR category = $5) AND ($6::text = '' OR priority = $6) THEN true END
		      ORDER BY last_message_at DESC NULLS LAST, id DESC
		      LIMIT $2 OFFSET $3))
		ORDER BY last_message_at DESC NULLS LAST, id DESC`
)

// few returns the statement for a list with so few rows that they are sorted: by the last message
// if $4 is true, otherwise newest first.
func few(condition string) string {
	return `
		WITH few AS MATERIALIZED (
			SELECT ` + columns + `
			FROM tickets
			WHERE guild_id = $1
			  AND ` + condition + narrowed + `)
		SELECT ` + columns + `
		FROM few
		ORDER BY CASE WHEN $4 THEN last_message_at ELSE created_at END DESC NULLS LAST, id DESC
		LIMIT $2 OFFSET $3`
}

var (
	withNumber  = few(`number = $5`)
	ofChannel   = few(`channel_id = $5`)
	sortOpener  = few(`opener_id = $5`)
	sortClaimed = few(`claimed_by_id = $5`)
)

// list returns a page of the guild's tickets that match f, and one row more if there is one.
func list(ctx context.Context, q db.Querier, guild string, f filter, p page.P) ([]row, error) {
	sql, args := query(guild, f, p)
	rows, err := db.Select[row](ctx, q, sql, args...)
	return rows, fault.Wrap(err, "list tickets of guild", guild)
}

// query returns the statement that lists the guild's tickets that match f, and its arguments.
func query(guild string, f filter, p page.P) (string, []any) {
	args := []any{guild, p.Limit(), p.Offset()}
	rest := []any{f.Status, f.OpenerID, f.ClaimedByID, f.Unclaimed, f.ChannelID, f.Category, f.Priority}
	sorted := func(statement string, by any) (string, []any) {
		return statement, append(append(args, f.Activity, by), rest...)
	}
	switch {
	case f.Metadata != nil:
		return f.found(), append(append(append(args, f.Metadata.Name, f.Metadata.Value), rest...), f.Number, f.Changed)
	case f.Changed != nil:
		return changed.For(p), append(append(append(args, *f.Changed), rest...), f.Number)
	case f.Number != 0:
		return sorted(withNumber, f.Number)
	case f.ChannelID != "":
		return sorted(ofChannel, f.ChannelID)
	case f.Activity:
		return f.byActivity(args, sorted)
	case f.OpenerID != "":
		return newestOfOpener.For(p), append(args, f.OpenerID, f.Status, f.ClaimedByID, f.Unclaimed, f.Category, f.Priority)
	case f.ClaimedByID != "":
		return newestOfClaim.For(p), append(args, f.ClaimedByID, f.Status, f.Category, f.Priority)
	case f.Category != "":
		return newestOfCategory.For(p), append(args, f.Category, f.Status, f.Priority, f.Unclaimed)
	case f.Priority != "":
		return newestOfPriority.For(p), append(args, f.Priority, f.Status, f.Unclaimed)
	case f.Unclaimed && f.Status != "":
		return newestUnclaimedOfStatus.For(p), append(args, f.Status)
	case f.Unclaimed:
		return newestUnclaimed.For(p), args
	case f.Status != "":
		return newestOfStatus.For(p), append(args, f.Status)
	}
	return newest.For(p), args
}

// found returns the statement of a list by metadata in the order that is asked for.
func (f filter) found() string {
	switch {
	case f.Changed != nil:
		return foundChanged
	case f.Activity:
		return foundActive
	}
	return foundNewest
}

func (f filter) byActivity(args []any, sorted func(string, any) (string, []any)) (string, []any) {
	switch {
	case f.OpenerID != "":
		return sorted(sortOpener, f.OpenerID)
	case f.ClaimedByID != "":
		return sorted(sortClaimed, f.ClaimedByID)
	case f.Status != "":
		return activeOfStatus, append(args, f.Status, f.Unclaimed, f.Category, f.Priority)
	case f.Unclaimed, f.Category != "", f.Priority != "":
		return activeNarrowed, append(args, f.Unclaimed, f.Category, f.Priority)
	}
	return active, args
}

// get returns a ticket, or a NotFound fault.
func get(ctx context.Context, q db.Querier, guild, id string) (row, error) {
	t, err := db.Get[row](ctx, q, byID, guild, id)
	return t, found(err, guild, id)
}

// lock returns a ticket and locks its row until tx ends, or returns a NotFound fault.
func lock(ctx context.Context, tx *db.Tx, guild, id string) (row, error) {
	t, err := db.Get[row](ctx, tx, byID+`
	FOR NO KEY UPDATE`, guild, id)
	return t, found(err, guild, id)
}

func found(err error, guild, id string) error {
	if db.Missing(err) {
		return fault.New(fault.NotFound, "not_found", "No such ticket.")
	}
	return fault.Wrap(err, "read ticket", id, "of guild", guild)
}

// policyOf returns the guild's settings for closing tickets.
func policyOf(ctx context.Context, q db.Querier, guild string) (policy, error) {
	p, err := db.Get[policy](ctx, q, `
		SELECT require_close_reason, close_action
		FROM guild_settings
		WHERE guild_id = $1`, guild)
	if db.Missing(err) {
		return policy{Action: "archive"}, nil
	}
	return p, fault.Wrap(err, "read the ticket settings of guild", guild)
}

// A transcript in reading order, and from its end.
var (
	reading = `
		SELECT ` + entryColumns + `
		FROM ticket_messages
		WHERE guild_id = $1
		  AND ticket_id = $2
		  AND created_at >= $3
		ORDER BY created_at, id
		LIMIT $4 OFFSET $5`

	backwards = `
		SELECT ` + entryColumns + `
		FROM ticket_messages
		WHERE guild_id = $1
		  AND ticket_id = $2
		  AND created_at >= $3
		ORDER BY created_at DESC, id DESC
		LIMIT $4 OFFSET $5`
)

// listEntries returns a page of a ticket's entries, and one row more if there is one.
func listEntries(ctx context.Context, q db.Querier, guild, ticket, order string, since time.Time, p page.P) ([]entry, error) {
	entries, err := db.Select[entry](ctx, q, order, guild, ticket, since, p.Limit(), p.Offset())
	return entries, fault.Wrap(err, "list the transcript of ticket", ticket, "of guild", guild)
}

// written returns the transcript entry of a message: the message's own entry, or the one that a
// record of the bot has created before; nil if there is none.
func written(ctx context.Context, tx *db.Tx, in chat.Intent) (*entry, error) {
	e, err := db.Get[entry](ctx, tx, `
		SELECT `+entryColumns+`
		FROM ticket_messages
		WHERE guild_id = $1
		  AND id = $2`, in.GuildID, in.ID)
	if err == nil {
		return &e, nil
	}
	if !db.Missing(err) {
		return nil, fault.Wrap(err, "read entry", in.ID, "of guild", in.GuildID)
	}
	message, err := chat.PostedAs(ctx, tx, in)
	if err != nil || message == "" {
		return nil, err
	}
	return mirrored(ctx, tx, row{GuildID: in.GuildID, ID: in.SubjectID}, message)
}

// writeNote adds an internal note to the transcript.
func writeNote(ctx context.Context, tx *db.Tx, t row, author *string, content string) (entry, error) {
	t, err := update(ctx, tx, t, ``)
	if err != nil {
		return entry{}, err
	}
	return write(ctx, tx, t, entry{Kind: kindNote, AuthorID: author, AuthorType: byStaff, Content: content})
}

// write adds an entry to the transcript of a ticket, with the instant of the change that the entry
// describes.
func write(ctx context.Context, tx *db.Tx, t row, e entry) (entry, error) {
	e.GuildID, e.TicketID, e.CreatedAt = t.GuildID, t.ID, t.UpdatedAt
	if e.ID == "" {
		e.ID = db.NewID()
	}
	note := e.Kind == kindNote
	e.Internal = &note
	stored, err := db.Get[entry](ctx, tx, insertingEntry, append([]any{e.GuildID, e.Posted}, insertedEntry(e)...)...)
	return stored, fault.Wrap(err, "write to the transcript of ticket", e.TicketID, "of guild", e.GuildID)
}

var newEntry, insertedEntry = entryMembers.FromRow(3, nil)

var insertingEntry = `
		INSERT INTO ticket_messages AS stored (` + entryMembers.Moved() + `, posted)
		SELECT ` + newEntry + `, $2
		FROM guilds home
		WHERE home.id = $1
		RETURNING ` + entryColumns

// update changes the ticket's row, which must be locked. Its instant is later than that of the
// previous change, and the transcript entry of the change has the same, so both are in the order of
// the changes. set is constant SQL whose parameters begin at $3.
func update(ctx context.Context, tx *db.Tx, t row, set string, args ...any) (row, error) {
	changed, err := db.Get[row](ctx, tx, `
		WITH instant AS (
			SELECT `+db.Next("clock_timestamp()", "updated_at")+` AS at
			FROM tickets
			WHERE guild_id = $1
			  AND id = $2)
		UPDATE tickets
		SET updated_at = instant.at`+set+`
		FROM instant
		WHERE guild_id = $1
		  AND id = $2
		RETURNING `+columns, append([]any{t.GuildID, t.ID}, args...)...)
	if db.Violates(err, openChannel) {
		return row{}, db.Again // another ticket has taken the channel: the operation is retried
	}
	return changed, fault.Wrap(err, "change ticket", t.ID, "of guild", t.GuildID)
}

// writeMessage adds a posted message to the transcript and records its event; the platform's
// message id may be empty. If a record of the bot came first, its entry stays and gets the author
// if it has none.
func writeMessage(ctx context.Context, tx *db.Tx, t row, in chat.Intent, message string) (entry, error) {
	origin := event.From(auth.Stored(in.GuildID, in.TokenID))
	if message != "" {
		there, err := mirrored(ctx, tx, t, message)
		if err != nil {
			return entry{}, err
		}
		if there != nil {
			return gain(ctx, tx, t, *there, in.AuthorID, origin)
		}
	}
	t, err := update(ctx, tx, t, `, message_count = message_count + 1, last_message_at = instant.at`)
	if err != nil {
		return entry{}, err
	}
	e := entry{ID: in.ID, Kind: kindMessage, AuthorID: in.AuthorID, AuthorType: byStaff, Content: in.Content, Posted: true}
	if message != "" {
		e.ChannelMessageID = &message
	}
	if e, err = write(ctx, tx, t, e); err != nil {
		return entry{}, err
	}
	return e, event.Record(ctx, tx, origin.On(e.CreatedAt.Time), event.TicketMessage, showEntry(e))
}

// gain turns an entry that a record has created into the entry of a message that the API has
// posted, so that it keeps its kind and author, sets its author if there is none, and records the
// event.
func gain(ctx context.Context, tx *db.Tx, t row, e entry, author *string, origin event.Origin) (entry, error) {
	gains := e.AuthorID == nil && author != nil
	if gains {
		e.AuthorID = author
	}
	if _, err := db.Exec(ctx, tx, `
		UPDATE ticket_messages SET author_id = $3, posted = true
		WHERE guild_id = $1
		  AND id = $2`, e.GuildID, e.ID, e.AuthorID); err != nil {
		return entry{}, fault.Wrap(err, "give entry", e.ID, "of guild", e.GuildID, "its author")
	}
	if !gains {
		return e, nil
	}
	t, err := update(ctx, tx, t, ``)
	if err != nil {
		return entry{}, err
	}
	return e, event.Record(ctx, tx, origin.On(t.UpdatedAt.Time), event.TicketMessageUpdated, showEntryChange(e, []string{"author_id"}))
}

// channelDue makes the ticket's channel due.
const channelDue = `, channel_tries = 0,
		    channel_due_at = CASE WHEN channel_id IS NOT NULL THEN instant.at END,
		    channel_try_at = CASE WHEN channel_id IS NOT NULL THEN instant.at END`

// openChannel is the index that allows one open ticket in a channel.
const openChannel = "tickets_open_channel"

// channelFree returns a Refused fault if the ticket's channel is that of another open ticket. Such a
// ticket is not reopened, since closing either would archive or delete the channel of both; and the
// end of a closed one leaves the channel alone.
func channelFree(ctx context.Context, tx *db.Tx, t row) error {
	if t.ChannelID == nil {
		return nil
	}
	number, err := db.Get[int64](ctx, tx, `
		SELECT number
		FROM tickets
		WHERE guild_id = $1
		  AND channel_id = $2
		  AND status = 'open'
		  AND id <> $3`, t.GuildID, *t.ChannelID, t.ID)
	if err == nil {
		return channelInUse(*t.ChannelID, number)
	}
	if db.Missing(err) {
		return nil
	}
	return fault.Wrap(err, "look for the open ticket of channel", *t.ChannelID, "of guild", t.GuildID)
}

// edit stores subject, category, priority and metadata of a ticket, which must be locked.
func edit(ctx context.Context, tx *db.Tx, t row) (row, error) {
	return update(ctx, tx, t, `, subject = $3, category = $4, priority = $5, metadata = $6`, t.Subject, t.Category, t.Priority, t.Metadata)
}

// closeTicket closes the ticket.
func closeTicket(ctx context.Context, tx *db.Tx, t row, by, reason *string) (row, error) {
	return update(ctx, tx, t, `,
		    status = 'closed', close_reason = $3, closed_by_id = $4, closed_at = instant.at`+channelDue, reason, by)
}

// reopenTicket opens a closed ticket again. The claim stays.
func reopenTicket(ctx context.Context, tx *db.Tx, t row) (row, error) {
	return update(ctx, tx, t, `,
		    status = 'open', close_reason = NULL, closed_by_id = NULL, closed_at = NULL`+channelDue)
}

// claim assigns the ticket to user, or to nobody.
func claim(ctx context.Context, tx *db.Tx, t row, user *string) (row, error) {
	return update(ctx, tx, t, `, claimed_by_id = $3`, user)
}
