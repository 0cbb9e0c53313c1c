// Package removal deletes all data of removed guilds, and a guild's data about a member that it was
// asked to forget. It deletes in small steps, each in its own transaction. The remaining rows say
// what is left to do, so a worker that is killed loses nothing, and any number of workers may run.
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
	// grace is how long after the scheduled time the deletion of a guild's rows begins. By then
	// every request that began before that time has ended.
	grace = 15 * time.Second
	// deleteLimit is how many rows one statement deletes, and look how many rows one query finds.
	deleteLimit = 500
	look        = 20 * deleteLimit
	// atOnce is how many guilds, or requests to forget a member, one query finds.
	atOnce = 100
)

// leaving selects guilds whose deletion is due and whose requests have all ended.
const leaving = `
	SELECT id
	FROM guilds
	WHERE removed_after < now() - $1::bigint * interval '1 second'
	ORDER BY removed_after
	LIMIT $2`

// Guilds deletes all rows of guilds whose deletion is due, the guild's own row last. It stops when
// ctx ends, and the next run continues.
func Guilds(ctx context.Context, d *db.DB) error {
	ids, err := db.Select[string](ctx, d.Reader(), leaving, int64(grace/time.Second), atOnce)
	if err != nil {
		return fault.Wrap(err, "look for guilds whose day has come")
	}
	var errs []error
	for _, id := range ids {
		err := deleteGuild(ctx, d, id)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the next run continues
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// free selects guild $1 unless another transaction has locked its row: an import that began before
// the removal and may take long.
const free = `SELECT id FROM guilds WHERE id = $1 FOR UPDATE SKIP LOCKED`

// deleteGuild deletes all rows of a guild, unless an import of it is running.
func deleteGuild(ctx context.Context, d *db.DB, id string) error {
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := db.Get[string](ctx, tx, free, id)
		return err
	})
	if db.Missing(err) {
		return nil // the next run tries again
	}
	if err != nil {
		return fault.Wrap(err, "look whether guild", id, "is held")
	}
	tables, err := db.GuildTables(ctx, d.Reader())
	if err != nil {
		return err
	}
	// api_tokens is not a guild's table, since tokens are looked up by their hash. With distributed
	// tables no foreign key deletes tokens with their guild.
	tables = append(tables[:len(tables)-1], "api_tokens")
	// Background work that was running while a table was emptied may have inserted rows.
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

// empty deletes the guild's rows of one table and returns their number. It finds many rows with one
// query, without locks, so that few queries have to skip deleted rows that vacuum cannot remove
// yet.
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

// rowsOf returns a query for the positions (ctid) of at most $2 rows of guild $1.
func rowsOf(table string) string {
	return `SELECT ctid::text FROM ` + table + ` WHERE guild_id = $1 LIMIT $2`
}

// deleteRows returns a statement that deletes the rows of guild $1 at the positions $2.
func deleteRows(table string) string {
	return `DELETE FROM ` + table + ` WHERE guild_id = $1 AND ctid = ANY ($2::text[]::tid[])`
}
