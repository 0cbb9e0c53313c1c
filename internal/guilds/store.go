package guilds

import (
	"context"
	"fmt"

	"guildhall/internal/db"
)

// get returns the guild. A token's guild always exists: its tokens go with it.
func get(ctx context.Context, q db.Querier, guild string) (row, error) {
	var g row
	err := q.GetContext(ctx, &g, `
		SELECT `+columns+`
		FROM guilds
		WHERE id = $1`, guild)
	if err != nil {
		return row{}, fmt.Errorf("read guild %s: %w", guild, err)
	}
	return g, nil
}

// getSettings returns the guild's settings, which every guild has.
func getSettings(ctx context.Context, q db.Querier, guild string) (settings, error) {
	var s settings
	err := q.GetContext(ctx, &s, `
		SELECT `+settingsColumns+`
		FROM guild_settings
		WHERE guild_id = $1`, guild)
	if err != nil {
		return settings{}, fmt.Errorf("read the settings of guild %s: %w", guild, err)
	}
	return s, nil
}
