package cases

import (
	"context"
	"fmt"
	"time"

	"guildhall/internal/db"
	"guildhall/internal/fault"
	"guildhall/internal/page"
)

const (
	active  = "active"
	deleted = "deleted"
)

// row is one stored case.
type row struct {
	GuildID     string     `db:"guild_id"`
	ID          string     `db:"id"`
	Number      int64      `db:"number"`
	UserID      string     `db:"user_id"`
	ModeratorID string     `db:"moderator_id"`
	Type        string     `db:"type"`
	Reason      string     `db:"reason"`
	Status      string     `db:"status"`
	ExpiresAt   *time.Time `db:"expires_at"`
	Source      string     `db:"source"`
	CreatedAt   time.Time  `db:"created_at"`
	UpdatedAt   time.Time  `db:"updated_at"`
}

// filter narrows a list. The zero value lets everything through.
type filter struct {
	UserID string
	Type   string
	Status string
	Since  time.Time // no earlier than this
}

// The list has one statement for each index that serves it, and not one with
// optional conditions: a prepared statement's plan has to hold for every value,
// and a condition that may be switched off cannot be looked up in an index.
const (
	columns = `
		SELECT guild_id, id, number, user_id, moderator_id, type, reason, status,
		       expires_at, source, created_at, updated_at
		FROM cases`

	newest = columns + `
		WHERE guild_id = $1
		  AND created_at >= $2
		ORDER BY created_at DESC, id DESC
		LIMIT $3 OFFSET $4`

	newestOfType = columns + `
		WHERE guild_id = $1
		  AND created_at >= $2
		  AND type = $5
		ORDER BY created_at DESC, id DESC
		LIMIT $3 OFFSET $4`

	newestOfStatus = columns + `
		WHERE guild_id = $1
		  AND created_at >= $2
		  AND status = $5
		ORDER BY created_at DESC, id DESC
		LIMIT $3 OFFSET $4`

	newestOfTypeAndStatus = columns + `
		WHERE guild_id = $1
		  AND created_at >= $2
		  AND type = $5
		  AND status = $6
		ORDER BY created_at DESC, id DESC
		LIMIT $3 OFFSET $4`

	newestOfUser = columns + `
		WHERE guild_id = $1
		  AND created_at >= $2
		  AND user_id = $5
		  AND ($6::text = '' OR type = $6)
		  AND ($7::text = '' OR status = $7)
		ORDER BY created_at DESC, id DESC
		LIMIT $3 OFFSET $4`

	byID = columns + `
		WHERE guild_id = $1
		  AND id = $2`

	due = `
			SELECT guild_id, id
			FROM cases
			WHERE status = 'active'
			  AND expires_at <= now()
			ORDER BY expires_at
			LIMIT $1
			FOR NO KEY UPDATE SKIP LOCKED`
)

// query is the statement that lists the cases of guild that pass f, and its
// arguments.
func query(guild string, f filter, p page.P) (string, []any) {
	args := []any{guild, f.Since, p.Limit(), p.Offset()}
	switch {
	case f.UserID != "":
		return newestOfUser, append(args, f.UserID, f.Type, f.Status)
	case f.Type != "" && f.Status != "":
		return newestOfTypeAndStatus, append(args, f.Type, f.Status)
	case f.Type != "":
		return newestOfType, append(args, f.Type)
	case f.Status != "":
		return newestOfStatus, append(args, f.Status)
	}
	return newest, args
}

// list returns the page of the guild's cases that pass f, newest first, and one
// case more when there is one.
func list(ctx context.Context, q db.Querier, guild string, f filter, p page.P) ([]row, error) {
	var rows []row
	sql, args := query(guild, f, p)
	if err := q.SelectContext(ctx, &rows, sql, args...); err != nil {
		return nil, fmt.Errorf("list cases of guild %s: %w", guild, err)
	}
	return rows, nil
}

// get returns one case. It is NotFound when the guild has no such case.
func get(ctx context.Context, q db.Querier, guild, id string) (row, error) {
	var c row
	err := q.GetContext(ctx, &c, byID, guild, id)
	return c, found(err, guild, id)
}

// lock returns one case and keeps others from changing it until tx ends. It is
// NotFound when the guild has no such case.
func lock(ctx context.Context, tx *db.Tx, guild, id string) (row, error) {
	var c row
	err := tx.GetContext(ctx, &c, byID+`
		FOR NO KEY UPDATE`, guild, id)
	return c, found(err, guild, id)
}

func found(err error, guild, id string) error {
	switch {
	case db.Missing(err):
		return fault.New(fault.NotFound, "not_found", "No such case.")
	case err != nil:
		return fmt.Errorf("read case %s of guild %s: %w", id, guild, err)
	}
	return nil
}

// insert gives the case the guild's next number and stores it.
func insert(ctx context.Context, tx *db.Tx, c row) (row, error) {
	err := tx.GetContext(ctx, &c, `
		WITH next AS (
			UPDATE guilds SET last_case = last_case + 1
			WHERE id = $1
			RETURNING last_case
		)
		INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, reason, status, source)
		SELECT $1, $2, last_case, $3, $4, $5, $6, $7, $8 FROM next
		RETURNING guild_id, id, number, user_id, moderator_id, type, reason, status,
		          expires_at, source, created_at, updated_at`,
		c.GuildID, c.ID, c.UserID, c.ModeratorID, c.Type, c.Reason, c.Status, c.Source)
	if err != nil {
		return row{}, fmt.Errorf("insert case in guild %s: %w", c.GuildID, err)
	}
	return c, nil
}

// edit stores the reason and the expiry of c.
func edit(ctx context.Context, tx *db.Tx, c row) (row, error) {
	err := tx.GetContext(ctx, &c, `
		UPDATE cases
		SET reason = $3, expires_at = $4, updated_at = now()
		WHERE guild_id = $1
		  AND id = $2
		RETURNING guild_id, id, number, user_id, moderator_id, type, reason, status,
		          expires_at, source, created_at, updated_at`,
		c.GuildID, c.ID, c.Reason, c.ExpiresAt)
	if err != nil {
		return row{}, fmt.Errorf("edit case %s of guild %s: %w", c.ID, c.GuildID, err)
	}
	return c, nil
}

// expire turns up to n active cases whose expiry has passed into expired ones,
// longest overdue first, and says how many it turned. Cases that someone else
// holds at the moment are left for the next time.
func expire(ctx context.Context, tx *db.Tx, n int) (int64, error) {
	res, err := tx.ExecContext(ctx, `
		WITH due AS (`+due+`
		)
		UPDATE cases
		SET status = 'expired', updated_at = now()
		FROM due
		WHERE cases.guild_id = due.guild_id
		  AND cases.id = due.id`, n)
	if err != nil {
		return 0, fmt.Errorf("expire cases: %w", err)
	}
	return res.RowsAffected()
}
