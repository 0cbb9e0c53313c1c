package giveaways

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/chat"
)

// A draw waits until the reactions are read, and as long as the bot may send the result of a
// giveaway that it runs.
func TestADrawWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	for name, c := range map[string]struct{ state, then string }{
		"reactions are read":       {`pot = 'gathering'`, drawing},
		"reactions have been":      {`pot = 'frozen'`, ended},
		"the bot may tell":         {`bot_run = true, drawing_at = now() - interval '50 seconds'`, drawing},
		"the bot has had its turn": {`bot_run = true, drawing_at = now() - interval '60 seconds'`, ended},
		"nobody else runs it":      {`drawing_at = now()`, ended},
	} {
		s.giveaway(name, drawing, 1, 3, equal)
		dbtest.Exec(t, s.DB, `UPDATE giveaways SET `+c.state+` WHERE id = $1`, name)
		if err := Draw(t.Context(), s.DB, guild, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if status := s.get(name).Status; status != c.then {
			t.Errorf("%s: it is %s, want %s", name, status, c.then)
		}
	}
}

// counting is a platform that counts the messages posted.
type counting struct {
	chat.StandIn
	posts int
}

// SendMessage counts m.
func (c *counting) SendMessage(context.Context, chat.Message) (string, error) {
	c.posts++
	return "901", nil
}

// A giveaway of the API gets one message, posted once while members can enter or may soon again.
// When it is over, nothing of an unposted message is left.
func TestAGiveawayIsPresentedOnceWhileItRuns(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	for _, c := range []struct {
		status, source string
		prepared       int
		posts          int
	}{{active, fromAPI, 1, 1}, {paused, fromAPI, 1, 1}, {drawing, fromAPI, 1, 0}, {ended, fromAPI, 1, 0}, {active, "bot", 0, 0}} {
		name := c.status + " " + c.source
		s.giveaway(name, c.status, 1, 0, nil)
		dbtest.Exec(t, s.DB, `UPDATE giveaways SET source = $2 WHERE id = $1`, name, c.source)
		for range 2 {
			dbtest.Do(t, s.DB, func(ctx context.Context, tx *db.Tx) error { return present(ctx, tx, s.get(name)) })
		}
		intents := func() db.Strings {
			return dbtest.Value[db.Strings](t, s.DB, `
				SELECT coalesce(array_agg(id), '{}') FROM chat_intents WHERE subject_id = $1`, name)
		}
		prepared := intents()
		if len(prepared) != c.prepared {
			t.Errorf("%s: %d messages are prepared", name, len(prepared))
		}
		platform := &counting{}
		for _, id := range prepared {
			for range 2 {
				if err := Announce(t.Context(), s.DB, platform, guild, id); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		if left := len(intents()); platform.posts != c.posts || left != c.posts {
			t.Errorf("%s: %d messages are posted and %d are left", name, platform.posts, left)
		}
	}
}

// stuck is a platform that returns the same full page for every request.
type stuck struct {
	chat.StandIn
	pages int
}

// EditMessage does nothing.
func (*stuck) EditMessage(context.Context, chat.Channel, string, string) error { return nil }

// Reactors returns the same hundred members, five times in all.
func (s *stuck) Reactors(context.Context, chat.Channel, string, string, chat.Reaction, string) ([]chat.Reactor, error) {
	if s.pages++; s.pages > 5 {
		return nil, errMute
	}
	list := make([]chat.Reactor, chat.ReactorsPage)
	for i := range list {
		list[i].UserID = user(i)
	}
	return list, nil
}

// A page without new members ends the reading.
func TestReadingReactionsEndsThoughPagesRepeat(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	s.giveaway("g", drawing, 1, 0, nil)
	dbtest.Exec(t, s.DB, `UPDATE giveaways SET source = 'api', message_id = '901', pot = 'gathering', redraw_at = now()`)
	if err := Gather(t.Context(), s.DB, &stuck{}, guild, "g"); err != nil {
		t.Fatal(err)
	}
	if g := s.get("g"); g.Pot != frozen || g.EntrantCount != chat.ReactorsPage {
		t.Errorf("the pot is %s, with %d entrants", g.Pot, g.EntrantCount)
	}
}

// Members who enter by reacting change what is shown of their giveaway, and so its updated_at, by
// which copies are made. A page without new members does not.
func TestMembersWhoEnterByReactingChangeTheirGiveaway(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	s.giveaway("g", drawing, 1, 0, nil)
	dbtest.Exec(t, s.DB, `UPDATE giveaways SET source = 'api', message_id = '901', pot = 'gathering'`)
	was := s.get("g")
	page, err := (&stuck{}).Reactors(t.Context(), chat.Channel{}, "", "", chat.Normal, "")
	if err != nil {
		t.Fatal(err)
	}
	some, err := enter(t.Context(), s.DB, was, page)
	if err != nil || !some.UpdatedAt.Time.After(was.UpdatedAt.Time) {
		t.Fatalf("%d entrants changed %v to %v: %v", some.EntrantCount, was.UpdatedAt, some.UpdatedAt, err)
	}
	if none, err := enter(t.Context(), s.DB, some, nil); err != nil || !none.UpdatedAt.Time.Equal(some.UpdatedAt.Time) {
		t.Errorf("nobody changed %v to %v: %v", some.UpdatedAt, none.UpdatedAt, err)
	}
}

// A worker with an outdated view of a giveaway does not overwrite later changes.
func TestALateReaderOfReactionsChangesNothing(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	read := func(ctx context.Context, g row) error {
		_, err := enter(ctx, s.DB, g, []chat.Reactor{{UserID: "5"}})
		return err
	}
	unposted := func(ctx context.Context, g row) error { return endUnposted(ctx, s.DB, g) }
	gone := func(ctx context.Context, g row) error {
		err := missed(ctx, s.DB, g, &chat.Failure{Code: chat.CodeUnknownMessage})
		if _, ok := errors.AsType[*chat.Failure](err); ok {
			return nil // the refusal of the statement is expected
		}
		return err
	}
	for name, c := range map[string]struct {
		do    func(context.Context, row) error
		since string
	}{
		"a page":                        {read, `reaction_count = 0`},
		"a page that was read":          {read, `reaction_after = '5', reaction_count = 1`},
		"a page, frozen":                {read, `pot = 'frozen'`},
		"no message, posted":            {unposted, `message_id = '901'`},
		"no message, frozen":            {unposted, `pot = 'frozen', reactions_missed = true`},
		"the message is gone, all read": {gone, `pot = 'frozen'`},
		"a page of another message":     {read, `message_id = '901'`},
		"one is gone, another is there": {gone, `message_id = '901'`},
		"it is gone, and elsewhere":     {gone, `channel_id = '901'`},
	} {
		s.giveaway(name, drawing, 1, 0, nil)
		dbtest.Exec(t, s.DB, `UPDATE giveaways SET source = 'api', pot = 'gathering', drawing_at = now() WHERE id = $1`, name)
		old := s.get(name)
		dbtest.Exec(t, s.DB, `UPDATE giveaways SET `+c.since+` WHERE id = $1`, name)
		was := stored(t, s.DB, name)
		if err := c.do(t.Context(), old); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if is := stored(t, s.DB, name); (is == was) != (name != "a page") {
			t.Errorf("%s: it was\n%s\nand is\n%s", name, was, is)
		}
	}
}

// Reading reactions ends for a message that was posted and deleted at once, and the giveaway says
// that reactions are missing.
func TestAMessageThatWasDeletedAtOnceIsMissed(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	for state, want := range map[string]string{"pending": "frozen false", "sending": "gathering false", chat.Sent: "frozen true"} {
		s.giveaway(state, active, 1, 0, nil)
		dbtest.Exec(t, s.DB, `UPDATE giveaways SET source = 'api' WHERE id = $1`, state)
		dbtest.Do(t, s.DB, func(ctx context.Context, tx *db.Tx) error { return present(ctx, tx, s.get(state)) })
		dbtest.Exec(t, s.DB, `UPDATE chat_intents SET state = $1 WHERE subject_id = $1`, state)
		dbtest.Exec(t, s.DB, `
			UPDATE giveaways SET status = 'drawing', pot = 'gathering', drawing_at = now(), redraw_at = now()
			WHERE id = $1`, state)
		if err := Gather(t.Context(), s.DB, mute{}, guild, state); (err != nil) != (state == "sending") {
			t.Errorf("%s: %v", state, err)
		}
		if is := s.get(state); fmt.Sprint(is.Pot, " ", is.ReactionsMissed) != want {
			t.Errorf("%s: the pot is %s, reactions are missed: %v", state, is.Pot, is.ReactionsMissed)
		}
	}
}

// deaf is a platform on which the message or its channel is gone.
type deaf struct {
	mute
	code int
}

func (d deaf) failure() error {
	return &chat.Failure{Status: http.StatusNotFound, Code: d.code, Message: "Unknown"}
}

// AddReaction returns the failure.
func (d deaf) AddReaction(context.Context, chat.Channel, string, string) error { return d.failure() }

// Reactors returns the failure.
func (d deaf) Reactors(context.Context, chat.Channel, string, string, chat.Reaction, string) ([]chat.Reactor, error) {
	return nil, d.failure()
}

// If the message or its channel is gone, the bot continues without it at once.
func TestTheBotDoesWithoutWhatIsGone(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	for code, givenUp := range map[int]bool{chat.CodeUnknownMessage: true, chat.CodeUnknownChannel: true, chat.CodeMissingAccess: false} {
		name := strconv.Itoa(code)
		s.giveaway(name, drawing, 1, 0, nil)
		dbtest.Exec(t, s.DB, `
			UPDATE giveaways SET message_id = '901', pot = 'gathering', drawing_at = now(), react_at = now(), redraw_at = now()
			WHERE id = $1`, name)
		for what, do := range map[string]func(context.Context, db.Doer, chat.Platform, string, string) error{"react": React, "gather": Gather} {
			if err := do(t.Context(), s.DB, deaf{code: code}, guild, name); err == nil {
				t.Errorf("%s, %d: the failure goes unnoticed", what, code)
			}
		}
		left := dbtest.Value[string](t, s.DB, `SELECT concat_ws(' ', react_at IS NULL, pot = 'frozen') FROM giveaways WHERE id = $1`, name)
		if want := map[bool]string{true: "t t", false: "f f"}[givenUp]; left != want {
			t.Errorf("%d: given up are %s, want %s", code, left, want)
		}
	}
}

// A giveaway is created only in a channel that was checked before.
func TestAChannelThatNobodyHasAskedAboutIsNotUsed(t *testing.T) {
	t.Parallel()
	asked := context.WithValue(t.Context(), checkedKey{}, checked{channel: "1"})
	for name, c := range map[string]struct {
		ctx     context.Context
		channel string
		fails   bool
	}{"asked about": {asked, "1", false}, "another": {asked, "2", true}, "none": {t.Context(), "", true}} {
		if err := checkedChannel(c.ctx, c.channel); (err != nil) != c.fails {
			t.Errorf("%s: %v", name, err)
		}
	}
}
