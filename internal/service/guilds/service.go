// Package guilds shows what the service knows about a guild and how the guild
// has set it up. Both are changed elsewhere, by the bot and the dashboard.
package guilds

import (
	"context"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
)

// Curve is the level curve as the settings publish it: the step from level L
// costs Quadratic*L^2 + Linear*L + Base XP. It is levelling's.
type Curve struct {
	Base      int64 `json:"base"`
	Linear    int64 `json:"linear"`
	Quadratic int64 `json:"quadratic"`
}

// Service implements the operations on the guild itself.
type Service struct{ Curve Curve }

// GetGuild returns the headline metadata of the token's guild.
func (s *Service) GetGuild(ctx context.Context, _ gen.GetGuildRequestObject) (gen.GetGuildResponseObject, error) {
	g, err := get(ctx, db.Read(ctx), auth.Acting(ctx).GuildID)
	if err != nil {
		return nil, err
	}
	return gen.GetGuild200JSONResponse{Data: gen.Guild{
		ID:          g.ID,
		Name:        g.Name,
		IconURL:     g.IconURL,
		OwnerID:     g.OwnerID,
		MemberCount: g.MemberCount,
		Locale:      g.Locale,
		JoinedAt:    g.JoinedAt,
		CreatedAt:   g.CreatedAt,
	}}, nil
}

// GetGuildSettings returns the guild's module toggles and public settings. The
// toggles inform; no operation fails because its module is off.
func (s *Service) GetGuildSettings(ctx context.Context, _ gen.GetGuildSettingsRequestObject) (gen.GetGuildSettingsResponseObject, error) {
	g, err := getSettings(ctx, db.Read(ctx), auth.Acting(ctx).GuildID)
	if err != nil {
		return nil, err
	}
	return gen.GetGuildSettings200JSONResponse{Data: gen.GuildSettings{
		Modules: gen.GuildModules{
			Moderation: g.Moderation,
			Economy:    g.Modules.Economy,
			Levelling:  g.Modules.Levelling,
			Tickets:    g.Modules.Tickets,
			Giveaways:  g.Giveaways,
			Network:    g.Network,
		},
		Economy:   gen.EconomySettings{CurrencyName: g.CurrencyName, CurrencySymbol: g.CurrencySymbol},
		Levelling: gen.LevellingSettings{Curve: gen.LevelCurve(s.Curve)},
		Tickets:   gen.TicketSettings{RequireCloseReason: g.RequireCloseReason, CloseAction: g.CloseAction},
		Timezone:  g.Timezone,
		UpdatedAt: g.UpdatedAt,
	}}, nil
}
