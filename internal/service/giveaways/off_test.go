package giveaways_test

import (
	"context"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/giveaways"
)

// With the platform switched off, a giveaway can be created and nothing is posted. At its end it is
// drawn from its entries, whether or not it has a message from before, and no work for it fails or
// stays due.
func TestWithoutThePlatformGiveawaysAreDrawnFromWhatIsThere(t *testing.T) {
	t.Parallel()
	s := apitest.New(t, apitest.Chat(chat.Off{}))
	for name, message := range map[string]any{"no message": nil, "a message of before": "555"} {
		ends := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		id := s.Do(t, "createGiveaway", `{"prize":"A hat","channel_id":"190320984123768838","winner_count":1,"ends_at":"`+ends+`"}`).
			Want(t, 201, `{"data":{"message_id":null}}`).Str(t, "data.id")
		post := dbtest.Value[string](t, s.DB(), `SELECT post_id FROM giveaways WHERE id = $1`, id)
		if err := giveaways.Announce(t.Context(), s.DB(), chat.Off{}, s.Guild, post); err != nil {
			t.Errorf("%s: the announcement fails: %v", name, err)
		}
		if n := dbtest.Value[int](t, s.DB(), `SELECT count(*) FROM chat_intents`); n != 0 {
			t.Errorf("%s: %d messages wait", name, n)
		}
		dbtest.Exec(t, s.DB(), `UPDATE giveaways SET message_id = $2, react_at = now() WHERE id = $1`, id, message)
		if err := giveaways.React(t.Context(), s.DB(), chat.Off{}, s.Guild, id); err != nil {
			t.Errorf("%s: the reaction fails: %v", name, err)
		}
		dbtest.Exec(t, s.DB(), `INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id, entries) VALUES ($1, $2, '77', 1)`, s.Guild, id)
		dbtest.Exec(t, s.DB(), `UPDATE giveaways SET entry_count = 1 WHERE id = $1`, id)
		s.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, "")
		for _, work := range []func(context.Context) error{
			func(ctx context.Context) error { return giveaways.Gather(ctx, s.DB(), chat.Off{}, s.Guild, id) },
			func(ctx context.Context) error { return giveaways.Draw(ctx, s.DB(), s.Guild, id) },
		} {
			if err := work(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		got := dbtest.Value[string](t, s.DB(), `SELECT status || ' ' || (react_at IS NULL) FROM giveaways WHERE id = $1`, id)
		if got != "ended true" {
			t.Errorf("with %s it is %s", name, got)
		}
		dbtest.Exec(t, s.DB(), `DELETE FROM chat_intents`)
	}
}
