package giveaways

import (
	"context"
	"strconv"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/metadata"
	"guildhall/internal/base/page"
)

// The statuses of a giveaway.
const (
	scheduled = "scheduled"
	active    = "active"
	paused    = "paused"
	drawing   = "drawing"
	ended     = "ended"
	cancelled = "cancelled"
)

// The states of a giveaway's entries.
const (
	open      = "open"      // entries are added and removed
	gathering = "gathering" // reactions are being read, and no other entry is added
	frozen    = "frozen"    // entries never change again
)

// fromAPI is the source of a giveaway that the API has created: Guildhall posts its message, and
// members enter by reacting to it.
const fromAPI = "api"

// There is a statement for each index that serves a list, instead of one statement with optional
// conditions: the plan of a prepared statement must hold for every value.
var (
	byID = `
		SELECT ` + columns + `
		FROM giveaways
		WHERE guild_id = $1
		  AND id = $2`

	newest = `
		SELECT ` + columns + `
		FROM giveaways
		WHERE guild_id = $1
		ORDER BY created_at DESC, id DESC
		LIMIT $2 OFFSET $3`

	newestOfStatus = `
		SELECT ` + columns + `
		FROM giveaways
		WHERE guild_id = $1
		  AND status = $4
		ORDER BY created_at DESC, id DESC
		LIMIT $2 OFFSET $3`

	changed = `
		SELECT ` + columns + `
		FROM giveaways
		WHERE guild_id = $1
		  AND updated_at >= $4
		ORDER BY updated_at, id
		LIMIT $2 OFFSET $3`

	changedOfStatus = `
		SELECT ` + columns + `
		FROM giveaways
		WHERE guild_id = $1
		  AND status = $4
		  AND updated_at >= $5
		ORDER BY updated_at, id
		LIMIT $2 OFFSET $3`

	foundNewest  = page.Found(table, ofFound, "created_at DESC, id DESC")
	foundChanged = page.Found(table, ofFound, "updated_at, id")

	oldestEntries = `
		SELECT user_id, entries, entered_at
		FROM giveaway_entries
		WHERE guild_id = $1
		  AND giveaway_id = $2
		ORDER BY entered_at, length(user_id), user_id
		LIMIT $3 OFFSET $4`

	entryOfUser = `
		SELECT user_id, entries, entered_at
		FROM giveaway_entries
		WHERE guild_id = $1
		  AND giveaway_id = $2
		  AND user_id = $5
		LIMIT $3 OFFSET $4`

	draws = `
		SELECT ` + recordColumns + `
		FROM giveaway_draws
		WHERE guild_id = $1
		  AND giveaway_id = $2
		ORDER BY round
		LIMIT $3 OFFSET $4`
)

var table = page.Table{Name: "giveaways", Columns: columns}

// ofFound narrows giveaways that are found by their metadata.
const ofFound = `
			   AND ($6::text = '' OR status = $6)
			   AND ($7::timestamptz IS NULL OR updated_at >= $7)`

// list returns a page of the guild's giveaways, newest first or by their last change since an
// instant, and one row more if there is one. An empty status selects all, and
// so does a nil m.
func list(ctx context.Context, q db.Querier, guild, status string, since *time.Time, m *metadata.Lookup, p page.P) ([]row, error) {
	query, args := newest, []any{guild, p.Limit(), p.Offset()}
	switch {
	case m != nil && since != nil:
		query, args = foundChanged, append(args, m.Name, m.Value, status, since)
	case m != nil:
		query, args = foundNewest, append(args, m.Name, m.Value, status, since)
	case since != nil && status != "":
		query, args = changedOfStatus, append(args, status, *since)
	case since != nil:
		query, args = changed, append(args, *since)
	case status != "":
		query, args = newestOfStatus, append(args, status)
	}
	rows, err := db.Select[row](ctx, q, query, args...)
	return rows, fault.Wrap(err, "list giveaways of guild", guild)
}

// entries returns a page of the giveaway's entrants in the order in which they entered, and one row
// more if there is one; with a user, only that entrant.
func entries(ctx context.Context, q db.Querier, g row, user *string, p page.P) ([]entry, error) {
	query, args := oldestEntries, []any{g.GuildID, g.ID, p.Limit(), p.Offset()}
	if user != nil {
		query, args = entryOfUser, append(args, *user)
	} else if int64(p.Offset()) >= g.EntrantCount {
		return nil, nil // the page is after the last entry; Postgres would read all entries to find that out
	}
	rows, err := db.Select[entry](ctx, q, query, args...)
	return rows, fault.Wrap(err, "list entries of giveaway", g.ID, "in guild", g.GuildID)
}

// records returns a page of the giveaway's draws by round, and one row more if there is one.
func records(ctx context.Context, q db.Querier, g row, p page.P) ([]record, error) {
	rows, err := db.Select[record](ctx, q, draws, g.GuildID, g.ID, p.Limit(), p.Offset())
	return rows, fault.Wrap(err, "list draws of giveaway", g.ID, "in guild", g.GuildID)
}

// get returns a giveaway, or a NotFound fault.
func get(ctx context.Context, q db.Querier, guild, id string) (row, error) {
	g, err := db.Get[row](ctx, q, byID, guild, id)
	return g, found(err, guild, id)
}

// lock returns a giveaway and locks its row until tx ends, which also keeps others from adding
// entries. It returns a NotFound fault if the guild has no such giveaway.
func lock(ctx context.Context, tx *db.Tx, guild, id string) (row, error) {
	g, err := db.Get[row](ctx, tx, byID+`
		FOR NO KEY UPDATE`, guild, id)
	return g, found(err, guild, id)
}

// lockFree is lock for work that can wait: it also returns NotFound if the row is locked.
func lockFree(ctx context.Context, tx *db.Tx, guild, id string) (row, error) {
	g, err := db.Get[row](ctx, tx, byID+`
		FOR NO KEY UPDATE SKIP LOCKED`, guild, id)
	return g, found(err, guild, id)
}

func found(err error, guild, id string) error {
	if db.Missing(err) {
		return fault.New(fault.NotFound, "not_found", "No such giveaway.")
	}
	return fault.Wrap(err, "read giveaway", id, "of guild", guild)
}

// edit stores prize, description, winner count, host, metadata and end of a giveaway that tx
// has locked. If the end of a paused giveaway changes, the pause moves it from now on.
func edit(ctx context.Context, tx *db.Tx, g row) (row, error) {
	edited, err := db.Get[row](ctx, tx, `
		WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at)
		UPDATE giveaways
		SET prize = $3, description = $4, winner_count = $5, host_id = $6, metadata = $7, ends_at = $8,
		    paused_at = CASE WHEN status = 'paused' AND ends_at <> $8 THEN greatest(instant.at, paused_at) ELSE paused_at END, `+toEditPost+`,
		    updated_at = `+next+`
		FROM instant
		WHERE guild_id = $1
		  AND id = $2
		RETURNING `+columns, g.GuildID, g.ID, g.Prize, g.Description, g.WinnerCount, g.HostID, g.Metadata, g.EndsAt)
	return edited, fault.Wrap(err, "change giveaway", g.ID, "of guild", g.GuildID)
}

// insert stores a new giveaway.
func insert(ctx context.Context, tx *db.Tx, g row) (row, error) {
	stored, err := db.Get[row](ctx, tx, inserting, append([]any{g.GuildID, g.PostID}, inserted(g)...)...)
	return stored, fault.Wrap(err, "insert giveaway in guild", g.GuildID)
}

var newRow, inserted = members.FromRow(3, map[string]string{"created_at": "now()", "updated_at": "now()"})

var inserting = `
		INSERT INTO giveaways AS stored (` + members.Moved() + `, post_id)
		SELECT ` + newRow + `, $2
		FROM guilds home
		WHERE home.id = $1
		RETURNING ` + columns

// next is the instant of a change: now, but always later than the previous change, also in the
// milliseconds that callers see.
var (
	next = db.Next("instant.at", "updated_at")
	// extended is when a resumed giveaway ends. The clock may have been read before the pause, if
	// the statement has waited for the row.
	extended = db.Bounded("(ends_at AT TIME ZONE 'UTC' + (greatest(instant.at, paused_at) - coalesce(paused_at, instant.at))) AT TIME ZONE 'UTC'")
)

// toEditPost makes an edit of the message due, at the earliest ten seconds after the previous edit. An
// edit that is due or under way keeps its instant: edited looks whether it has shown everything.
const (
	toEditPost = `edit_at = CASE WHEN source = 'api' AND message_id IS NOT NULL THEN ` + nextEdit + ` END`
	nextEdit   = `coalesce(edit_at, greatest(instant.at, (edited_at AT TIME ZONE 'UTC' + interval '10 seconds') AT TIME ZONE 'UTC'))`
)

// What happens when drawing begins. For a giveaway that the bot runs, the bot has a while to send
// the entries that it knows. For a giveaway of the API the reactions are read, and its message says
// that it has ended. Any other is drawn from the stored entries.
const (
	toPot  = `CASE WHEN source = 'api' THEN 'gathering' WHEN bot_run THEN 'open' ELSE 'frozen' END`
	closes = `closes AS MATERIALIZED (SELECT at + interval '60 seconds' AS at FROM instant)`

	drawingSet = `status = 'drawing', pot = ` + toPot + `, drawing_at = instant.at, react_at = NULL, failures = 0,
		    redraw_at = CASE WHEN bot_run THEN closes.at ELSE instant.at END, edit_failures = 0,
		    ` + toEditPost + `, updated_at = `
)

// botWindow is how long after drawing has begun the bot may send entries of a giveaway that it
// runs. The statement `closes` adds the same time.
const botWindow = time.Minute

// The statements with which a caller changes a giveaway's status. They change no row if the
// giveaway's status does not allow the change.
var (
	toDrawing = `
		WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at), ` + closes + `
		UPDATE giveaways
		SET ` + drawingSet + next + `, ended_by_token_id = $3, paused_at = NULL
		FROM instant, closes
		WHERE guild_id = $1
		  AND id = $2
		  AND status IN ('scheduled', 'active', 'paused')
		RETURNING ` + columns

	toPaused = `
		WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at)
		UPDATE giveaways
		SET status = 'paused', paused_at = instant.at, ` + toEditPost + `, updated_at = ` + next + `
		FROM instant
		WHERE guild_id = $1
		  AND id = $2
		  AND status = 'active'
		RETURNING ` + columns

	toActive = `
		WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at)
		UPDATE giveaways
		SET status = 'active', ends_at = ` + extended + `,
		    paused_at = NULL, ` + toEditPost + `, updated_at = ` + next + `
		FROM instant
		WHERE guild_id = $1
		  AND id = $2
		  AND status = 'paused'
		RETURNING ` + columns

	toCancelled = `
		WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at)
		UPDATE giveaways
		SET status = 'cancelled', pot = 'frozen', paused_at = NULL, react_at = NULL, failures = 0,
		    edit_failures = 0, ` + toEditPost + `, ended_at = ` + next + `, updated_at = ` + next + `
		FROM instant
		WHERE guild_id = $1
		  AND id = $2
		  AND status IN ('scheduled', 'active', 'paused')
		RETURNING ` + columns
)

// move runs one of the statements above with further arguments. It returns a NotFound fault if the
// guild has no such giveaway, and refused, with the present status added to its message, if the
// status does not allow the change.
func move(ctx context.Context, tx *db.Tx, statement, guild, id string, refused *fault.Error, further ...any) (row, error) {
	g, err := db.Get[row](ctx, tx, statement, append([]any{guild, id}, further...)...)
	if db.Missing(err) {
		now, err := get(ctx, tx, guild, id)
		if err != nil {
			return row{}, err
		}
		return row{}, refusedIn(now, refused)
	}
	return g, fault.Wrap(err, "move giveaway", id, "of guild", guild)
}

// refusedIn puts the giveaway's state before the words of refused.
func refusedIn(g row, refused *fault.Error) error {
	return refused.With("The giveaway is %s; %s", g.Status, refused.Message)
}

// pot returns all entrants of the giveaway, sorted by user id as text.
func pot(ctx context.Context, q db.Querier, g row) ([]entrant, error) {
	all, err := db.Select[entrant](ctx, q, `
		SELECT user_id, entries
		FROM giveaway_entries
		WHERE guild_id = $1
		  AND giveaway_id = $2
		ORDER BY user_id`, g.GuildID, g.ID)
	return all, fault.Wrap(err, "read the entries of giveaway", g.ID, "in guild", g.GuildID)
}

// pastWinners returns everyone who ever won the giveaway: its winners, and everyone who was
// replaced. A first round that the bot drew has no record, so those drawn alone would not do.
func pastWinners(ctx context.Context, q db.Querier, g row) ([]string, error) {
	replaced, err := db.Select[string](ctx, q, `
		SELECT DISTINCT unnest(replaced)
		FROM giveaway_draws
		WHERE guild_id = $1
		  AND giveaway_id = $2`, g.GuildID, g.ID)
	return append(replaced, g.Winners...), fault.Wrap(err, "read who was replaced in giveaway", g.ID, "in guild", g.GuildID)
}

// storeDraw stores the record of a draw and the resulting winners of a giveaway that tx has locked.
// Both rows get the same instant.
func storeDraw(ctx context.Context, tx *db.Tx, g row, r record, winners []string) (row, error) {
	ended, err := db.Get[row](ctx, tx, `
		WITH instant AS MATERIALIZED (
			SELECT clock_timestamp() AS at
		), moved AS (
			UPDATE giveaways g
			SET status = 'ended', pot = 'frozen', winners = $8, rounds = $3, failures = 0, edit_failures = 0,
			    `+toEditPost+`,
			    ended_at = coalesce(ended_at, `+next+`), updated_at = `+next+`
			FROM instant
			WHERE guild_id = $1
			  AND id = $2
			RETURNING `+columns+`
		), kept AS (
			INSERT INTO giveaway_draws (guild_id, giveaway_id, round, seed, entries_hash, excluded, drawn, replaced,
			                            token_id, reason, entry_count, drawn_at)
			SELECT home.id, moved.id, $3, $4, $5, $6, $7, $9, $10, $11, $12, moved.updated_at
			FROM moved JOIN guilds home ON home.id = $1
		)
		SELECT `+columns+`
		FROM moved`,
		g.GuildID, g.ID, r.Round, r.Seed, r.EntriesHash, r.Excluded, r.Drawn, db.Array(winners), r.Replaced,
		r.TokenID, r.Reason, r.EntryCount)
	return ended, fault.Wrap(err, "record draw", strconv.Itoa(r.Round), "of giveaway", g.ID, "in guild", g.GuildID)
}
