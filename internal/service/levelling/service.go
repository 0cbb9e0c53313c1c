// Package levelling stores the members' XP. The level is not stored: it is computed from the XP by
// one published curve. The bot gives out roles and posts announcements for a level.
package levelling

import (
	"context"
	"slices"
	"time"

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
type Service struct {
	adjustments *batch.Writes[*change]
	records     *batch.Reads[*lookup]
	pages       *batch.Reads[*leaderboard.Query]
}

// New returns the service.
func New(h batch.Host) *Service {
	return &Service{
		adjustments: batch.NewWrites(h, "adjustXp", adjustEach, adjustAll),
		records:     batch.NewReads(h, "getLevelRecord", answer, answerEach),
		pages:       batch.NewPages(h, "getLevellingLeaderboard", leaderboard.Levels.Answer),
	}
}

// GetLevelRecord returns a member's XP, level and progress. A member without activity has a record
// of zeros.
func (s *Service) GetLevelRecord(ctx context.Context, r gen.GetLevelRecordRequestObject) (gen.GetLevelRecordResponseObject, error) {
	by := auth.Acting(ctx)
	q := &lookup{guild: by.GuildID, record: row{UserID: r.UserID}}
	if err := s.records.Do(ctx, by, q); err != nil {
		return nil, err
	}
	return gen.GetLevelRecord200JSONResponse{Data: show(q.record)}, nil
}

// ListLevelRecords returns the records of several members, in the order of the request, each member
// once.
func (*Service) ListLevelRecords(ctx context.Context, r gen.ListLevelRecordsRequestObject) (gen.ListLevelRecordsResponseObject, error) {
	guild := auth.Acting(ctx).GuildID
	var list []*lookup
	for _, user := range r.Params.UserIds {
		if !slices.ContainsFunc(list, func(l *lookup) bool { return l.record.UserID == user }) {
			list = append(list, &lookup{guild: guild, record: row{UserID: user}})
		}
	}
	if err := answerEach(ctx, db.Read(ctx), list); err != nil {
		return nil, err
	}
	data := batch.Each(list, func(l *lookup) gen.LevelRecord { return show(l.record) })
	return gen.ListLevelRecords200JSONResponse{Data: data, Page: 1, PerPage: maxListed}, nil
}

// maxListed is how many members user_ids may name, and the size of the page.
const maxListed = 100

// GetLevellingLeaderboard returns one page of the members with the most XP, of all time or gained
// in a week or month. Ranks are positions: members with equal XP have different ranks.
func (s *Service) GetLevellingLeaderboard(ctx context.Context, r gen.GetLevellingLeaderboardRequestObject) (gen.GetLevellingLeaderboardResponseObject, error) {
	by, asked := auth.Acting(ctx), r.Params
	of, err := askedPeriod(ctx, db.Read(ctx), by.GuildID, asked.Period, asked.At)
	if err != nil {
		return nil, err
	}
	q := &leaderboard.Query{Guild: by.GuildID, P: page.Of(asked.Page, asked.PerPage), Present: asked.Present}
	shown := gen.GetLevellingLeaderboard200JSONResponse{Page: q.Page, PerPage: q.PerPage, Period: of.show()}
	if of != nil {
		shown.Data, shown.HasMore, err = listGains(ctx, db.Read(ctx), by.GuildID, of, q.P, q.Present)
		return shown, err
	}
	if err := s.pages.Do(ctx, by, q); err != nil {
		return nil, err
	}
	shown.Data, shown.HasMore = leaderboard.Entries(q, func(rank int, m leaderboard.Row) gen.LevelLeaderboardEntry {
		return gen.LevelLeaderboardEntry{Rank: rank, UserID: m.UserID, TotalXP: m.Points, Level: Level(m.Points)}
	})
	return shown, nil
}

// GetLevellingRank returns a member's place on the leaderboard, of all time or of a week or month.
// It returns NotFound for a member who is not on it.
func (s *Service) GetLevellingRank(ctx context.Context, r gen.GetLevellingRankRequestObject) (gen.GetLevellingRankResponseObject, error) {
	q, guild := db.Read(ctx), auth.Acting(ctx).GuildID
	of, err := askedPeriod(ctx, q, guild, r.Params.Period, r.Params.At)
	if err != nil {
		return nil, err
	}
	if of != nil {
		rank, err := rankGains(ctx, q, guild, r.UserID, of, r.Params.Present)
		if err != nil {
			return nil, err
		}
		return gen.GetLevellingRank200JSONResponse{Data: rank, Period: of.show()}, nil
	}
	p, err := leaderboard.Levels.Rank(ctx, q, guild, r.UserID, r.Params.Present)
	if err != nil {
		return nil, err
	}
	return gen.GetLevellingRank200JSONResponse{Data: gen.LevelRank{
		Rank: p.Rank, UserID: r.UserID, TotalXP: p.Points, Level: Level(p.Points), Of: p.Of,
	}, Period: of.show()}, nil
}

// AdjustXP adds to a member's XP or sets the XP, and emits one event if the level rises or falls,
// by however many levels. If the XP would leave the range 0 to MaxXP, the error is Refused. Outside
// a unit of work, the change joins a batch of concurrent changes, or falls back.
func (s *Service) AdjustXP(ctx context.Context, r gen.AdjustXPRequestObject) (gen.AdjustXPResponseObject, error) {
	c := asChange(batch.ChangeOf(ctx, event.From(auth.Acting(ctx))), *r.Body)
	if err := s.adjustments.Do(ctx, c); err != nil {
		return nil, err
	}
	return Adjusted(c.user, c.row.PreviousXP, c.row.TotalXP, *c.row.UpdatedAt), nil
}

// change is a change of one member's XP.
type change struct {
	batch.Change
	user    string
	xp      int64
	exactly bool // xp is the new XP; if false, xp is added

	row row // record after the change
}

// Member returns the member whose XP is changed.
func (c *change) Member() string { return c.user }

// kept returns the factor of the current XP in the new XP: 0 if the change sets the XP, otherwise
// 1.
func (c *change) kept() int64 {
	if c.exactly {
		return 0
	}
	return 1
}

func asChange(of batch.Change, asked gen.AdjustXPRequest) *change {
	// The API document requires exactly one of the two fields.
	xp, exactly := asked.Delta, false
	if asked.TotalXP != nil {
		xp, exactly = asked.TotalXP, true
	}
	return &change{Change: of, user: asked.UserID, xp: *xp, exactly: exactly}
}

// Adjusted returns the response to a change of a member's XP.
func Adjusted(user string, before, after int64, at time.Time) gen.AdjustXPResponseObject {
	return gen.AdjustXP200JSONResponse{Data: adjusted(row{UserID: user, TotalXP: after, PreviousXP: before, UpdatedAt: &at})}
}

func adjusted(r row) gen.XPAdjustment {
	return gen.XPAdjustment{LevelRecord: show(r), PreviousLevel: Level(r.PreviousXP)}
}

// eventKind groups the events of levels that one statement records.
type eventKind struct {
	by  event.Origin
	typ string
}

// emit records an event for each changed level, with one statement for each token and direction.
func emit(ctx context.Context, tx *db.Tx, list ...*change) error {
	moved := map[eventKind][]event.Change{}
	for _, a := range list {
		now, before := Level(a.row.TotalXP), Level(a.row.PreviousXP)
		if !a.Applied || now == before {
			continue
		}
		of := eventKind{a.By, event.LevelUp}
		of.by.Trace = "" // each change has its own trace
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
