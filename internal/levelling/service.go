// Package levelling keeps the members' XP and tells their level from it. The
// level follows from the XP by one published curve and is nowhere stored. What
// a level brings (roles, announcements) is the bot's business, not this one's.
package levelling

import (
	"context"

	"guildhall/gen"
	"guildhall/internal/auth"
	"guildhall/internal/db"
	"guildhall/internal/event"
	"guildhall/internal/leaderboard"
	"guildhall/internal/page"
	"guildhall/internal/wire"
)

// Service implements the operations on XP.
type Service struct{}

// GetLevelRecord returns a member's XP, level and progress. Anybody without
// activity has the zero record; that is not a failure.
func (s *Service) GetLevelRecord(ctx context.Context, r gen.GetLevelRecordRequestObject) (gen.GetLevelRecordResponseObject, error) {
	m, err := get(ctx, db.Read(ctx), auth.From(ctx).GuildID, r.UserID)
	if err != nil {
		return nil, err
	}
	return gen.GetLevelRecord200JSONResponse{Data: show(m)}, nil
}

// GetLevellingLeaderboard returns one page of the members with the most XP.
// Ranks are positions: members with equal XP have different ranks.
func (s *Service) GetLevellingLeaderboard(ctx context.Context, r gen.GetLevellingLeaderboardRequestObject) (gen.GetLevellingLeaderboardResponseObject, error) {
	p := page.Of(r.Params.Page, r.Params.PerPage)
	rows, err := leaderboard.Levels.Page(ctx, db.Read(ctx), auth.From(ctx).GuildID, p)
	if err != nil {
		return nil, err
	}
	rows, more := page.Cut(rows, p)
	data := make([]gen.LevelLeaderboardEntry, len(rows))
	for i, m := range rows {
		data[i] = gen.LevelLeaderboardEntry{
			Rank:    p.Offset() + i + 1,
			UserID:  m.UserID,
			TotalXP: m.Points,
			Level:   Level(m.Points),
		}
	}
	return gen.GetLevellingLeaderboard200JSONResponse{Data: data, Page: p.Page, PerPage: p.PerPage, HasMore: more}, nil
}

// GetLevellingRank returns a member's place on the leaderboard. It is NotFound
// for a member without a record.
func (s *Service) GetLevellingRank(ctx context.Context, r gen.GetLevellingRankRequestObject) (gen.GetLevellingRankResponseObject, error) {
	p, err := leaderboard.Levels.Rank(ctx, db.Read(ctx), auth.From(ctx).GuildID, r.UserID)
	if err != nil {
		return nil, err
	}
	return gen.GetLevellingRank200JSONResponse{Data: gen.LevelRank{
		Rank: p.Rank, UserID: r.UserID, TotalXP: p.Points, Level: Level(p.Points), Of: p.Of,
	}}, nil
}

// AdjustXP adds to a member's XP or sets it, and tells the guild's endpoints
// when the level rises, once however many levels it rises by. It is Refused,
// and nothing changes, when the XP would leave the range 0 to MaxXP.
func (s *Service) AdjustXP(ctx context.Context, r gen.AdjustXPRequestObject) (gen.AdjustXPResponseObject, error) {
	tx, by := db.Write(ctx), auth.From(ctx)
	// The document demands exactly one of the two.
	xp, exactly := r.Body.Delta, false
	if r.Body.TotalXP != nil {
		xp, exactly = r.Body.TotalXP, true
	}
	m, err := adjust(ctx, tx, by.GuildID, r.Body.UserID, *xp, exactly)
	if err != nil {
		return nil, err
	}
	now, before := show(m), Level(m.PreviousXP)
	if now.Level > before {
		err := event.Record(ctx, tx, event.From(by).On(*m.UpdatedAt), event.LevelUp, gen.LevelUp{
			UserID: m.UserID, Level: now.Level, PreviousLevel: before, TotalXP: m.TotalXP,
		})
		if err != nil {
			return nil, err
		}
	}
	return gen.AdjustXP200JSONResponse{Data: gen.XPAdjustment{
		UserID: now.UserID, TotalXP: now.TotalXP, Level: now.Level, PreviousLevel: before,
		Progress: now.Progress, UpdatedAt: now.UpdatedAt,
	}}, nil
}

func show(m row) gen.LevelRecord {
	p := ProgressOf(m.TotalXP)
	return gen.LevelRecord{
		UserID:    m.UserID,
		TotalXP:   m.TotalXP,
		Level:     Level(m.TotalXP),
		Progress:  gen.LevelProgress{CurrentXP: p.Current, RequiredXP: p.Required, Percent: p.Percent},
		UpdatedAt: wire.AtPtr(m.UpdatedAt),
	}
}
