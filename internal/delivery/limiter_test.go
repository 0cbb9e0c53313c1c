package delivery

import (
	"fmt"
	"testing"
	"time"
)

// claimOf is a delivery of the candidate, claimed.
func claimOf(c *candidate, id string) claimed {
	return claimed{GuildID: c.GuildID, EndpointID: c.EndpointID, ID: id, Lane: c.Lane}
}

// More guilds wait than there are slots, all with more than they can be given,
// and all answer at once: each gets its turn.
func TestGuildsAreServedInTurnHoweverQuicklyTheyAnswer(t *testing.T) {
	t.Parallel()
	const guilds, slots = 200, 64
	l, now := newLimiter(slots), time.Now()
	served := make(map[string]int)
	const rounds = 20
	for round := range rounds {
		now = now.Add(10 * time.Millisecond)
		var waiting []*candidate
		for i := range guilds {
			waiting = append(waiting, &candidate{GuildID: fmt.Sprint(i), EndpointID: "e", Lane: laneWell, Known: true})
		}
		l.grant(waiting, now)
		for _, c := range waiting {
			for i := range c.take {
				served[c.GuildID]++
				d := claimOf(c, fmt.Sprint(round, i))
				l.begin(d, now)
				l.end(d, decision{Healthy: true}, now)
			}
		}
	}
	least, most := rounds*slots, 0
	for i := range guilds {
		n := served[fmt.Sprint(i)]
		least, most = min(least, n), max(most, n)
	}
	if least == 0 || most > 2*least+2 {
		t.Errorf("the guilds were served between %d and %d times", least, most)
	}
}

// What was just recorded shares its claim with little of what waits in queues,
// which has the next claims.
func TestAClaimForFreshDeliveriesIsShort(t *testing.T) {
	t.Parallel()
	for _, fresh := range []bool{false, true} {
		l, now := newLimiter(defaultSlots), time.Now()
		var waiting []*candidate
		for i := range 100 {
			waiting = append(waiting, &candidate{GuildID: fmt.Sprint(i), EndpointID: "e", Lane: []int{laneWell, laneFailing}[i%2], Known: true})
		}
		just := &candidate{GuildID: "just", EndpointID: "e", Lane: laneWell, Known: true, Fresh: fresh}
		left := l.grant(append(waiting, just), now)
		queued := granted(waiting)
		switch {
		case !fresh && (queued < claimSize-1 || left):
			t.Errorf("without fresh deliveries %d are granted, left: %v", queued, left)
		case fresh && (queued != behindFresh || just.take != 1 || !left):
			t.Errorf("beside a fresh delivery, which gets %d, %d are granted, left: %v", just.take, queued, left)
		}
	}
}

// What is forgotten is what says nothing any more.
func TestTheLimiterForgetsWhoIsQuiet(t *testing.T) {
	t.Parallel()
	l, now := newLimiter(64), time.Now()
	c := &candidate{GuildID: "g", EndpointID: "e", Lane: laneWell, Known: true}
	d := claimOf(c, "d")
	l.begin(d, now)
	l.end(d, decision{Failing: true}, now)
	l.settled([]result{{GuildID: "g", EndpointID: "e", decision: decision{Failing: true}}})
	if len(l.active) != 0 {
		t.Errorf("%d endpoints are active after the only send was settled", len(l.active))
	}
	l.grant(nil, now.Add(turnsFor))
	if len(l.endpoints)+len(l.guilds) != 0 {
		t.Errorf("%d endpoints and %d guilds are remembered", len(l.endpoints), len(l.guilds))
	}
}

// BenchmarkGrant is what sharing the slots costs in each claim, with few and with
// many endpoints that have answered lately.
func BenchmarkGrant(b *testing.B) {
	for _, known := range []int{10, 100_000} {
		b.Run(fmt.Sprint(known), func(b *testing.B) {
			l, now := newLimiter(defaultSlots), time.Now()
			var all []*candidate
			for i := range known {
				c := &candidate{GuildID: fmt.Sprint(i / 10), EndpointID: fmt.Sprint(i), Lane: laneWell, Known: true}
				d := claimOf(c, "d")
				l.begin(d, now)
				l.end(d, decision{Healthy: true}, now)
				all = append(all, c)
			}
			for b.Loop() {
				now = now.Add(time.Millisecond)
				l.full(now)
				l.grant(all[:10], now)
			}
		})
	}
}
