package giveaways

import (
	"context"
	"fmt"
	"testing"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/metadata"
	"guildhall/internal/base/wire"
	"guildhall/internal/service/transfer"
)

// A record sets the instants that belong to the new status, keeps those that it gives, and changes
// the status only as the bot may.
func TestARecordRevisesAGiveaway(t *testing.T) {
	t.Parallel()
	day := func(n int) *wire.Time { return new(wire.At(time.Date(2030, 1, n, 0, 0, 0, 0, time.UTC))) }
	now := day(20)
	instants := func(g *row) string {
		text := ""
		for _, at := range []*wire.Time{g.PausedAt, g.EndedAt} {
			if at == nil {
				text += "- "
			} else {
				text += fmt.Sprint(at.Time.UTC().Day(), " ")
			}
		}
		return text + fmt.Sprint(g.BotRun)
	}
	state := func(status string, pausedAt, endedAt *wire.Time) row {
		return row{
			Status: status, PausedAt: pausedAt, EndedAt: endedAt, Source: "bot",
			StartsAt: *day(1), EndsAt: *day(9), ChannelID: "1", Metadata: metadata.Values{},
		}
	}
	running := func(g row) row { g.BotRun = true; return g }
	short := func(status string) row { g := state(status, nil, nil); g.EndsAt = g.StartsAt; return g }
	ours := state(active, nil, nil)
	ours.Source = fromAPI
	for name, c := range map[string]struct {
		was      *row
		is       row
		imported bool
		want     string // paused at, ended at, and whether the bot runs it; empty: the record is refused
	}{
		"paused now":                 {is: state(paused, nil, nil), want: "20 - true"},
		"paused earlier":             {is: state(paused, day(5), nil), want: "5 - true"},
		"ended now":                  {is: state(ended, nil, nil), want: "- 20 true"},
		"ended earlier":              {is: state(ended, nil, day(6)), want: "- 6 true"},
		"ours":                       {is: ours, want: "- - false"},
		"imported":                   {is: state(active, nil, nil), imported: true, want: "- - false"},
		"active, paused at":          {is: state(active, day(5), nil)},
		"active, ended at":           {is: state(active, nil, day(5))},
		"active, of no time":         {is: short(active)},
		"being drawn, of no time":    {is: short(drawing), want: "- - true"},
		"ended, of no time":          {is: short(ended), want: "- 20 true"},
		"still paused":               {was: new(state(paused, day(5), nil)), is: state(paused, day(5), nil), want: "5 - false"},
		"paused at another time":     {was: new(state(paused, day(5), nil)), is: state(paused, day(6), nil), want: "6 - false"},
		"resumed":                    {was: new(state(paused, day(5), nil)), is: state(active, day(5), nil), want: "- - false"},
		"still active, paused at":    {was: new(state(active, nil, nil)), is: state(active, day(5), nil)},
		"ended at its time":          {was: new(state(ended, nil, day(6))), is: state(ended, nil, day(7)), want: "- 6 false"},
		"begun":                      {was: new(state(scheduled, nil, nil)), is: state(active, nil, nil), want: "- - false"},
		"paused before it has begun": {was: new(state(scheduled, nil, nil)), is: state(paused, nil, nil)},
		"ended by the bot":           {was: new(running(state(active, nil, nil))), is: running(state(ended, nil, nil)), want: "- 20 true"},
		"ended by nobody":            {was: new(state(active, nil, nil)), is: state(ended, nil, nil)},
		"back before its start":      {was: new(state(active, nil, nil)), is: state(scheduled, nil, nil)},
		"drawn, and active":          {was: new(state(drawing, nil, nil)), is: state(active, nil, nil)},
		"without a channel": {was: new(state(active, nil, nil)), is: func() row {
			g := state(active, nil, nil)
			g.ChannelID = ""
			return g
		}()},
	} {
		r := &transfer.Row[row]{Was: c.was, Is: c.is}
		err := revise(&transfer.Call{Now: now.Time, Import: importing(c.imported)}, r)
		if got := instants(&r.Is); (err == nil) != (c.want != "") || err == nil && got != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}

// An event lists the members that a record has changed.
func TestTheChangedMembersOfAGiveawayAreNamed(t *testing.T) {
	t.Parallel()
	a, b := ptr("a"), ptr("b")
	for _, c := range []struct {
		was, is *string
		changed bool
	}{{nil, nil, false}, {a, nil, true}, {nil, a, true}, {a, ptr("a"), false}, {a, b, true}} {
		list := changes(&row{Description: c.was, Prize: "x"}, &row{Description: c.is, Prize: "y"})
		if want := map[bool]string{true: "[prize description]", false: "[prize]"}[c.changed]; fmt.Sprint(list) != want {
			t.Errorf("changed are %v, want %s", list, want)
		}
	}
}

// The bot runs a giveaway from the time at which it names, in a record, one that it has created; an
// import does not make the bot run any.
func TestTheBotRunsWhatItNames(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	for _, imported := range []bool{false, true} {
		for _, source := range []string{"bot", fromAPI} {
			id := fmt.Sprint(source, imported)
			s.giveaway(id, active, 1, 0, nil)
			dbtest.Exec(t, s.DB, `UPDATE giveaways SET source = $2 WHERE id = $1`, id, source)
			dbtest.Do(t, s.DB, func(ctx context.Context, tx *db.Tx) error {
				call := &transfer.Call{By: auth.By{GuildID: guild}, Import: importing(imported)}
				return holdNamed(ctx, tx, call, []*transfer.Row[row]{{Is: row{ID: id}}})
			})
			if want := source == "bot" && !imported; s.get(id).BotRun != want {
				t.Errorf("source %s, imported %v: the bot runs it: %v", source, imported, !want)
			}
		}
	}
}

// importing returns the import of a call that belongs to one.
func importing(yes bool) *transfer.Import {
	if yes {
		return &transfer.Import{}
	}
	return nil
}
