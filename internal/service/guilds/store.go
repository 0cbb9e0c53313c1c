package guilds

import (
	"context"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// get returns the guild. A token's guild always exists: its tokens go with it.
func get(ctx context.Context, q db.Querier, guild string) (row, error) {
	g, err := db.Get[row](ctx, q, `
		SELECT `+columns+`
		FROM guilds
		WHERE id = $1`, guild)
	return g, fault.Wrap(err, "read guild", guild)
}

// Exists reports whether a guild is there, and not being removed.
func Exists(ctx context.Context, q db.Querier, guild string) (bool, error) {
	there, err := db.Get[bool](ctx, q, `SELECT EXISTS (SELECT FROM guilds WHERE id = $1 AND removed_at IS NULL)`, guild)
	return there, fault.Wrap(err, "look for guild", guild)
}

// getSettings returns the guild's settings, which every guild has.
func getSettings(ctx context.Context, q db.Querier, guild string) (settings, error) {
	s, err := db.Get[settings](ctx, q, `
		SELECT `+settingsColumns+`
		FROM guild_settings
		WHERE guild_id = $1`, guild)
	return s, fault.Wrap(err, "read the settings of guild", guild)
}
