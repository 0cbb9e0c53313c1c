// Package removal deletes what is to be gone: all that a guild had which has left, and
// what a guild has of a member who is to be forgotten. Both go in small steps, each a
// transaction of its own. The rows say what is left to do, so a worker that is killed
// loses nothing, and any number of them may be at it.
package removal

import (
	"context"
	"errors"
	"slices"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

const (
	// grace is how long after its day a guild's rows begin to go. No request that
	// began before the guild was removed still writes then.
	grace = 15 * time.Second
	// deleteLimit is how many rows one statement deletes, and look how many one finds.
	deleteLimit = 500
	look        = 20 * deleteLimit
	// atOnce is how many guilds one look finds.
	atOnce = 100
)

// leaving finds guilds whose day has come and whose requests have all ended.
const leaving = `
	SELECT id
	FROM guilds
	WHERE removed_after < now() - $1::bigint * interval '1 second'
	ORDER BY removed_after
	LIMIT $2`

// Guilds deletes all that guilds had whose day has come, each guild's own row last. It
// ends with ctx, and the next time goes on.
func Guilds(ctx context.Context, d *db.DB) error {
	ids, err := db.Select[string](ctx, d.Reader(), leaving, int64(grace/time.Second), atOnce)
	if err != nil {
		return fault.Wrap(err, "look for guilds whose day has come")
	}
	var errs []error
	for _, id := range ids {
		err := deleteGuild(ctx, d, id)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the next time goes on
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// free is guild $1 unless a unit holds it that began before it left, and may take long: an
// import.
const free = `SELECT id FROM guilds WHERE id = $1 FOR UPDATE SKIP LOCKED`

// deleteGuild deletes all of one guild, once no import of it is under way.
func deleteGuild(ctx context.Context, d *db.DB, id string) error {
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := db.Get[string](ctx, tx, free, id)
		return err
	})
	if db.Missing(err) {
		return nil // the next time
	}
	if err != nil {
		return fault.Wrap(err, "look whether guild", id, "is held")
	}
	tables, err := db.GuildTables(ctx, d.Reader())
	if err != nil {
		return err
	}
	// Tokens are no guild's table, for they are looked up by their hash. Where
	// tables are distributed, nothing deletes them with the guild.
	tables = append(tables[:len(tables)-1], "api_tokens")
	// Work that was going on while a table was emptied may have added to it.
	for again := true; again; {
		again = false
		for _, table := range tables {
			n, err := empty(ctx, d, table, id)
			if err != nil {
				return err
			}
			again = again || n > 0
		}
	}
	return d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		n, err := db.Exec(ctx, tx, `DELETE FROM guilds WHERE id = $1 AND removed_after < now()`, id)
		if err != nil || n == 0 { // another worker was first
			return err
		}
		return audit.Record(ctx, tx, audit.Change{Action: audit.GuildErased, Target: id})
	})
}

// empty deletes the guild's rows of one table and returns how many there were. Rows
// are found without locks, many at a time, so that a look goes past what was deleted
// before it a few times only, however long somebody keeps that from being cleaned up.
func empty(ctx context.Context, d *db.DB, table, guild string) (deleted int, err error) {
	for {
		found, err := db.Select[string](ctx, d.Reader(), rowsOf(table), guild, look)
		if err != nil {
			return deleted, fault.Wrap(err, "look for rows of guild", guild, "in", table)
		}
		for rows := range slices.Chunk(found, deleteLimit) {
			begun := time.Now() //nolint:forbidigo // how long this machine waits for a step, no instant
			err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
				n, err := db.Exec(ctx, tx, deleteRows(table), guild, db.Array(rows))
				deleted += n
				return err
			})
			if err != nil {
				return deleted, fault.Wrap(err, "delete rows of guild", guild, "from", table)
			}
			if err := rest(ctx, begun); err != nil {
				return deleted, err
			}
		}
		if len(found) < look {
			return deleted, nil
		}
	}
}

// rowsOf finds where rows of guild $1 stand, $2 of them at most.
func rowsOf(table string) string {
	return `SELECT ctid::text FROM ` + table + ` WHERE guild_id = $1 LIMIT $2`
}

// deleteRows deletes those of guild $1 that stand at $2.
func deleteRows(table string) string {
	return `DELETE FROM ` + table + ` WHERE guild_id = $1 AND ctid = ANY ($2::text[]::tid[])`
}
