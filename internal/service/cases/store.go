package cases

import (
	"context"
	"strconv"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/metadata"
	"guildhall/internal/base/page"
)

const (
	active  = "active"
	deleted = "deleted"
)

// filter selects cases of a list. The zero value selects all.
type filter struct {
	UserID      string
	ModeratorID string
	Type        string
	Status      string
	Number      int64
	Since       time.Time  // created at this time or later
	Until       *time.Time // created before this time
	// Changed, if not nil, selects cases that changed at this time or later and orders them by
	// their last change.
	Changed  *time.Time
	Metadata *metadata.Lookup
}

var selectCases = `
		SELECT ` + columns + `
		FROM cases`

const inGuild = `guild_id = $1
		  AND created_at >= $4
		  AND created_at < coalesce($5, 'infinity'::timestamptz)`

// There is a statement for each index that serves the list, instead of one statement with optional
// conditions: the plan of a prepared statement must hold for every value, and an optional condition
// cannot use an index.
var (
	// Numbers are distinct and start at 1, so the highest number bounds the number of cases.
	table = page.Table{Name: "cases", Columns: columns, Reach: "(SELECT max(number) FROM cases WHERE guild_id = $1)"}

	newest = page.Newest(table, inGuild)

	newestOfType = page.Newest(table, inGuild+`
		  AND type = $6`)

	newestOfStatus = page.Newest(table, inGuild+`
		  AND status = $6`)

	newestOfTypeAndStatus = page.Newest(table, inGuild+`
		  AND type = $6
		  AND status = $7`)

	newestOfUser = page.Narrowed(table, inGuild+`
		  AND user_id = $6
		  AND ($7::text = '' OR type = $7)
		  AND ($8::text = '' OR status = $8)
		  AND ($9::text = '' OR moderator_id = $9)`)

	newestOfModerator = page.Narrowed(table, inGuild+`
		  AND moderator_id = $6
		  AND ($7::text = '' OR type = $7)
		  AND ($8::text = '' OR status = $8)`)

	// At most one case has the number.
	numbered = selectCases + `
		WHERE ` + inGuild + `
		  AND number = $6
		  AND ($7::text = '' OR type = $7)
		  AND ($8::text = '' OR status = $8)
		  AND ($9::text = '' OR moderator_id = $9)
		  AND ($10::text = '' OR user_id = $10)
		LIMIT $2 OFFSET $3`

	// Inside a CASE the filters lead Postgres neither to another index nor to the estimate that
	// sorting the few remaining rows is cheaper.
	changed = page.Changed(table, `guild_id = $1
		  AND updated_at >= $6
		  AND CASE
		        WHEN created_at >= $4
		         AND created_at < coalesce($5, 'infinity'::timestamptz)
		         AND ($7::text = '' OR type = $7)
		         AND ($8::text = '' OR status = $8)
		         AND ($9::text = '' OR moderator_id = $9)
		         AND ($10::text = '' OR user_id = $10)
		         AND ($11::bigint = 0 OR number = $11)
		        THEN true
		      END`)

	foundNewest  = page.Found(table, ofFound, "created_at DESC, id DESC")
	foundChanged = page.Found(table, ofFound, "updated_at, id")
)

// ofFound narrows cases that are found by their metadata.
const ofFound = `
			   AND created_at >= $6
			   AND created_at < coalesce($7, 'infinity'::timestamptz)
			   AND ($8::text = '' OR type = $8)
			   AND ($9::text = '' OR status = $9)
			   AND ($10::text = '' OR moderator_id = $10)
			   AND ($11::text = '' OR user_id = $11)
			   AND ($12::bigint = 0 OR number = $12)
			   AND ($13::timestamptz IS NULL OR updated_at >= $13)`

var byID = selectCases + `
		WHERE guild_id = $1
		  AND id = $2`

// due selects due cases of all guilds, without locks.
const due = `
		SELECT guild_id, id
		FROM cases
		WHERE status = 'active'
		  AND expires_at <= now()
		  AND NOT EXISTS (SELECT FROM guilds g WHERE g.id = guild_id AND g.removed_at IS NOT NULL)
		ORDER BY expires_at
		LIMIT $1`

// list returns a page of the guild's cases that match f, and one row more if there is one.
func list(ctx context.Context, q db.Querier, guild string, f filter, p page.P) ([]row, error) {
	sql, args := query(guild, f, p)
	rows, err := db.Select[row](ctx, q, sql, args...)
	return rows, fault.Wrap(err, "list cases of guild", guild)
}

// query returns the statement that lists the guild's cases that match f, and its arguments.
func query(guild string, f filter, p page.P) (string, []any) {
	if m := f.Metadata; m != nil {
		statement := foundNewest
		if f.Changed != nil {
			statement = foundChanged
		}
		return statement, []any{
			guild, p.Limit(), p.Offset(), m.Name, m.Value, f.Since, f.Until, f.Type, f.Status, f.ModeratorID, f.UserID, f.Number, f.Changed,
		}
	}
	args := []any{guild, p.Limit(), p.Offset(), f.Since, f.Until}
	switch {
	case f.Changed != nil:
		return changed.For(p), append(args, *f.Changed, f.Type, f.Status, f.ModeratorID, f.UserID, f.Number)
	case f.Number != 0:
		return numbered, append(args, f.Number, f.Type, f.Status, f.ModeratorID, f.UserID)
	case f.UserID != "":
		return newestOfUser.For(p), append(args, f.UserID, f.Type, f.Status, f.ModeratorID)
	case f.ModeratorID != "":
		return newestOfModerator.For(p), append(args, f.ModeratorID, f.Type, f.Status)
	case f.Type != "" && f.Status != "":
		return newestOfTypeAndStatus.For(p), append(args, f.Type, f.Status)
	case f.Type != "":
		return newestOfType.For(p), append(args, f.Type)
	case f.Status != "":
		return newestOfStatus.For(p), append(args, f.Status)
	}
	return newest.For(p), args
}

// get returns a case, or a NotFound fault.
func get(ctx context.Context, q db.Querier, guild, id string) (row, error) {
	c, err := db.Get[row](ctx, q, byID, guild, id)
	return c, found(err, guild, id)
}

// lock returns a case and locks its row until tx ends, or returns a NotFound fault.
func lock(ctx context.Context, tx *db.Tx, guild, id string) (row, error) {
	c, err := db.Get[row](ctx, tx, byID+`
		FOR NO KEY UPDATE`, guild, id)
	return c, found(err, guild, id)
}

// found returns NotFound if no row was read. People know a case by its number, so the message for
// an id of digits names the query that finds a case by its number.
func found(err error, guild, id string) error {
	if !db.Missing(err) {
		return fault.Wrap(err, "read case", id, "of guild", guild)
	}
	if number, e := strconv.ParseInt(id, 10, 54); e == nil && number > 0 {
		return fault.New(fault.NotFound, "not_found", "No case has this id. GET /cases?number=%d finds the case with this number.", number)
	}
	return fault.New(fault.NotFound, "not_found", "No such case.")
}

// insert gives the case the guild's next number and stores the case and its creation. The
// instant of a case is later than that of the previous number, so that both have one order.
func insert(ctx context.Context, tx *db.Tx, by auth.By, c row) (row, error) {
	stored, err := db.Get[row](ctx, tx, inserting, append([]any{c.GuildID, by.Origin()}, inserted(c)...)...)
	return stored, fault.Wrap(err, "insert case in guild", c.GuildID)
}

var newRow, inserted = members.FromRow(3, map[string]string{
	"guild_id": "$1 /*: home.id */", "number": "next.last_case", "created_at": "next.last_case_at", "updated_at": "next.last_case_at",
})

var inserting = `
		WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at), next AS (
			UPDATE guilds SET last_case = last_case + 1, last_case_at = ` + db.Next("instant.at", "last_case_at") + `
			FROM instant
			WHERE id = $1
			RETURNING last_case, last_case_at
		), inserted AS (
			INSERT INTO cases (` + members.Moved() + `)
			SELECT ` + newRow + `
			FROM next /*: next JOIN guilds home ON home.id = $1 */
			RETURNING ` + columns + `
		), recorded AS (
			INSERT INTO case_changes (guild_id, case_id, at, origin, changes)
			SELECT $1 /*: home.id */, inserted.id, inserted.updated_at, $2::jsonb, '[]'
			FROM inserted /*: inserted JOIN guilds home ON home.id = $1 */
		)
		SELECT ` + columns + `
		FROM inserted`

// edit stores the new version c of a case that is locked, at the instant of the edit, and the
// change from was to c with its author.
func edit(ctx context.Context, tx *db.Tx, by auth.By, was, c row, author *string) (row, error) {
	args := append([]any{c.GuildID, c.ID, by.Origin(), author, differencesOf(&was, &c)}, edited(c)...)
	stored, err := db.Get[row](ctx, tx, editing, args...)
	return stored, fault.Wrap(err, "edit case", c.ID, "of guild", c.GuildID)
}

var assignments, edited = members.SetRow(6, map[string]string{"updated_at": db.Next("instant.at", "c.updated_at")})

var editing = `
		WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at), edited AS (
			UPDATE cases c
			SET ` + assignments + `
			FROM instant
			WHERE c.guild_id = $1
			  AND c.id = $2
			RETURNING c.*
		), ` + pruned("ARRAY[$2]") + `, recorded AS (
			INSERT INTO case_changes (guild_id, case_id, at, origin, author_id, changes)
			SELECT home.id, edited.id, edited.updated_at, $3::jsonb, $4, $5::jsonb
			FROM edited JOIN guilds home ON home.id = $1
		)
		SELECT ` + columns + `
		FROM edited`

// expiry is the change that an expiry makes to a case.
var expiry = differencesOf(&row{Status: active}, &row{Status: "expired"})

// expire sets the status of those of the guild's given cases that are still due and not locked to
// expired, and returns them.
func expire(ctx context.Context, tx *db.Tx, guild string, ids []string) ([]row, error) {
	rows, err := db.Select[row](ctx, tx, `
		WITH free AS (
			SELECT id AS free_id
			FROM cases
			WHERE guild_id = $1
			  AND id = ANY($2)
			  AND status = 'active'
			  AND expires_at <= now()
			FOR NO KEY UPDATE SKIP LOCKED
		), instant AS MATERIALIZED (
			SELECT clock_timestamp() AS at FROM free LIMIT 1
		), expired AS (
			UPDATE cases c
			SET status = 'expired', updated_at = `+db.Next("instant.at", "c.updated_at")+`
			FROM free, instant
			WHERE c.guild_id = $1
			  AND c.id = free_id
			RETURNING c.*
		), `+pruned("$2::text[]")+`, recorded AS (
			INSERT INTO case_changes (guild_id, case_id, at, origin, changes)
			SELECT home.id, expired.id, expired.updated_at, $3::jsonb, $4::jsonb
			FROM expired JOIN guilds home ON home.id = $1
		)
		SELECT `+columns+`
		FROM expired`, guild, db.Array(ids), auth.System(guild).Origin(), expiry)
	return rows, fault.Wrap(err, "expire cases of guild", guild)
}
