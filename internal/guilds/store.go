package guilds

import (
	"context"
	"fmt"
	"time"

	"guildhall/internal/db"
)

// row is one stored guild.
type row struct {
	ID          string    `db:"id"`
	Name        string    `db:"name"`
	IconURL     *string   `db:"icon_url"`
	OwnerID     string    `db:"owner_id"`
	MemberCount int64     `db:"member_count"`
	Locale      string    `db:"locale"`
	JoinedAt    time.Time `db:"joined_at"`
	CreatedAt   time.Time `db:"created_at"`
}

// settings is how one guild has set the service up.
type settings struct {
	Moderation         bool      `db:"moderation"`
	Economy            bool      `db:"economy"`
	Levelling          bool      `db:"levelling"`
	Tickets            bool      `db:"tickets"`
	Giveaways          bool      `db:"giveaways"`
	Network            bool      `db:"network"`
	CurrencyName       string    `db:"currency_name"`
	CurrencySymbol     string    `db:"currency_symbol"`
	RequireCloseReason bool      `db:"require_close_reason"`
	CloseAction        string    `db:"close_action"`
	Timezone           string    `db:"timezone"`
	UpdatedAt          time.Time `db:"updated_at"`
}

// get returns the guild. A token's guild always exists: its tokens go with it.
func get(ctx context.Context, q db.Querier, guild string) (row, error) {
	var g row
	err := q.GetContext(ctx, &g, `
		SELECT id, name, icon_url, owner_id, member_count, locale, joined_at, created_at
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
		SELECT moderation, economy, levelling, tickets, giveaways, network,
		       currency_name, currency_symbol, require_close_reason, close_action,
		       timezone, updated_at
		FROM guild_settings
		WHERE guild_id = $1`, guild)
	if err != nil {
		return settings{}, fmt.Errorf("read the settings of guild %s: %w", guild, err)
	}
	return s, nil
}
