package giveaways

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/chat"
)

// Both queries for due giveaways find only giveaways that can change status, and the statements
// that change them check again.
func TestOnlyGiveawaysWhoseTimeHasComeAreMoved(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "a", "b")
	dbtest.Exec(t, d, `
		INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, starts_at, ends_at)
		SELECT guild, guild || n, status, 'A prize', 1, '1', now() + starts * interval '1 hour', now() + ends * interval '1 hour'
		FROM (VALUES ('a', 1, 'scheduled', -1, 1), ('a', 2, 'scheduled', 1, 2), ('a', 3, 'active', -2, -1), ('a', 4, 'active', -1, 1),
		             ('a', 5, 'paused', -2, -1), ('a', 6, 'scheduled', -1, 1), ('a', 7, 'active', -2, -1),
		             ('b', 1, 'scheduled', -1, 1), ('b', 2, 'active', -2, -1)) AS g (guild, n, status, starts, ends)`)
	dbtest.Exec(t, d, `UPDATE guilds SET removed_at = now(), removed_after = now() WHERE id = 'b'`)
	for name, c := range map[string]struct{ look, move, found string }{
		"start":  {startDue, start, "a1 a6"},
		"finish": {finishDue, finish, "a3 a7"},
	} {
		found, err := db.Select[db.Found](t.Context(), d.Reader(), c.look, 10)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, f := range found {
			ids = append(ids, f.ID)
		}
		slices.Sort(ids)
		if got := strings.Join(ids, " "); got != c.found {
			t.Errorf("%s: found %q, want %q", name, got, c.found)
		}
		dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
			// The last of the giveaways found is not passed on; others are.
			moved, err := moveDue(ctx, tx, c.move, "a", append([]string{"a2", "a4", "a5"}, ids[0]))
			if err == nil && (len(moved) != 1 || moved[0].ID != ids[0]) {
				t.Errorf("%s has moved %+v, want %s", name, moved, ids[0])
			}
			return err
		})
	}
}

// A giveaway that has no work, or none yet, stays unchanged even if a worker or an answer names it.
func TestWhatIsNotDueIsLeftAlone(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, guild)
	do := func(work func(ctx context.Context, tx *db.Tx) error) func(ctx context.Context) error {
		return func(ctx context.Context) error { return d.Do(ctx, work) }
	}
	gather := func(ctx context.Context) error { _, err := claim(ctx, d, guild, "g"); return err }
	react := func(ctx context.Context) error { _, err := claimReaction(ctx, d, guild, "g"); return err }
	edit := func(ctx context.Context) error { return Edit(ctx, d, chat.Off{}, guild, "g") }
	answered := do(func(ctx context.Context, tx *db.Tx) error {
		return Answered(ctx, tx, chat.Answered{GuildID: guild, GiveawayID: "g"})
	})
	later := do(func(ctx context.Context, tx *db.Tx) error {
		_, err := db.Exec(ctx, tx, toDraw.Postpone(), guild, "g")
		return err
	})
	note := do(func(ctx context.Context, tx *db.Tx) error {
		return posted(ctx, tx, chat.Intent{GuildID: guild, SubjectID: "g"}, "902")
	})
	freezing := do(func(ctx context.Context, tx *db.Tx) error {
		return freeze(ctx, tx, row{GuildID: guild, ID: "g"}, &postDeleted)
	})
	for _, c := range []struct {
		name    string
		do      func(context.Context) error
		state   string // changes to the giveaway's initial columns
		changes bool
	}{
		{"gather", gather, `status = 'drawing', pot = 'gathering', redraw_at = now()`, true},
		{"gather, later", gather, `status = 'drawing', pot = 'gathering'`, false},
		{"gather, frozen", gather, `status = 'drawing', pot = 'frozen', redraw_at = now()`, false},
		{"freeze", freezing, `status = 'drawing', pot = 'gathering'`, true},
		{"react", react, `react_at = now()`, true},
		{"react, later", react, `react_at = now() + interval '1 hour'`, false},
		{"edit", edit, `edit_at = now()`, true},
		{"edit, later", edit, `edit_at = now() + interval '1 hour'`, false},
		{"answered", answered, `status = 'drawing', pot = 'gathering'`, true},
		{"answered, an edit", answered, `edit_at = now() + interval '1 hour'`, true},
		{"answered, no edit", answered, `status = 'ended', pot = 'frozen'`, false},
		{"answered, frozen", answered, `status = 'drawing', pot = 'frozen'`, false},
		{"postpone", later, `status = 'drawing', pot = 'open'`, true},
		{"postpone, gathering", later, `status = 'drawing', pot = 'gathering'`, false},
		{"postpone, drawn", later, `status = 'ended', pot = 'frozen'`, false},
		{"posted", note, `message_id = NULL`, true},
		{"posted, a second one", note, `status = 'active'`, false},
	} {
		dbtest.Exec(t, d, `DELETE FROM giveaways`)
		dbtest.Exec(t, d, `
			INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, message_id, starts_at, ends_at, redraw_at)
			SELECT $1, id, 'active', 'A prize', 1, '1', '901', now(), now() + interval '1 day', now() + interval '1 hour'
			FROM unnest(ARRAY['g', 'other']) id`, guild)
		dbtest.Exec(t, d, `UPDATE giveaways SET `+c.state)
		was, other := stored(t, d, "g"), stored(t, d, "other")
		if err := c.do(t.Context()); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if is := stored(t, d, "g"); (is != was) != c.changes {
			t.Errorf("%s: it was\n%s\nand is\n%s", c.name, was, is)
		}
		if is := stored(t, d, "other"); is != other {
			t.Errorf("%s: another was\n%s\nand is\n%s", c.name, other, is)
		}
	}
}

// mute is a platform on which every call fails.
type mute struct{ chat.Off }

var errMute = errors.New("no answer")

func (mute) EditMessage(context.Context, chat.Channel, string, string) error { return errMute }

func (mute) AddReaction(context.Context, chat.Channel, string, string) error { return errMute }

func (mute) Reactors(context.Context, chat.Channel, string, string, chat.Reaction, string) ([]chat.Reactor, error) {
	return nil, errMute
}

// The bot retries a hundred times what the platform never accepts, and reading reactions for a day.
// Then it continues without.
func TestTheBotGivesUpInTheEnd(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	for _, c := range []struct {
		name, status, state string
		do                  func(ctx context.Context, d db.Doer, p chat.Platform, guild, id string) error
		givenUp             bool
	}{
		{"react", active, `react_at = now(), failures = 99`, React, false},
		{"react, once more", active, `react_at = now(), failures = 100`, React, true},
		{"edit", ended, `edit_at = now(), edit_failures = 99`, Edit, false},
		{"edit, once more", ended, `edit_at = now(), edit_failures = 100`, Edit, true},
		{"gather", drawing, `pot = 'gathering', redraw_at = now(), drawing_at = now() - interval '23 hours'`, Gather, false},
		{"gather, after a day", drawing, `pot = 'gathering', redraw_at = now(), drawing_at = now() - interval '24 hours'`, Gather, true},
	} {
		s.giveaway(c.name, c.status, 1, 0, nil)
		dbtest.Exec(t, s.DB, `UPDATE giveaways SET message_id = '901', `+c.state+` WHERE id = $1`, c.name)
		if err := c.do(t.Context(), s.DB, mute{}, guild, c.name); !errors.Is(err, errMute) {
			t.Errorf("%s: %v", c.name, err)
		}
		givenUp := dbtest.Value[bool](t, s.DB, `
			SELECT react_at IS NULL AND edit_at IS NULL AND pot <> 'gathering'
			FROM giveaways
			WHERE id = $1`, c.name)
		if givenUp != c.givenUp {
			t.Errorf("%s: given up: %v", c.name, givenUp)
		}
	}
}

// Once the message exists, the bot's reaction is due while members can enter, and an edit if the
// giveaway is no longer as the message says.
func TestAMessageThatComesIsReactedToOrEdited(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	for status, want := range map[string][2]bool{active: {true, false}, paused: {true, true}, drawing: {false, true}, ended: {false, true}} {
		s.giveaway(status, status, 1, 0, nil)
		text := startedText(s.get(status))
		dbtest.Do(t, s.DB, func(ctx context.Context, tx *db.Tx) error {
			return posted(ctx, tx, chat.Intent{GuildID: guild, SubjectID: status, Content: text}, "902")
		})
		react := dbtest.Value[bool](t, s.DB, `SELECT react_at IS NOT NULL FROM giveaways WHERE id = $1`, status)
		edit := s.get(status).EditAt != nil
		if got := [2]bool{react, edit}; got != want {
			t.Errorf("%s: to react and to edit %v, want %v", status, got, want)
		}
	}
}

// An edit is complete when the message shows the giveaway as it is. After a concurrent change, or
// under another worker's lease, it stays due.
func TestAnEditIsOverWhenTheMessageShowsWhatIsThere(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	for _, c := range []struct {
		name, change string
		due          bool
	}{
		{"nothing", `prize = prize`, false},
		{"a reroll", `winners = '{8}'`, true},
		{"the draw", `status = 'drawing'`, true},
		{"a later lease", dbtest.Earlier(`interval '-1 minute'`, "edit_at"), true},
	} {
		other := "not " + c.name
		s.giveaway(c.name, ended, 1, 0, nil)
		s.giveaway(other, ended, 1, 0, nil)
		dbtest.Exec(t, s.DB, `UPDATE giveaways SET winners = '{7}', edit_at = now() WHERE id IN ($1, $2)`, c.name, other)
		shown := s.get(c.name)
		dbtest.Exec(t, s.DB, `UPDATE giveaways SET `+c.change+` WHERE id = $1`, c.name)
		was := s.get(c.name)
		dbtest.Do(t, s.DB, func(ctx context.Context, tx *db.Tx) error { return edited(ctx, tx, shown, nil) })
		is := s.get(c.name)
		if (is.EditAt != nil) != c.due || s.get(other).EditAt == nil {
			t.Errorf("after %s an edit is due: %v, and of another: %v", c.name, is.EditAt, s.get(other).EditAt)
		}
		if c.name == "a later lease" && !is.EditAt.Equal(*was.EditAt) {
			t.Errorf("the holder of an earlier lease made %v of %v", is.EditAt, was.EditAt)
		}
	}
}
