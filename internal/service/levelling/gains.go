package levelling

import (
	"context"
	"time"

	"github.com/oapi-codegen/nullable"

	"guildhall/gen"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
	"guildhall/internal/service/batch"
	"guildhall/internal/service/leaderboard"
)

// The leaderboards of a period: of all who gained XP in it, and of those who are present.
var (
	gains        = leaderboard.NewTop("xp_periods", gainedIn, "xp", false)
	presentGains = leaderboard.NewTop("xp_periods", gainedIn, "xp", true)
)

const gainedIn = `guild_id = $1 AND kind = :first AND starts = :second::date AND xp > 0`

// gainsOf returns the leaderboard of a period, with or without those who left the guild.
func gainsOf(present bool) leaderboard.Top {
	if present {
		return presentGains
	}
	return gains
}

// askedPeriod returns the period that a request names, nil where it names none. It returns
// Refused when the guild does not count weeks and months.
func askedPeriod(ctx context.Context, q db.Querier, guild string, kind *gen.XPPeriodKind, at *string) (*period, error) {
	switch {
	case kind == nil && at == nil:
		return nil, nil //nolint:nilnil // there is no period, and that is no failure
	case kind == nil:
		return nil, fault.New(fault.Invalid, "invalid_request", "query at: needs period, week or month")
	}
	var day time.Time
	if at != nil {
		var err error
		if day, err = time.Parse(time.DateOnly, *at); err != nil {
			return nil, fault.New(fault.Invalid, "invalid_request", "query at: must be a date that there is, such as 2026-11-23")
		}
	}
	s, err := db.Get[struct {
		Periods  bool      `db:"xp_periods"`
		Timezone string    `db:"timezone"`
		Now      time.Time `db:"now"`
	}](ctx, q, `
		SELECT xp_periods, timezone, now() AS now
		FROM guild_settings
		WHERE guild_id = $1`, guild)
	switch {
	case err != nil:
		return nil, fault.Wrap(err, "read the settings of guild", guild)
	case !s.Periods:
		return nil, fault.New(fault.Refused, "periods_off", "This guild does not count XP by week and month: levelling.periods of its settings is off.")
	case at == nil:
		day = dayOf(s.Now, zoneOf(s.Timezone))
	}
	p := periodOf(string(*kind), day)
	return &p, nil
}

// parameters returns the arguments of the gains statements: the kind and first day of p.
func (p *period) parameters() []any { return []any{p.kind, p.start.Format(time.DateOnly)} }

// show returns the period as answers show it; null where p is nil.
func (p *period) show() nullable.Nullable[gen.LevelPeriod] {
	if p == nil {
		return nullable.NewNullNullable[gen.LevelPeriod]()
	}
	return nullable.NewNullableWithValue(gen.LevelPeriod{Start: p.start.Format(time.DateOnly), End: p.end.Format(time.DateOnly)})
}

// listGains returns one page of the members who gained most XP in a period.
func listGains(ctx context.Context, q db.Querier, guild string, of *period, p page.P, present bool) ([]gen.LevelLeaderboardEntry, bool, error) {
	rows, err := gainsOf(present).Page(ctx, q, guild, p, of.parameters()...)
	if err != nil || len(rows) == 0 {
		return []gen.LevelLeaderboardEntry{}, false, err
	}
	rows, more := page.Cut(rows, p)
	records := batch.Each(rows, func(r leaderboard.Row) *lookup { return &lookup{guild: guild, record: row{UserID: r.UserID}} })
	if err := answerEach(ctx, q, records); err != nil {
		return nil, false, err
	}
	list := make([]gen.LevelLeaderboardEntry, len(rows))
	for i, r := range rows {
		xp, gained := records[i].record.TotalXP, int(r.Points)
		list[i] = gen.LevelLeaderboardEntry{Rank: p.Offset() + i + 1, UserID: r.UserID, TotalXP: xp, Level: Level(xp), PeriodXP: &gained}
	}
	return list, more, nil
}

// rankGains returns a member's place among those who gained XP in a period.
func rankGains(ctx context.Context, q db.Querier, guild, user string, of *period, present bool) (gen.LevelRank, error) {
	place, err := gainsOf(present).Rank(ctx, q, guild, user, of.parameters()...)
	if err != nil {
		return gen.LevelRank{}, err
	}
	m, err := get(ctx, q, guild, user)
	gained := int(place.Points)
	return gen.LevelRank{Rank: place.Rank, UserID: user, TotalXP: m.TotalXP, Level: Level(m.TotalXP), Of: place.Of, PeriodXP: &gained}, err
}
