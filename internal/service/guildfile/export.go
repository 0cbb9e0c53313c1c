package guildfile

import (
	"bufio"
	"context"
	"io"

	"guildhall/internal/access/audit"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/service/guilds"
)

// exportable returns a NotFound fault if the guild does not exist, and a Conflict if its deletion
// has begun, since data may be missing already.
func exportable(ctx context.Context, tx *db.Tx, guild string) error {
	going, err := db.Get[bool](ctx, tx, `SELECT coalesce(removed_after <= now(), false) FROM guilds WHERE id = $1`, guild)
	switch {
	case db.Missing(err):
		return auth.NoGuild(guild)
	case going:
		return guilds.BeingRemoved(guild)
	}
	return fault.Wrap(err, "export guild", guild)
}

// NoteExport adds a row about an export to the guild's audit log. On a server that refuses writes,
// db.TakesNoWrites holds for its error. It returns the same faults as Export.
func NoteExport(ctx context.Context, d db.Doer, guild string) error {
	return d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := exportable(ctx, tx, guild); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Change{Guild: guild, Action: audit.GuildExported, Target: guild, Name: "guild file"})
	})
}

// Export writes all data of a guild as a guild file. The file shows one state of the database, the
// same data always gives the same file, and memory does not grow with the guild. Network listings
// belong to no guild and are left out. It returns a NotFound fault if the guild does not exist, and
// a Conflict if it is being deleted.
func Export(ctx context.Context, d *db.DB, guild string, w io.Writer) error {
	return d.Snapshot(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := tx.TakeTime(ctx, 0); err != nil {
			return fault.Wrap(err, "export guild", guild)
		}
		if err := exportable(ctx, tx, guild); err != nil {
			return err
		}
		out := bufio.NewWriterSize(w, 64<<10)
		for _, k := range newKinds() {
			if err := k.export(ctx, tx, guild, out); err != nil {
				return err
			}
		}
		return fault.Wrap(out.Flush(), "export guild", guild)
	})
}
