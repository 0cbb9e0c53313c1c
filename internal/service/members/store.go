package members

import (
	"context"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/metadata"
	"guildhall/internal/base/page"
)

// filter narrows the list of members. The zero value lets every member through. At most one
// of Prefix, Changed and Metadata is set.
type filter struct {
	Prefix   *string    // only members whose folded name begins with it
	Changed  *time.Time // only members changed at or after Changed, in the order of the changes
	Metadata *metadata.Lookup
	Present  *bool
}

// listing is a list of members in one order: of all members, of those who are present, and of
// those who have left.
type listing struct{ all, present, left string }

// leftSQL is the rule of hasLeft, which members_left is an index of. It is never null.
const leftSQL = `left_at IS NOT NULL AND (joined_at IS NULL OR joined_at < left_at)`

func listingOf(where, order string) listing {
	statement := func(and string) string {
		return "SELECT " + columns + "\nFROM members\nWHERE guild_id = $1" + where + and + "\nORDER BY " + order + page.CutOut
	}
	return listing{
		all:     statement(""),
		present: statement(" AND NOT (" + leftSQL + ")"),
		left:    statement(" AND " + leftSQL),
	}
}

// The list has a statement for each index that serves it.
var (
	byUser    = listingOf("", "user_id")
	byName    = listingOf(" AND folded >= $4 AND folded < $5", "folded, user_id")
	byChange  = listingOf(" AND updated_at >= $4", "updated_at, user_id")
	found     = page.Found(page.Table{Name: "members", Columns: columns}, ` AND ($6::boolean IS NULL OR $6 <> (`+leftSQL+`))`, "user_id")
	oneMember = `
		SELECT ` + columns + `
		FROM members
		WHERE guild_id = $1 AND user_id = $2`
)

// query returns the statement that lists the members of guild that pass f, and its arguments.
func query(guild string, f filter, p page.P) (string, []any) {
	list, args := byUser, []any{guild, p.Limit(), p.Offset()}
	if m := f.Metadata; m != nil {
		return found, append(args, m.Name, m.Value, f.Present)
	}
	switch {
	case f.Prefix != nil:
		folded := *fold(f.Prefix)
		list, args = byName, append(args, folded, prefixEnd(folded))
	case f.Changed != nil:
		list, args = byChange, append(args, *f.Changed)
	}
	switch {
	case f.Present == nil:
		return list.all, args
	case *f.Present:
		return list.present, args
	}
	return list.left, args
}

// list returns one page of members, and one row more when there is one.
func list(ctx context.Context, q db.Querier, guild string, f filter, p page.P) ([]row, error) {
	statement, args := query(guild, f, p)
	rows, err := db.Select[row](ctx, q, statement, args...)
	return rows, fault.Wrap(err, "list members of guild", guild)
}

// namedMembers looks each member up by the primary key.
var namedMembers = `
		SELECT ` + columns + `
		FROM members
		WHERE guild_id = $1 AND user_id = ANY ($2)
		ORDER BY user_id`

// named returns those of the users who are known, in the order of their ids.
func named(ctx context.Context, q db.Querier, guild string, users []string, present *bool) (list []row, err error) {
	rows, err := db.Select[row](ctx, q, namedMembers, guild, db.Array(users))
	for _, m := range rows {
		if present == nil || *present != m.left() {
			list = append(list, m)
		}
	}
	return list, fault.Wrap(err, "read members of guild", guild)
}

// get returns one member, or a NotFound fault.
func get(ctx context.Context, q db.Querier, guild, user string) (row, error) {
	m, err := db.Get[row](ctx, q, oneMember, guild, user)
	if db.Missing(err) {
		return m, fault.New(fault.NotFound, "not_found", "Nothing is known of this member.")
	}
	return m, fault.Wrap(err, "read member", user, "of guild", guild)
}

// lock returns a member and locks its row until tx ends; nil if nothing is known of the user.
func lock(ctx context.Context, tx *db.Tx, guild, user string) (*row, error) {
	m, err := db.Get[row](ctx, tx, oneMember+`
		FOR NO KEY UPDATE`, guild, user)
	if db.Missing(err) {
		return nil, nil //nolint:nilnil // there is no member, and that is no failure
	}
	return &m, fault.Wrap(err, "lock member", user, "of guild", guild)
}

// write stores the metadata of a member and returns the member. It inserts the member where
// existing is false, and returns db.Again when another unit has inserted it meanwhile.
func write(ctx context.Context, tx *db.Tx, m row, existing bool) (row, error) {
	statement := inserted
	if existing {
		statement = edited
	}
	m, err := db.Get[row](ctx, tx, statement, m.GuildID, m.UserID, m.Metadata)
	if db.Missing(err) {
		return m, db.Again
	}
	return m, fault.Wrap(err, "write member", m.UserID, "of guild", m.GuildID)
}

var (
	inserted = `
		INSERT INTO members (guild_id, user_id, metadata, created_at, updated_at)
		SELECT $1, $2, $3, i.at, i.at
		FROM (SELECT clock_timestamp() AS at) i
		ON CONFLICT DO NOTHING
		RETURNING ` + columns

	edited = `
		WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at)
		UPDATE members
		SET metadata = $3, updated_at = ` + db.Next("instant.at", "updated_at") + `
		FROM instant
		WHERE guild_id = $1 AND user_id = $2
		RETURNING ` + columns
)
