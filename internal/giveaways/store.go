package giveaways

import (
	"context"
	"fmt"
	"time"

	"guildhall/internal/db"
	"guildhall/internal/fault"
	"guildhall/internal/page"
)

// The states of a giveaway.
const (
	scheduled = "scheduled"
	active    = "active"
	drawing   = "drawing"
	ended     = "ended"
)

// row is one stored giveaway.
type row struct {
	GuildID      string     `db:"guild_id"`
	ID           string     `db:"id"`
	Status       string     `db:"status"`
	Prize        string     `db:"prize"`
	Description  *string    `db:"description"`
	WinnerCount  int        `db:"winner_count"`
	EntrantCount int64      `db:"entrant_count"`
	EntryCount   int64      `db:"entry_count"`
	Winners      db.Strings `db:"winners"`
	HostID       *string    `db:"host_id"`
	ChannelID    string     `db:"channel_id"`
	MessageID    *string    `db:"message_id"`
	StartsAt     time.Time  `db:"starts_at"`
	EndsAt       time.Time  `db:"ends_at"`
	EndedAt      *time.Time `db:"ended_at"`
	Rounds       int        `db:"rounds"`
	CreatedAt    time.Time  `db:"created_at"`
	UpdatedAt    time.Time  `db:"updated_at"`
}

// entry is one stored entrant of a giveaway.
type entry struct {
	UserID    string    `db:"user_id"`
	Entries   int64     `db:"entries"`
	EnteredAt time.Time `db:"entered_at"`
}

// The list has one statement for each index that serves it, and not one with an
// optional condition: a prepared statement's plan has to hold for every value.
const (
	columns = `guild_id, id, status, prize, description, winner_count, entrant_count, entry_count, winners,
		host_id, channel_id, message_id, starts_at, ends_at, ended_at, rounds, created_at, updated_at`

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
)

// list returns the page of the guild's giveaways, newest first, and one more
// when there is one. An empty status lets all through.
func list(ctx context.Context, q db.Querier, guild, status string, p page.P) ([]row, error) {
	query, args := newest, []any{guild, p.Limit(), p.Offset()}
	if status != "" {
		query, args = newestOfStatus, append(args, status)
	}
	var rows []row
	if err := q.SelectContext(ctx, &rows, query, args...); err != nil {
		return nil, fmt.Errorf("list giveaways of guild %s: %w", guild, err)
	}
	return rows, nil
}

// entries returns the page of the giveaway's entrants in the order in which
// they entered, and one more when there is one; with a user, that one's alone.
func entries(ctx context.Context, q db.Querier, g row, user *string, p page.P) ([]entry, error) {
	query, args := oldestEntries, []any{g.GuildID, g.ID, p.Limit(), p.Offset()}
	if user != nil {
		query, args = entryOfUser, append(args, *user)
	} else if int64(p.Offset()) >= g.EntrantCount {
		return nil, nil // past the end, which Postgres would walk to
	}
	var rows []entry
	if err := q.SelectContext(ctx, &rows, query, args...); err != nil {
		return nil, fmt.Errorf("list entries of giveaway %s in guild %s: %w", g.ID, g.GuildID, err)
	}
	return rows, nil
}

// get returns one giveaway. It is NotFound when the guild has no such giveaway.
func get(ctx context.Context, q db.Querier, guild, id string) (row, error) {
	var g row
	err := q.GetContext(ctx, &g, byID, guild, id)
	return g, found(err, guild, id)
}

// lock returns one giveaway and keeps others from changing it, and from adding
// entries, until tx ends. It is NotFound when the guild has no such giveaway.
func lock(ctx context.Context, tx *db.Tx, guild, id string) (row, error) {
	var g row
	err := tx.GetContext(ctx, &g, byID+`
		FOR NO KEY UPDATE`, guild, id)
	return g, found(err, guild, id)
}

func found(err error, guild, id string) error {
	switch {
	case db.Missing(err):
		return fault.New(fault.NotFound, "not_found", "No such giveaway.")
	case err != nil:
		return fmt.Errorf("read giveaway %s of guild %s: %w", id, guild, err)
	}
	return nil
}

// insert stores a new giveaway.
func insert(ctx context.Context, tx *db.Tx, g row) (row, error) {
	err := tx.GetContext(ctx, &g, `
		INSERT INTO giveaways (guild_id, id, status, prize, description, winner_count, host_id, channel_id, starts_at, ends_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
		RETURNING `+columns,
		g.GuildID, g.ID, g.Status, g.Prize, g.Description, g.WinnerCount, g.HostID, g.ChannelID, g.StartsAt, g.EndsAt)
	if err != nil {
		return row{}, fmt.Errorf("insert giveaway in guild %s: %w", g.GuildID, err)
	}
	return g, nil
}

// The statements by which a caller moves a giveaway to another state. Each
// finds no row when the giveaway is in a state that it cannot leave that way.
const (
	toDrawing = `
		UPDATE giveaways
		SET status = 'drawing', paused_at = NULL, redraw_at = now() + interval '30 seconds', updated_at = now()
		WHERE guild_id = $1
		  AND id = $2
		  AND status IN ('scheduled', 'active', 'paused')
		RETURNING ` + columns

	toPaused = `
		UPDATE giveaways
		SET status = 'paused', paused_at = now(), updated_at = now()
		WHERE guild_id = $1
		  AND id = $2
		  AND status = 'active'
		RETURNING ` + columns

	toActive = `
		UPDATE giveaways
		SET status = 'active', ends_at = ends_at + (now() - coalesce(paused_at, now())), paused_at = NULL, updated_at = now()
		WHERE guild_id = $1
		  AND id = $2
		  AND status = 'paused'
		RETURNING ` + columns
)

// move runs one of the statements above. It is NotFound when the guild has no
// such giveaway, and refused when the giveaway's state forbids the move.
func move(ctx context.Context, tx *db.Tx, statement, guild, id string, refused *fault.Error) (row, error) {
	var g row
	err := tx.GetContext(ctx, &g, statement, guild, id)
	if db.Missing(err) {
		if _, err := get(ctx, tx, guild, id); err != nil {
			return row{}, err
		}
		return row{}, refused
	}
	if err != nil {
		return row{}, fmt.Errorf("move giveaway %s of guild %s: %w", id, guild, err)
	}
	return g, nil
}

// pot returns everyone who entered the giveaway, sorted by user id as text.
func pot(ctx context.Context, tx *db.Tx, g row) ([]entrant, error) {
	all := make([]entrant, 0, g.EntrantCount)
	err := tx.SelectContext(ctx, &all, `
		SELECT user_id, entries
		FROM giveaway_entries
		WHERE guild_id = $1
		  AND giveaway_id = $2
		ORDER BY user_id`, g.GuildID, g.ID)
	if err != nil {
		return nil, fmt.Errorf("read the entries of giveaway %s in guild %s: %w", g.ID, g.GuildID, err)
	}
	return all, nil
}

// record is one stored draw.
type record struct {
	Round       int        `db:"round"`
	Seed        []byte     `db:"seed"`
	EntriesHash []byte     `db:"entries_hash"`
	PastWinners db.Strings `db:"past_winners"`
	Excluded    db.Strings `db:"excluded"`
	Drawn       db.Strings `db:"drawn"`
	Replaced    db.Strings `db:"replaced"`
	Winners     db.Strings `db:"winners"`
	TokenID     *string    `db:"token_id"`
	Reason      *string    `db:"reason"`
}

// lastRecord returns the record of the giveaway's newest draw. It is the zero
// record when there is none: nothing was drawn yet, or the giveaway was
// imported.
func lastRecord(ctx context.Context, tx *db.Tx, g row) (record, error) {
	var r record
	err := tx.GetContext(ctx, &r, `
		SELECT round, seed, entries_hash, past_winners, excluded, drawn, replaced, winners, token_id, reason
		FROM giveaway_draws
		WHERE guild_id = $1
		  AND giveaway_id = $2
		ORDER BY round DESC
		LIMIT 1`, g.GuildID, g.ID)
	if err != nil && !db.Missing(err) {
		return record{}, fmt.Errorf("read the last draw of giveaway %s in guild %s: %w", g.ID, g.GuildID, err)
	}
	return r, nil
}

// settle stores the record of a draw and makes its winners the giveaway's.
func settle(ctx context.Context, tx *db.Tx, g row, r record) (row, error) {
	_, err := tx.ExecContext(ctx, `
		INSERT INTO giveaway_draws (guild_id, giveaway_id, round, seed, entries_hash, past_winners, excluded, drawn, replaced, winners, token_id, reason)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
		g.GuildID, g.ID, r.Round, r.Seed, r.EntriesHash, r.PastWinners, r.Excluded, r.Drawn, r.Replaced, r.Winners, r.TokenID, r.Reason)
	if err != nil {
		return row{}, fmt.Errorf("record draw %d of giveaway %s in guild %s: %w", r.Round, g.ID, g.GuildID, err)
	}
	err = tx.GetContext(ctx, &g, `
		UPDATE giveaways
		SET status = 'ended', winners = $3, rounds = $4, ended_at = coalesce(ended_at, now()), updated_at = now()
		WHERE guild_id = $1
		  AND id = $2
		RETURNING `+columns,
		g.GuildID, g.ID, r.Winners, r.Round)
	if err != nil {
		return row{}, fmt.Errorf("store the winners of giveaway %s in guild %s: %w", g.ID, g.GuildID, err)
	}
	return g, nil
}

// The statements of the sweeps. What somebody else holds at the moment is left
// for the next time.
const (
	startDue = `
		WITH due AS (
			SELECT guild_id, id
			FROM giveaways
			WHERE status = 'scheduled'
			  AND starts_at <= now()
			ORDER BY starts_at
			LIMIT $1
			FOR NO KEY UPDATE SKIP LOCKED
		)
		UPDATE giveaways g
		SET status = 'active', updated_at = now()
		FROM due
		WHERE g.guild_id = due.guild_id
		  AND g.id = due.id
		RETURNING g.guild_id, g.id, g.rounds`

	finishDue = `
		WITH due AS (
			SELECT guild_id, id
			FROM giveaways
			WHERE status = 'active'
			  AND ends_at <= now()
			ORDER BY ends_at
			LIMIT $1
			FOR NO KEY UPDATE SKIP LOCKED
		)
		UPDATE giveaways g
		SET status = 'drawing', redraw_at = now() + interval '30 seconds', updated_at = now()
		FROM due
		WHERE g.guild_id = due.guild_id
		  AND g.id = due.id
		RETURNING g.guild_id, g.id, g.rounds`

	drawOverdue = `
		WITH due AS (
			SELECT guild_id, id
			FROM giveaways
			WHERE status = 'drawing'
			  AND redraw_at <= now()
			ORDER BY redraw_at
			LIMIT $1
			FOR NO KEY UPDATE SKIP LOCKED
		)
		UPDATE giveaways g
		SET redraw_at = now() + interval '30 seconds'
		FROM due
		WHERE g.guild_id = due.guild_id
		  AND g.id = due.id
		RETURNING g.guild_id, g.id, g.rounds`
)

// start makes up to n scheduled giveaways whose time has come active.
func start(ctx context.Context, tx *db.Tx, n int) ([]row, error) {
	return sweep(ctx, tx, n, startDue)
}

// finish puts up to n active giveaways whose time is over into drawing. Paused
// ones are not active: their time stands still.
func finish(ctx context.Context, tx *db.Tx, n int) ([]row, error) {
	return sweep(ctx, tx, n, finishDue)
}

// overdue returns up to n giveaways whose draw should long be done, and makes
// them due again after a while. One that is being drawn right now is locked and
// left alone.
func overdue(ctx context.Context, tx *db.Tx, n int) ([]row, error) {
	return sweep(ctx, tx, n, drawOverdue)
}

func sweep(ctx context.Context, tx *db.Tx, n int, statement string) ([]row, error) {
	var moved []row
	if err := tx.SelectContext(ctx, &moved, statement, n); err != nil {
		return nil, fmt.Errorf("look for giveaways whose time has come: %w", err)
	}
	return moved, nil
}
