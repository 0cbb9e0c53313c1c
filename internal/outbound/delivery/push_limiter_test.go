package delivery

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// claimOf returns a claimed delivery of the candidate.
func claimOf(c *candidate, id string) claimed {
	return claimed{GuildID: c.GuildID, EndpointID: c.EndpointID, ID: id, Lane: c.Lane}
}

// More guilds are waiting than there are slots, each with more deliveries than it can get slots
// for, and all answer at once: each guild gets its turn.
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

// A claim with new or urgent deliveries takes only few queued ones; these come with the next
// claims.
func TestAClaimForFreshDeliveriesIsShort(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lane          int
		fresh, prompt bool
	}{{laneWell, false, false}, {laneWell, true, true}, {laneUrgent, false, true}, {laneFailing, true, false}} {
		l, now := newLimiter(defaultSlots), time.Now()
		var waiting []*candidate
		for i := range 100 {
			waiting = append(waiting, &candidate{GuildID: fmt.Sprint(i), EndpointID: "e", Lane: []int{laneWell, laneFailing}[i%2], Known: true})
		}
		just := &candidate{GuildID: "just", EndpointID: "e", Lane: c.lane, Known: true, Fresh: c.fresh}
		left := l.grant(append(waiting, just), now)
		queued := granted(waiting)
		switch {
		case !c.prompt && (queued < claimSize-1 || left):
			t.Errorf("without fresh deliveries %d are granted, left: %v", queued, left)
		case c.prompt && (queued != behindFresh || just.take == 0 || !left):
			t.Errorf("beside a fresh or urgent delivery, which gets %d, %d are granted, left: %v", just.take, queued, left)
		}
		if few := append(waiting[:behindFresh-1:behindFresh-1], just); l.grant(few, now) {
			t.Errorf("%d of %d are granted, and something is left", granted(few), len(few))
		}
	}
}

// Endpoints that are not known to answer take no slots from those that do.
func TestTheUnknownLeaveSlotsToThoseThatAnswer(t *testing.T) {
	t.Parallel()
	l, now := newLimiter(64), time.Now()
	var unknown, well []*candidate
	for i := range 64 {
		unknown = append(unknown, &candidate{GuildID: fmt.Sprintf("%02d", i), EndpointID: "e", Lane: laneWell, Known: true, Fresh: true})
		well = append(well, &candidate{GuildID: fmt.Sprintf("well %02d", i), EndpointID: "e", Lane: laneWell, Known: true, Fresh: true})
		answered(l, well[i], now)
	}
	if l.grant(append(unknown, well...), now); granted(unknown) != 48 || granted(well) != 16 {
		t.Errorf("of 64 slots the unknown are granted %d and the others %d, want 48 and 16", granted(unknown), granted(well))
	}
}

// The limiter deletes entries that have no more effect.
func TestTheLimiterForgetsWhoIsQuiet(t *testing.T) {
	t.Parallel()
	l, now := newLimiter(64), time.Now()
	c := &candidate{GuildID: "g", EndpointID: "e", Lane: laneWell, Known: true}
	d := claimOf(c, "d")
	l.begin(d, now)
	l.end(d, decision{Failing: true}, now)
	l.recorded([]result{{GuildID: "g", EndpointID: "e", decision: decision{Failing: true}}})
	if len(l.active) != 0 {
		t.Errorf("%d endpoints are active after the only send was settled", len(l.active))
	}
	l.grant(nil, now.Add(turnsFor))
	if len(l.endpoints)+len(l.guilds) != 0 {
		t.Errorf("%d endpoints and %d guilds are remembered", len(l.endpoints), len(l.guilds))
	}
}

// The limiter keeps the entry of a guild with a running send or a recent turn.
func TestTheLimiterRemembersWhoseTurnItWas(t *testing.T) {
	t.Parallel()
	l, now := newLimiter(64), time.Now()
	busy := claimOf(&candidate{GuildID: "busy", EndpointID: "e"}, "d")
	lately := claimOf(&candidate{GuildID: "lately", EndpointID: "e"}, "d")
	l.begin(busy, now)
	l.begin(lately, now.Add(1))
	l.end(lately, decision{Failing: true}, now.Add(1))
	l.sweep(now.Add(turnsFor))
	if len(l.guilds) != 2 {
		t.Errorf("%d guilds are remembered, want both", len(l.guilds))
	}
}

// A result that says nothing about the endpoint leaves it failing, and free keeps the request for
// the next slot until a claim has been made.
func TestWhatAnEndLeaves(t *testing.T) {
	t.Parallel()
	l, now := newLimiter(2), time.Now()
	c := &candidate{GuildID: "g", EndpointID: "e", Lane: laneWell, Known: true}
	l.begin(claimOf(c, "one"), now)
	l.begin(claimOf(c, "two"), now)
	if l.free(now) {
		t.Fatal("a third slot is free")
	}
	l.end(claimOf(c, "one"), decision{Failing: true}, now)
	if !l.free(now) {
		t.Fatal("no slot is free")
	}
	if !l.end(claimOf(c, "two"), decision{}, now) {
		t.Error("the slot that was missed is wanted no more")
	}
	if !l.known(c.id()).failing {
		t.Error("an endpoint that fails is well")
	}
	if l.idle(endpointID{"g", "unknown"}, now) {
		t.Error("an endpoint that has never answered is likely to answer")
	}
}

// An endpoint counts as failing if the lane of its claimed delivery is that of failing or blocked
// endpoints.
func TestALaneSaysWhetherAnEndpointFails(t *testing.T) {
	t.Parallel()
	for lane, want := range map[int]bool{laneUrgent: false, laneWell: false, laneFailing: true, laneBlocked: true} {
		l, c := newLimiter(64), &candidate{GuildID: "g", EndpointID: "e", Lane: lane}
		l.begin(claimOf(c, "d"), time.Now())
		if got := l.known(c.id()).failing; got != want {
			t.Errorf("lane %d: the endpoint fails: %v, want %v", lane, got, want)
		}
	}
}

// answered records a success of the endpoint.
func answered(l *limiter, c *candidate, at time.Time) {
	d := claimOf(&candidate{GuildID: c.GuildID, EndpointID: c.EndpointID, Lane: laneWell}, "before")
	l.begin(d, at)
	l.end(d, decision{Healthy: true}, at)
}

// A send takes a slot until it is stuck, and counts as in use until it ends.
func TestABudgetIsWhatIsLeft(t *testing.T) {
	t.Parallel()
	now := time.Now()
	prompt, stuck := now.Add(-slowAfter), now.Add(-slowAfter-1)
	well, silent := &candidate{EndpointID: "well", Lane: laneWell}, &candidate{EndpointID: "silent", Lane: laneWell}
	l := newLimiter(64)
	answered(l, well, now)
	for i, c := range []struct {
		to    *candidate
		begun time.Time
	}{
		{well, now},
		{well, prompt},
		{well, stuck},
		{silent, prompt},
		{silent, stuck},
		{&candidate{EndpointID: "dead", Lane: laneBlocked}, now},
		{&candidate{EndpointID: "failing", Lane: laneFailing}, now},
	} {
		l.begin(claimOf(c.to, fmt.Sprint(i)), c.begun)
	}
	stumbled := &candidate{EndpointID: "stumbled", Lane: laneFailing}
	answered(l, stumbled, now)
	l.begin(claimOf(stumbled, "7"), now)
	want := budget{
		all: 64 - 6, unproven: 48 - 3, queued: 48 - 6, behind: 64, stumbled: 8 - 1, failing: 16 - 2,
		lane: map[int]int{laneFailing: 12 - 1, laneBlocked: 12 - 1},
	}
	if got := l.budget(now); !reflect.DeepEqual(got, want) {
		t.Errorf("left is %+v, want %+v", got, want)
	}

	l = newLimiter(2)
	answered(l, well, now)
	for i, c := range []*candidate{well, well, silent, silent, silent, silent, silent} {
		l.begin(claimOf(c, fmt.Sprint(i)), stuck)
	}
	if b := l.budget(now); b.all != maxStuck*2-7 || b.unproven != (maxStuck-1)*2-5 || b.queued != 2 {
		t.Errorf("beside seven sends that are stuck %+v is left", b)
	}
}

// The maximum of concurrent sends to an endpoint follows from its answers.
func TestWhatAnEndpointMayHave(t *testing.T) {
	t.Parallel()
	now := time.Now()
	lately, once := now.Add(1-provenFor), now.Add(-provenFor)
	one := func(begun time.Time) map[string]time.Time { return map[string]time.Time{"a": begun} }
	for i, c := range []struct {
		is       sends
		lane     int
		most     int
		stumbled bool
	}{
		{sends{}, laneWell, 1, false},
		{sends{}, laneUrgent, 2, false},
		{sends{succeeded: lately}, laneWell, healthySlots, false},
		{sends{succeeded: lately}, laneUrgent, healthySlots + 1, false},
		{sends{succeeded: lately}, laneFailing, 1, false},
		{sends{succeeded: once}, laneWell, 1, false},
		{sends{succeeded: lately, begun: one(now.Add(-slowAfter))}, laneWell, healthySlots, false},
		{sends{succeeded: lately, begun: one(now.Add(-slowAfter - 1))}, laneWell, 1, false},
		{sends{succeeded: lately, failing: true}, laneWell, 1, true},
		{sends{succeeded: once, failing: true}, laneWell, 1, false},
		{sends{succeeded: lately, failing: true, hung: true}, laneWell, 1, false},
	} {
		if most, stumbled := c.is.most(c.lane, now), c.is.stumbled(now); most != c.most || stumbled != c.stumbled {
			t.Errorf("%d: %+v may have %d, want %d; stumbled is %v", i, c.is, most, c.most, stumbled)
		}
	}
}

// An endpoint with its maximum of sends is full until its failures are recorded.
func TestAnEndpointIsFullUntilItsFailuresAreWritten(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := &candidate{GuildID: "g", EndpointID: "e", Lane: laneWell, Known: true}
	for _, took := range []time.Duration{slowAfter, slowAfter + 1} {
		l := newLimiter(64)
		answered(l, c, now)
		wants := func(full, idle bool) {
			t.Helper()
			if got := l.full(now); len(got) == 1 != full || l.idle(c.id(), now) != idle {
				t.Errorf("full: %v, idle: %v; want %v, %v", got, l.idle(c.id(), now), full, idle)
			}
		}
		wants(false, true)
		for i := range quickSlots - 1 {
			l.begin(claimOf(c, fmt.Sprint(i)), now)
			wants(false, false)
		}
		l.begin(claimOf(c, "last"), now.Add(-took))
		failed := []result{{GuildID: "g", EndpointID: "e", decision: decision{Failing: true}}}
		if l.recorded(failed) {
			t.Error("a failure was settled that there was not")
		}
		wants(true, false)
		l.end(claimOf(c, "last"), decision{Failing: true}, now)
		if got := l.answers(c.id(), now); got != (took <= slowAfter) {
			t.Errorf("a failure after %v: the endpoint is likely to answer is %v", took, got)
		}
		for i := range quickSlots - 1 {
			l.end(claimOf(c, fmt.Sprint(i)), decision{Failing: true}, now)
		}
		wants(true, true)
		if l.recorded([]result{
			{GuildID: "g", EndpointID: "e", decision: decision{Healthy: true}},
			{GuildID: "g", EndpointID: "unknown", decision: decision{Failing: true}},
		}) {
			t.Error("a success, or another's failure, was settled as its own")
		}
		for range quickSlots {
			if len(l.active) != 1 || !l.recorded(failed) {
				t.Error("a failure was not settled")
			}
		}
		if len(l.active) != 0 || l.recorded(failed) {
			t.Error("more was settled than has failed")
		}
	}
}

// When a sender has found no free slot, end reports that the next free slot is wanted.
func TestTheLastSlotIsMissed(t *testing.T) {
	t.Parallel()
	l, now := newLimiter(1), time.Now()
	c := &candidate{GuildID: "g", EndpointID: "e", Lane: laneWell, Known: true}
	for _, asked := range []bool{false, true} {
		if !l.free(now) {
			t.Fatal("the only slot is not free")
		}
		l.begin(claimOf(c, "d"), now)
		if asked && l.free(now) {
			t.Error("the only slot is free twice")
		}
		if waiting := l.end(claimOf(c, "d"), decision{Healthy: true}, now); waiting != asked {
			t.Errorf("somebody waits: %v, want %v", waiting, asked)
		}
	}
	l.sweep(now)
	l.sweep(now.Add(sweepInterval - 1))
	l.endpoints[endpointID{"g", "old"}] = &sends{}
	l.sweep(now.Add(sweepInterval - 1))
	if len(l.endpoints) != 2 {
		t.Error("what is remembered was gone through too soon")
	}
	l.sweep(now.Add(sweepInterval))
	if len(l.endpoints) != 1 {
		t.Errorf("%d endpoints are remembered, want the one that answers", len(l.endpoints))
	}
}

// Each kind of endpoint gets its share of the slots, to the last slot.
func TestEachKindGetsItsShareOfTheSlots(t *testing.T) {
	t.Parallel()
	const guilds = 100
	for name, c := range map[string]struct {
		lanes    []int // of the guilds, in order
		answered bool
		fresh    bool
		want     int
	}{
		"what was just recorded":                    {lanes: []int{laneWell}, answered: true, fresh: true, want: 64},
		"what waits in queues":                      {lanes: []int{laneWell}, answered: true, want: 48},
		"what was recorded for the unknown":         {lanes: []int{laneWell}, fresh: true, want: 48},
		"what is urgent":                            {lanes: []int{laneUrgent}, answered: true, want: 64},
		"those that fail":                           {lanes: []int{laneFailing}, want: 12},
		"those that have been blocked":              {lanes: []int{laneBlocked}, want: 12},
		"those that have been blocked and answered": {lanes: []int{laneBlocked}, answered: true, want: 12},
		"both kinds that fail":                      {lanes: []int{laneFailing, laneBlocked}, want: 16},
		"those that have stumbled":                  {lanes: []int{laneFailing}, answered: true, want: 8},
	} {
		l, now := newLimiter(64), time.Now()
		var waiting []*candidate
		for i := range guilds {
			waiting = append(waiting, &candidate{
				GuildID: fmt.Sprintf("%02d", i), EndpointID: "e", Lane: c.lanes[i%len(c.lanes)], Known: true, Fresh: c.fresh,
			})
			if c.answered {
				answered(l, waiting[i], now)
				l.endpoints[waiting[i].id()].failing = waiting[i].Lane >= laneFailing
			}
		}
		l.grant(waiting, now)
		if got := granted(waiting); got != c.want {
			t.Errorf("%s: %d of %d are granted a slot, want %d", name, got, guilds, c.want)
		}
	}
}

// A guild gets the slots that the others leave, and its endpoints share them.
func TestGuildsAndTheirEndpointsShareTheSlots(t *testing.T) {
	t.Parallel()
	now := time.Now()
	of := func(guild string, n int) (list []*candidate) {
		for i := range n {
			list = append(list, &candidate{GuildID: guild, EndpointID: fmt.Sprint(guild, i), Lane: laneWell, Known: true})
		}
		return list
	}
	l, alone := newLimiter(64), of("a", 20)
	if l.grant(alone, now); granted(alone) != 20 {
		t.Errorf("alone, a guild is granted %d slots for 20 endpoints", granted(alone))
	}
	busy, idle := of("a", 20), of("b", 20)
	for i := range 3 {
		l.begin(claimOf(&candidate{GuildID: "a", EndpointID: "another", Lane: laneWell}, fmt.Sprint(i)), now)
	}
	if l.grant(append(busy, idle...), now); granted(busy) != 5 || granted(idle) != 8 {
		t.Errorf("beside another, guilds are granted %d and %d slots, want 8 for each with those it has", granted(busy), granted(idle))
	}

	// Four slots are left: three for the guild without any, and one for the other guild.
	for i := range 64 - 3 - 4 {
		l.begin(claimOf(&candidate{GuildID: "c", EndpointID: fmt.Sprint("c", i), Lane: laneWell}, "d"), now)
		l.endpoints[endpointID{"c", fmt.Sprint("c", i)}].succeeded = now
	}
	for _, c := range append(busy, idle...) {
		c.Fresh = true
		answered(l, c, now)
	}
	l.guilds["a"].served = now.Add(-1)
	for range 20 { // whichever guild comes first
		if l.grant(append(busy, idle...), now); granted(busy) != 1 || granted(idle) != 3 {
			t.Errorf("of four slots guilds are granted %d and %d, want 1 and 3", granted(busy), granted(idle))
		}
	}

	// Of one guild's endpoints, the healthy one comes first, then the one with the fewest sends.
	for _, turn := range []int{0, 1} {
		l = newLimiter(64)
		list := of("g", 3)
		many, few, failing := list[0], list[1], list[2]
		failing.Lane = laneFailing
		answered(l, many, now)
		answered(l, few, now)
		l.begin(claimOf(many, "1"), now)
		l.begin(claimOf(many, "2"), now)
		l.endpoints[many.id()].served = now.Add(-1)
		for i := range 64 - 2 - 3 {
			l.begin(claimOf(&candidate{GuildID: "c", EndpointID: fmt.Sprint("c", i), Lane: laneWell}, "d"), now)
			l.endpoints[endpointID{"c", fmt.Sprint("c", i)}].succeeded = now
		}
		for _, c := range []*candidate{many, few} {
			c.Fresh = true
		}
		order := [][]*candidate{{many, few, failing}, {failing, few, many}}[turn]
		if l.grant(order, now); many.take != 1 || few.take != 2 || failing.take != 0 {
			t.Errorf("of three slots %d, %d and %d are granted, want 1, 2 and 0", many.take, few.take, failing.take)
		}
	}
}

// A full endpoint with a running send waits for that send's slot; a failure that is not recorded
// yet needs no wake.
func TestAFullEndpointWantsItsOwnSlot(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := &candidate{GuildID: "g", EndpointID: "e", Lane: laneWell, Known: true}
	for name, is := range map[string]*sends{
		"a send":    {begun: map[string]time.Time{"d": now}},
		"a failure": {unrecorded: 1},
	} {
		l := newLimiter(64)
		l.endpoints[c.id()], l.active[c.id()] = is, is
		if l.grant([]*candidate{c}, now); c.take != 0 || is.more != (is.unrecorded == 0) {
			t.Errorf("beside %s: granted %d, wants more: %v", name, c.take, is.more)
		}
	}
}

// The claim after a full claim need not follow at once if no candidate is left.
func TestAFullClaimLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for fresh, left := range map[int]bool{claimSize - behindFresh: false, claimSize - behindFresh - 1: true} {
		l, now := newLimiter(defaultSlots), time.Now()
		var waiting []*candidate
		for i := range fresh + 2*behindFresh {
			waiting = append(waiting, &candidate{
				GuildID: fmt.Sprintf("%02d", i), EndpointID: "e", Lane: laneWell, Known: true, Fresh: i >= 2*behindFresh,
			})
		}
		if got := l.grant(waiting, now); got != left {
			t.Errorf("%d are granted beside %d fresh ones, something is left: %v", granted(waiting), fresh, got)
		}
	}
}

// BenchmarkGrant measures grant with few and with many endpoints that have answered lately.
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

// An endpoint that answers quickly gets more concurrent sends than one that does not.
func TestAQuickEndpointHasMoreSendsAtOnce(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]int{quickAfter: quickSlots, quickAfter + time.Millisecond: healthySlots} {
		l, now := newLimiter(64), time.Now()
		c := &candidate{GuildID: "g", EndpointID: "e", Lane: laneWell, Known: true}
		d := claimOf(c, "first")
		l.begin(d, now.Add(-took))
		l.end(d, decision{Healthy: true}, now)
		l.grant([]*candidate{c}, now)
		if c.take != want {
			t.Errorf("after an answer within %s it may have %d sends at once, want %d", took, c.take, want)
		}
	}
}

// The page on sizes names the limits of one endpoint.
func TestThePageOnSizesNamesTheSlotsOfAnEndpoint(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/operate/sizes.md")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("at most %d sends under way to one endpoint that answers within %d ms, and %d to a slower one",
		quickSlots, quickAfter.Milliseconds(), healthySlots)
	if !strings.Contains(strings.Join(strings.Fields(string(page)), " "), want) {
		t.Errorf("it does not say %q", want)
	}
}
