package economy

import (
	"context"
	"fmt"
	"testing"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
)

// The event of a balance change is sent to a webhook endpoint and to an event stream of the bot.
// Endpoints and streams get no event if they do not subscribe to balances or exclude the bot's own
// changes, and disabled endpoints get none either. An event that nobody gets is not stored.
func TestAChangeIsToldToThoseWhoWantToKnow(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	for n, c := range []struct {
		listener, events string
		echo, bot        bool
		emitted          bool
	}{
		{"stream", "economy.balance_changed", false, false, true},
		{"stream", "economy.balance_changed", true, false, true},
		{"stream", "economy.balance_changed", true, true, true},
		{"stream", "economy.balance_changed", false, true, false},
		{"stream", "case.created", false, false, false},
		{"stream", "case.created", true, true, false},
		{"endpoint", "economy.balance_changed", false, true, true},
		{"endpoint", "case.created", false, false, false},
		{"endpoint that is off", "economy.balance_changed", false, false, false},
	} {
		guild := fmt.Sprint(7 + n)
		dbtest.AddGuilds(t, d, guild)
		if c.listener == "stream" {
			dbtest.Exec(t, d, `INSERT INTO stream_listeners (guild_id, stream_id, events, echo) VALUES ($1, 's', ARRAY[$2], $3)`,
				guild, c.events, c.echo)
		} else {
			dbtest.Listen(t, d, guild, []string{c.events})
			dbtest.Exec(t, d, `UPDATE webhook_endpoints SET enabled = $2 WHERE guild_id = $1`, guild, c.listener == "endpoint")
		}
		dbtest.Exec(t, d, `INSERT INTO wallets (guild_id, user_id, balance) VALUES ($1, '1', 0)`, guild)
		by := auth.By{GuildID: guild, ID: "token"}
		if c.bot {
			by.ID = "bk_one"
		}
		one := &change{Change: batch.Change{By: event.From(by)}, entry: entry{UserID: "1", Delta: 1, Note: "test"}}
		dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error { return adjustEach(ctx, tx, []*change{one}) })
		want := "0 events, 0 to endpoints, 0 to streams"
		if c.emitted {
			if want = "1 events, 1 to endpoints, 0 to streams"; c.listener == "stream" {
				want = "1 events, 0 to endpoints, 1 to streams"
			}
		}
		got := dbtest.Emitted(t, d, guild)
		if !one.Applied || got != want {
			t.Errorf("%+v: made %t, %s, want %s", c, one.Applied, got, want)
		}
	}
}
