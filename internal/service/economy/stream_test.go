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

// A change that an endpoint or one of the bot's streams is to be told of is left by the
// statement that tells nobody. A listener that wants no balances, or not those that the
// bot itself has changed, holds nobody up, nor does an endpoint that is off.
func TestAChangeIsMadeAtOnceWhereNobodyWantsToKnow(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	for n, c := range []struct {
		listener, events string
		echo, bot        bool
		madeAtOnce       bool
	}{
		{"stream", "economy.balance_changed", false, false, false},
		{"stream", "economy.balance_changed", true, false, false},
		{"stream", "economy.balance_changed", true, true, false},
		{"stream", "economy.balance_changed", false, true, true},
		{"stream", "case.created", false, false, true},
		{"stream", "case.created", true, true, true},
		{"endpoint", "economy.balance_changed", false, true, false},
		{"endpoint", "case.created", false, false, true},
		{"endpoint that is off", "economy.balance_changed", false, false, true},
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
		dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error { return (&Service{}).adjustEach(ctx, tx, []*change{one}) })
		if one.Made != c.madeAtOnce {
			t.Errorf("%+v: made %t", c, one.Made)
		}
	}
}
