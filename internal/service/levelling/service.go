// Package levelling keeps the members' XP and tells their level from it. The
// level follows from the XP by one published curve and is nowhere stored. What
// a level brings (roles, announcements) is the bot's business, not this one's.
package levelling

import (
	"context"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/page"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
	"guildhall/internal/service/leaderboard"
)

// Service implements the operations on XP.
type Service struct{}

// GetLevelRecord returns a member's XP, level and progress. Anybody without
// activity has the zero record; that is not a failure.
func (s *Service) GetLevelRecord(ctx context.Context, r gen.GetLevelRecordRequestObject) (gen.GetLevelRecordResponseObject, error) {
	m, err := get(ctx, db.Read(ctx), auth.Acting(ctx).GuildID, r.UserID)
	if err != nil {
		return nil, err
	}
	return gen.GetLevelRecord200JSONResponse{Data: show(m)}, nil
}

// Query is a GetLevelRecord that is answered together with others.
type Query = batch.Query[row]

// NewQuery is what a request asks for.
func (*Service) NewQuery(ctx context.Context, r gen.GetLevelRecordRequestObject) *Query {
	return &Query{Guild: auth.Acting(ctx).GuildID, User: r.UserID}
}

// AnswerEach answers queries in one statement.
func AnswerEach(ctx context.Context, q db.Querier, list []*Query) error {
	return records.Read(ctx, q, list)
}

// Answered is the response of a query that is answered.
func Answered(q *Query) gen.GetLevelRecordResponseObject {
	q.Row.UserID = q.User // of the zero record
	return gen.GetLevelRecord200JSONResponse{Data: show(q.Row)}
}

// GetLevellingLeaderboard returns one page of the members with the most XP.
// Ranks are positions: members with equal XP have different ranks.
func (s *Service) GetLevellingLeaderboard(ctx context.Context, r gen.GetLevellingLeaderboardRequestObject) (gen.GetLevellingLeaderboardResponseObject, error) {
	q := s.NewPageQuery(ctx, r)
	if err := leaderboard.Levels.Answer(ctx, db.Read(ctx), []*leaderboard.Query{q}); err != nil {
		return nil, err
	}
	return AnsweredPage(q), nil
}

// NewPageQuery is what a request asks for.
func (*Service) NewPageQuery(ctx context.Context, r gen.GetLevellingLeaderboardRequestObject) *leaderboard.Query {
	return &leaderboard.Query{Guild: auth.Acting(ctx).GuildID, P: page.Of(r.Params.Page, r.Params.PerPage)}
}

// AnsweredPage is the response of a query that is answered.
func AnsweredPage(q *leaderboard.Query) gen.GetLevellingLeaderboardResponseObject {
	list, more := leaderboard.Entries(q, func(rank int, m leaderboard.Row) gen.LevelLeaderboardEntry {
		return gen.LevelLeaderboardEntry{Rank: rank, UserID: m.UserID, TotalXP: m.Points, Level: Level(m.Points)}
	})
	return gen.GetLevellingLeaderboard200JSONResponse{Data: list, Page: q.Page, PerPage: q.PerPage, HasMore: more}
}

// GetLevellingRank returns a member's place on the leaderboard. It is NotFound
// for a member without a record.
func (s *Service) GetLevellingRank(ctx context.Context, r gen.GetLevellingRankRequestObject) (gen.GetLevellingRankResponseObject, error) {
	p, err := leaderboard.Levels.Rank(ctx, db.Read(ctx), auth.Acting(ctx).GuildID, r.UserID)
	if err != nil {
		return nil, err
	}
	return gen.GetLevellingRank200JSONResponse{Data: gen.LevelRank{
		Rank: p.Rank, UserID: r.UserID, TotalXP: p.Points, Level: Level(p.Points), Of: p.Of,
	}}, nil
}

// AdjustXP adds to a member's XP or sets it, and tells the guild's endpoints
// when the level rises or falls, once however many levels it moves by. It is Refused,
// and nothing changes, when the XP would leave the range 0 to MaxXP.
func (s *Service) AdjustXP(ctx context.Context, r gen.AdjustXPRequestObject) (gen.AdjustXPResponseObject, error) {
	tx, a := db.Write(ctx), s.NewAdjustment(ctx, r)
	if err := statements.One(ctx, tx, a); err != nil {
		return nil, err
	}
	if err := tell(ctx, tx, a); err != nil {
		return nil, err
	}
	return a.Response()
}

// Adjustment is an AdjustXP that is made together with others'.
type Adjustment = change

// NewAdjustment is what a request asks for.
func (*Service) NewAdjustment(ctx context.Context, r gen.AdjustXPRequestObject) *Adjustment {
	return asChange(event.From(auth.Acting(ctx)).In(ctx), *r.Body)
}

func asChange(by event.Origin, asked gen.AdjustXPRequest) *change {
	// The document demands exactly one of the two.
	xp, exactly := asked.Delta, false
	if asked.TotalXP != nil {
		xp, exactly = asked.TotalXP, true
	}
	return &change{Change: batch.Change{By: by}, user: asked.UserID, xp: *xp, exactly: exactly}
}

// Subject is the member's record.
func (c *change) Subject() string { return c.By.GuildID + "/" + c.user }

// Response is that of a change that is decided.
func (c *change) Response() (gen.AdjustXPResponseObject, error) {
	if c.Refusal != nil {
		return nil, c.Refusal
	}
	return gen.AdjustXP200JSONResponse{Data: adjusted(c.row)}, nil
}

func adjusted(r row) gen.XPAdjustment {
	return gen.XPAdjustment{LevelRecord: show(r), PreviousLevel: Level(r.PreviousXP)}
}

// AdjustEach makes changes of several members' XP in one statement, in the unit
// that it is called in; the levels that have risen are told of with another one.
// Those changes that it leaves undecided have to be made by AdjustXP.
func AdjustEach(ctx context.Context, _ db.Querier, list []*Adjustment) error {
	tx := db.Write(ctx)
	if err := statements.Each(ctx, tx, list); err != nil {
		return err
	}
	return tell(ctx, tx, list...)
}

// told is what events of levels share that are recorded together.
type told struct {
	by  event.Origin
	typ string
}

// tell records the levels that have moved, those of one token and one direction
// together.
func tell(ctx context.Context, tx *db.Tx, list ...*Adjustment) error {
	moved := map[told][]event.Change{}
	for _, a := range list {
		now, before := Level(a.row.TotalXP), Level(a.row.PreviousXP)
		if !a.Made || now == before {
			continue
		}
		of := told{a.By, event.LevelUp}
		of.by.Trace = "" // each call's own
		if now < before {
			of.typ = event.LevelDown
		}
		moved[of] = append(moved[of], event.Change{At: *a.row.UpdatedAt, Trace: a.By.Trace, Data: gen.LevelUp{
			UserID: a.user, Level: now, PreviousLevel: before, TotalXP: a.row.TotalXP,
		}})
	}
	for of, changes := range moved {
		if err := event.RecordEach(ctx, tx, of.by, of.typ, changes); err != nil {
			return err
		}
	}
	return nil
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
