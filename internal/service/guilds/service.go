// Package guilds shows guilds and their settings, and schedules their removal. Guilds are created
// and described by the operator's bot or by imports.
package guilds

import (
	"context"
	"time"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/page"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/transfer"
)

// Curve is the level curve as settings show it: the step from level L costs Quadratic*L^2 +
// Linear*L + Base XP. It is defined in package levelling.
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
	return gen.GetGuild200JSONResponse{Data: show(g)}, nil
}

func show(g row) gen.Guild {
	return gen.Guild{
		ID:          g.ID,
		Name:        g.Name,
		IconURL:     g.IconURL,
		OwnerID:     g.OwnerID,
		MemberCount: g.MemberCount,
		Locale:      g.Locale,
		JoinedAt:    g.JoinedAt,
		CreatedAt:   g.CreatedAt,
	}
}

// ListBotGuilds returns a page of the bot key's guilds, including leaving ones, in the order of
// their last change. A guild that changes while a reader pages through the list moves to the end,
// where the reader will see it.
func (s *Service) ListBotGuilds(ctx context.Context, r gen.ListBotGuildsRequestObject) (gen.ListBotGuildsResponseObject, error) {
	var since *time.Time
	if r.Params.UpdatedSince != nil {
		since = &r.Params.UpdatedSince.Time
	}
	p := page.Of(r.Params.Page, r.Params.PerPage)
	rows, err := list(ctx, db.Read(ctx), auth.From(ctx).Guilds(), since, p)
	if err != nil {
		return nil, err
	}
	rows, more := page.Cut(rows, p)
	return gen.ListBotGuilds200JSONResponse{Data: page.Each(rows, showServed), Page: p.Page, PerPage: p.PerPage, HasMore: more}, nil
}

func showServed(g served) gen.BotGuild {
	return gen.BotGuild{ID: g.ID, Name: g.Name, Status: g.Status, UpdatedAt: g.UpdatedAt}
}

// GetGuildSettings returns the guild's settings and which modules are enabled. The latter only
// inform the caller: no operation fails because its module is disabled.
func (s *Service) GetGuildSettings(ctx context.Context, _ gen.GetGuildSettingsRequestObject) (gen.GetGuildSettingsResponseObject, error) {
	g, err := getSettings(ctx, db.Read(ctx), auth.Acting(ctx).GuildID)
	if err != nil {
		return nil, err
	}
	g.Curve = s.Curve
	return gen.GetGuildSettings200JSONResponse{Data: showSettings(g)}, nil
}

// UpdateGuildSettings changes the given settings, also single members of nested objects, as a
// settings record does.
func (s *Service) UpdateGuildSettings(ctx context.Context, r gen.UpdateGuildSettingsRequestObject) (gen.UpdateGuildSettingsResponseObject, error) {
	tx, by := db.Write(ctx), auth.Acting(ctx)
	now, err := tx.Now(ctx)
	if err != nil {
		return nil, err
	}
	c, rec := &transfer.Call{By: by, Now: now, Emit: true}, transfer.Record{Text: *r.Body}
	b := transfer.NewBatch(Settings(s.Curve))
	if _, err := b.Add(c, &rec); err != nil {
		return nil, err
	}
	if err := b.Write(ctx, tx, c); err != nil {
		return nil, err
	}
	if rec.Err != nil {
		return nil, transfer.Fault(rec.Err, "body ")
	}
	if err := b.Emit(ctx, tx, c); err != nil {
		return nil, err
	}
	is, err := getSettings(ctx, tx, by.GuildID)
	if err != nil {
		return nil, err
	}
	is.Curve = s.Curve
	return gen.UpdateGuildSettings200JSONResponse{Data: showSettings(is)}, nil
}

func showSettings(g settings) gen.GuildSettings {
	return gen.GuildSettings{
		Modules: gen.GuildModules{
			Moderation: g.Moderation,
			Economy:    g.Modules.Economy,
			Levelling:  g.Modules.Levelling,
			Tickets:    g.Modules.Tickets,
			Giveaways:  g.Giveaways,
			Network:    g.Network,
		},
		Economy:   gen.EconomySettings{CurrencyName: g.CurrencyName, CurrencySymbol: g.CurrencySymbol},
		Levelling: gen.LevellingSettings{Curve: gen.LevelCurve(g.Curve), Periods: g.Periods},
		Tickets:   gen.TicketSettings{RequireCloseReason: g.RequireCloseReason, CloseAction: g.CloseAction},
		Timezone:  g.Timezone,
		UpdatedAt: g.UpdatedAt,
	}
}

// emitGuild records an event for what a record has changed in the guild. A change of the number of
// members records none.
func emitGuild(ctx context.Context, tx *db.Tx, c *transfer.Call, curve Curve, r *transfer.Row[row]) error {
	if r.Was == nil {
		return nil // nobody can listen to a new guild
	}
	var changed []string
	for _, member := range []struct {
		name    string
		differs bool
	}{
		{"name", r.Was.Name != r.Is.Name},
		{"icon_url", (r.Was.IconURL == nil) != (r.Is.IconURL == nil) || r.Was.IconURL != nil && *r.Was.IconURL != *r.Is.IconURL},
		{"owner_id", r.Was.OwnerID != r.Is.OwnerID},
		{"locale", r.Was.Locale != r.Is.Locale},
	} {
		if member.differs {
			changed = append(changed, member.name)
		}
	}
	return emitChanged(ctx, tx, c, curve, r.At, changed)
}

// emitSettings records an event for changed settings.
func emitSettings(ctx context.Context, tx *db.Tx, c *transfer.Call, curve Curve, r *transfer.Row[settings]) error {
	var changed []string
	for _, member := range []struct {
		name    string
		differs bool
	}{
		{"modules", r.Was.Modules != r.Is.Modules},
		{"economy", r.Was.Economy != r.Is.Economy},
		{"levelling", r.Was.Levelling != r.Is.Levelling},
		{"tickets", r.Was.Tickets != r.Is.Tickets},
		{"timezone", r.Was.Timezone != r.Is.Timezone},
	} {
		if member.differs {
			changed = append(changed, member.name)
		}
	}
	return emitChanged(ctx, tx, c, curve, r.At, changed)
}

func emitChanged(ctx context.Context, tx *db.Tx, c *transfer.Call, curve Curve, at wire.Time, changed []string) error {
	if len(changed) == 0 {
		return nil
	}
	g, err := get(ctx, tx, c.By.GuildID)
	if err != nil {
		return err
	}
	s, err := getSettings(ctx, tx, c.By.GuildID)
	if err != nil {
		return err
	}
	s.Curve = curve
	return event.Record(ctx, tx, event.From(c.By).On(at.Time), event.GuildUpdated, gen.GuildChange{
		Guild: show(g), Settings: showSettings(s), Changed: changed,
	})
}
