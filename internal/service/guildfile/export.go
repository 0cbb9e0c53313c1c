package guildfile

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// Export writes everything of a guild as a guild file. It shows one moment of
// the database, whatever changes meanwhile; it always writes the same things in
// the same order; and its memory does not grow with the guild. Listings of the
// network belong to no guild and are not in it. It is NotFound when there is no
// such guild.
func Export(ctx context.Context, d *db.DB, guild string, w io.Writer) error {
	return d.Snapshot(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := tx.TakeTime(ctx, 0); err != nil {
			return fmt.Errorf("export guild %s: %w", guild, err)
		}
		there, err := db.Get[bool](ctx, tx, `SELECT EXISTS (SELECT FROM guilds WHERE id = $1)`, guild)
		if err != nil {
			return fmt.Errorf("export guild %s: %w", guild, err)
		}
		if !there {
			return fault.New(fault.NotFound, "not_found", "There is no guild %s.", guild)
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
