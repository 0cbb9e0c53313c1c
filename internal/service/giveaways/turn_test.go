package giveaways

import (
	"context"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/chat"
)

// A draw waits until the reactions are read, and for as long as the bot may tell of a
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

// counting is a platform that counts what is posted.
type counting struct {
	chat.StandIn
	posts int
}

// SendMessage posts m.
func (c *counting) SendMessage(context.Context, chat.Message) (string, error) {
	c.posts++
	return "901", nil
}

// A giveaway of ours gets one message to enter by, posted once while members can enter or
// soon can again. When it is over nothing of an unposted one is left.
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
				if err := Announce(t.Context(), s.DB, platform, Announcement{GuildID: guild, GiveawayID: name, IntentID: id}); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		if left := len(intents()); platform.posts != c.posts || left != c.posts {
			t.Errorf("%s: %d messages are posted and %d are left", name, platform.posts, left)
		}
	}
}
