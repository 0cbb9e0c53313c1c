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

// exportable is NotFound where there is no such guild, and a Conflict where its day has come:
// some of it may be deleted already.
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

// NoteExport has the guild's audit log say that an export was asked for. A server
// that takes no writes says so: db.TakesNoWrites. It is refused as Export is.
func NoteExport(ctx context.Context, d db.Doer, guild string) error {
	return d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := exportable(ctx, tx, guild); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Change{Guild: guild, Action: audit.GuildExported, Target: guild, Name: "guild file"})
	})
}

// Export writes everything of a guild as a guild file. It shows one moment of
// the database, whatever changes meanwhile; it always writes the same things in
// the same order; and its memory does not grow with the guild. Listings of the
// network belong to no guild and are not in it. It is NotFound when there is no
// such guild, and a Conflict when it is being deleted.
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
