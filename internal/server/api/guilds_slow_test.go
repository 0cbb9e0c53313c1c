//go:build slow

package api_test

import (
	"testing"
	"time"

	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/db"
	"guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
)

// Response times do not reveal other guilds' things either. The two kinds of request alternate, and
// the fastest of each kind are compared: other load only makes some requests slower, while
// additional work of the program would slow the fastest too. RELIABILITY.md, Guilds.
func TestAnotherGuildsThingsTakeNoLonger(t *testing.T) {
	t.Parallel()
	server := apitest.New(t, apitest.With(func(c *api.Config) {
		c.Quotas.Read = ratelimit.Quota{Limit: 100_000, Window: time.Minute}
	}))
	n := neighbours{ours: server, owner: server.Next(t)}
	for _, id := range []string{"getCase", "getTicket", "getGiveaway", "getWebhookEndpoint", "listGiveawayEntries"} {
		op := apitest.Find(t, id)
		foreign, absent := at(n.own(t, op)), at(map[string]string{"id": db.NewID()})
		timed := func(args []apitest.Arg) time.Duration {
			begin := time.Now()
			n.ours.Do(t, id, "", args...).WantError(t, 404, "not_found")
			return time.Since(begin)
		}
		ofForeign, ofAbsent := time.Hour, time.Hour
		apart := func() time.Duration { return (ofForeign - ofAbsent).Abs() }
		for call := 0; call < 30 || call < 500 && apart() > 2*time.Millisecond; call++ {
			ofForeign, ofAbsent = min(ofForeign, timed(foreign)), min(ofAbsent, timed(absent))
		}
		if apart() > 2*time.Millisecond {
			t.Errorf("%s: the fastest answers differ by %v: %v and %v", id, apart(), ofForeign, ofAbsent)
		}
	}
}
