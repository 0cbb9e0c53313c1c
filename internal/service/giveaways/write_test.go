package giveaways

import (
	"context"
	"errors"
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

// A giveaway that records create or change gets a state that agrees with its draw. The table has a
// row for each source of the giveaway, each status, and for the bot's records and imports.
func TestGiveawaysOfRecordsStandWhereTheirDrawGoesOn(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	for i, c := range []struct {
		there          bool // stored before, in status active
		source, status string
		imported       bool
		want           string // whether the bot runs it, rounds, state of entries, whether drawing has begun, and whether it is due later
	}{
		{false, "bot", ended, false, "true 1 frozen true true"},
		{false, "bot", drawing, false, "true 0 open true true"},
		{false, "bot", paused, false, "true 0 open false true"},
		{false, "api", ended, false, "false 0 frozen true false"},
		{false, "api", drawing, false, "false 0 gathering true false"},
		{false, "api", paused, false, "false 0 open false false"},
		{false, "bot", ended, true, "false 1 open true false"},
		{false, "bot", paused, true, "false 0 open false false"},
		{false, "api", ended, true, "false 0 open true false"},
		{false, "api", drawing, true, "false 0 open true false"},
		{true, "bot", ended, false, "false 1 frozen true true"},
		{true, "bot", ended, true, "false 1 open true true"},
		{true, "bot", paused, false, "false 0 open false true"},
	} {
		now := wire.At(time.Now())
		r := &transfer.Row[row]{At: now, Is: row{
			GuildID: guild, ID: fmt.Sprint("g", i), Status: c.status, Prize: "A prize", WinnerCount: 1, ChannelID: "1", StartsAt: now, EndsAt: now,
			CreatedAt: now, UpdatedAt: now, Source: c.source, Metadata: metadata.Values{},
		}}
		if c.there {
			s.giveaway(r.Is.ID, active, 1, 0, nil)
			was := s.get(r.Is.ID)
			r.Was = &was
		}
		dbtest.Do(t, s.DB, func(ctx context.Context, tx *db.Tx) error {
			return store(ctx, tx, &transfer.Call{By: auth.By{GuildID: guild}, Import: importing(c.imported)}, []*transfer.Row[row]{r})
		})
		got := dbtest.Value[string](t, s.DB, `
			SELECT concat_ws(' ', bot_run::text, rounds, pot, (drawing_at IS NOT NULL)::text, (redraw_at > now() + interval '10 seconds')::text)
			FROM giveaways
			WHERE id = $1`, r.Is.ID)
		if got != c.want {
			t.Errorf("%+v: it is %s", c, got)
		}
	}
}

// A giveaway that was inserted after a record's lookup is not overwritten, and the call is retried.
func TestAGiveawayThatHasComeMeanwhileIsNotOverwritten(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	s.giveaway("g", active, 1, 0, nil)
	given := s.get("g")
	given.Prize = "Another"
	dbtest.Do(t, s.DB, func(ctx context.Context, tx *db.Tx) error {
		rows := []*transfer.Row[row]{{Is: given, At: given.UpdatedAt}}
		if err := store(ctx, tx, &transfer.Call{By: auth.By{GuildID: guild}}, rows); !errors.Is(err, db.Again) {
			t.Errorf("stored with %v, want %v", err, db.Again)
		}
		return nil
	})
	if g := s.get("g"); g.Prize != "A prize" {
		t.Errorf("the prize of the one that has come is %q", g.Prize)
	}
}

// At the end of an import the entries of giveaways whose time is over are closed, if they are open
// and no bot may still send some.
func TestEntriesCloseAtTheEndOfAnImport(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	cases := []struct{ name, is, want string }{
		{"runs", `status = 'active'`, "open before"},
		{"is drawn by a bot", `status = 'drawing', bot_run = true`, "open before"},
		{"is drawn here", `status = 'drawing'`, "frozen now"},
		{"is drawn here, of the API", `status = 'drawing', source = 'api'`, "gathering now"},
		{"was drawn by a bot", `status = 'ended', bot_run = true`, "frozen now"},
		{"was drawn, of the API", `status = 'ended', source = 'api'`, "frozen now"},
		{"is closed", `status = 'drawing', source = 'api', pot = 'frozen'`, "frozen before"},
	}
	for _, c := range cases {
		s.giveaway(c.name, active, 1, 0, nil)
		dbtest.Exec(t, s.DB, `UPDATE giveaways SET drawing_at = '2026-01-01', `+c.is+` WHERE id = $1`, c.name)
	}
	dbtest.Do(t, s.DB, func(ctx context.Context, tx *db.Tx) error { return closeEntries(ctx, tx, guild) })
	for _, c := range cases {
		got := dbtest.Value[string](t, s.DB, `
			SELECT pot || CASE WHEN drawing_at = '2026-01-01' THEN ' before' ELSE ' now' END FROM giveaways WHERE id = $1`, c.name)
		if got != c.want {
			t.Errorf("one that %s: %s, want %s", c.name, got, c.want)
		}
	}
}

// Records of one giveaway change neither the owner nor the counters of others in the guild.
func TestRecordsOfAGiveawayChangeNoOther(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	s.giveaway("g", active, 1, 2, equal)
	s.giveaway("other", active, 1, 3, equal)
	was := stored(t, s.DB, "other")
	for name, do := range map[string]func(ctx context.Context, tx *db.Tx) error{
		"takeOver": func(ctx context.Context, tx *db.Tx) error { return takeOver(ctx, tx, guild, []string{"g"}) },
		"raiseRounds": func(ctx context.Context, tx *db.Tx) error {
			return raiseRounds(ctx, tx, []record{{GuildID: guild, GiveawayID: "g", Round: 7}})
		},
		"storeCounts": func(ctx context.Context, tx *db.Tx) error {
			return storeCounts(ctx, tx, &transfer.Call{By: auth.By{GuildID: guild}, Import: importing(true)}, map[string]*counted{"g": {9, 9}})
		},
	} {
		dbtest.Do(t, s.DB, do)
		if is := stored(t, s.DB, "other"); is != was {
			t.Errorf("%s: the other was\n%s\nand is\n%s", name, was, is)
		}
	}
	if g := s.get("g"); !g.BotRun || g.Rounds != 7 || g.EntryCount != 9 || !g.UpdatedAt.Time.Equal(transfer.Pending.Time) {
		t.Errorf("the giveaway is %+v", g)
	}
}
