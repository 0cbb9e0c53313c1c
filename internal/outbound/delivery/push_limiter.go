package delivery

import (
	"cmp"
	"sync"
	"time"
)

const (
	// healthySlots is how many concurrent sends a node makes to one endpoint. quickSlots applies
	// instead if the endpoint's last answer came within quickAfter: each send ends soon, and only
	// four at a time would limit the endpoint more than its own speed does. A failing endpoint gets
	// one send at a time.
	healthySlots = 4
	quickSlots   = 16
	quickAfter   = 250 * time.Millisecond

	// slowAfter is the time after which a send counts as stuck. Stuck sends take no slots: when
	// many endpoints stop answering at once, their sends use memory but no slots.
	slowAfter = time.Second

	// maxStuck times the number of slots bounds all sends, stuck or not.
	maxStuck = 4

	// behindFresh is how many queued deliveries a claim takes while there are fresh deliveries,
	// because the sends of fresh deliveries wait for the whole claim.
	behindFresh = 4

	// provenFor is how long an endpoint counts as answering after its last answer.
	provenFor = 10 * time.Minute

	// turnsFor is how long the limiter remembers whose turn is next.
	turnsFor = time.Minute

	// sweepInterval is how often the limiter deletes old entries. Everything else depends on the
	// current sends alone.
	sweepInterval = 10 * time.Second
)

// endpointID identifies an endpoint.
type endpointID struct{ guild, endpoint string }

// limiter counts the current sends of this node and shares the slots: first among guilds, then
// among the endpoints of a guild, to the one with the fewest sends that has waited longest.
//
// The maximum share of a node's slots is
//
//	for one guild, while several are waiting                1/8
//	for one endpoint                                        1 send; healthySlots after its first answer,
//	                                                        quickSlots if the answer was quick; 1 while it fails or a send is stuck
//	for endpoints that have not answered lately             3/4
//	for queued deliveries                                   3/4, so that fresh deliveries find free slots
//	for endpoints that have stumbled (answered lately)      1/8, on top of the next line
//	for other failing endpoints                             1/4; of these, 3/4 for blocked ones, and 3/4 for the others
//
// mu guards all fields except slots. The claim loop calls full, free, grant and begin; senders call
// end; the record loop calls recorded.
type limiter struct {
	slots int // never changes

	mu        sync.Mutex
	endpoints map[endpointID]*sends
	active    map[endpointID]*sends // endpoints with current sends, or with failures that are not recorded yet
	guilds    map[string]*share
	starved   bool      // a sender got no slot because none was free
	swept     time.Time // when old entries were last deleted
}

// sends is what this node knows of one endpoint.
type sends struct {
	begun      map[string]time.Time // start of each current send, by delivery
	unrecorded int                  // failures that are not recorded yet
	succeeded  time.Time            // last success
	served     time.Time            // last time it got a slot
	lane       int                  // the endpoint's lane at the last claim, such as laneUrgent
	failing    bool                 // the endpoint's last attempt on this node failed
	hung       bool                 // and took long
	more       bool                 // the endpoint had more deliveries than slots at its last claim
	quick      bool                 // the endpoint's last success came quickly
	turns      bool                 // recovered deliveries were first in turn at the last claim
}

// share is what this node knows of one guild.
type share struct {
	busy   int
	served time.Time
}

func newLimiter(slots int) *limiter {
	return &limiter{
		slots: slots, endpoints: make(map[endpointID]*sends), active: make(map[endpointID]*sends), guilds: make(map[string]*share),
	}
}

// stuck counts the sends that were started longer than slowAfter ago.
func (s *sends) stuck(now time.Time) int {
	n := 0
	for _, t := range s.begun {
		if now.Sub(t) > slowAfter {
			n++
		}
	}
	return n
}

func (s *sends) proven(now time.Time) bool {
	return !s.failing && now.Sub(s.succeeded) < provenFor
}

// stumbled reports whether the endpoint fails, but has answered lately and fails quickly: the next
// attempt will probably succeed, and will not use a slot for long if it fails.
func (s *sends) stumbled(now time.Time) bool {
	return s.failing && !s.hung && now.Sub(s.succeeded) < provenFor
}

func (s *sends) answers(now time.Time) bool { return s.proven(now) || s.stumbled(now) }

// most returns the maximum of concurrent sends to the endpoint.
func (s *sends) most(lane int, now time.Time) int {
	most := 1
	if lane <= laneWell && s.proven(now) && s.stuck(now) == 0 {
		most = healthySlots
		if s.quick {
			most = quickSlots
		}
	}
	if lane == laneUrgent {
		most++ // an urgent delivery does not wait for the current send
	}
	return most
}

// budget is the number of slots left in one round of grants.
type budget struct {
	all      int // of all kinds
	unproven int // for endpoints that have not answered lately
	queued   int // for queued deliveries
	behind   int // for deliveries that need not be sent at once
	stumbled int // for endpoints that now fail quickly but answered lately
	failing  int // for other failing endpoints
	lane     map[int]int
}

// budget computes the free slots of each kind from the current sends.
func (l *limiter) budget(now time.Time) budget {
	prompt, busy, unprovenPrompt, unproven := 0, 0, 0, 0
	suspects := max(l.slots/4, 1)
	b := budget{stumbled: max(l.slots/8, 1), failing: suspects, lane: map[int]int{laneFailing: threeQuarters(suspects), laneBlocked: threeQuarters(suspects)}}
	for _, s := range l.active {
		n, stuck := len(s.begun), s.stuck(now)
		busy, prompt = busy+n, prompt+n-stuck
		if !s.answers(now) {
			unproven, unprovenPrompt = unproven+n, unprovenPrompt+n-stuck
		}
		b.fail(s.lane, s.stumbled(now), n)
	}
	b.all = max(min(l.slots-prompt, maxStuck*l.slots-busy), 0)
	b.unproven = min(threeQuarters(l.slots)-unprovenPrompt, (maxStuck-1)*l.slots-unproven)
	b.queued = threeQuarters(l.slots) - prompt
	b.behind = l.slots
	return b
}

// sweep deletes entries of endpoints and guilds that have no more effect.
func (l *limiter) sweep(now time.Time) {
	if now.Sub(l.swept) < sweepInterval {
		return
	}
	l.swept = now
	for id, s := range l.endpoints {
		if l.active[id] == nil && !s.answers(now) {
			delete(l.endpoints, id)
		}
	}
	for id, g := range l.guilds {
		if g.busy == 0 && now.Sub(g.served) >= turnsFor {
			delete(l.guilds, id)
		}
	}
}

func threeQuarters(n int) int { return (3*n + 3) / 4 }

// full returns the endpoints that may have no further send, so that polls skip them.
func (l *limiter) full(now time.Time) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for id, s := range l.active {
		if len(s.begun)+s.unrecorded >= s.most(s.lane, now) {
			ids = append(ids, id.endpoint)
		}
	}
	return ids
}

// free reports whether a slot is free. If none is, free notes that the claim loop must be woken
// when a slot is given back.
func (l *limiter) free(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	free := l.budget(now).all > 0
	l.starved = l.starved || !free
	return free
}

// grant shares the free slots, at most claimSize, among candidates: grant sets the number of sends
// of each candidate. grant reports whether candidates are left for the next claim, which should
// follow soon.
func (l *limiter) grant(waiting []*candidate, now time.Time) (left bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(now)
	b := l.budget(now)
	b.all = min(b.all, claimSize)
	l.starved = false
	guilds := make(map[string][]*candidate)
	for _, c := range waiting {
		c.take = 0
		if !c.sendable() {
			continue
		}
		guilds[c.GuildID] = append(guilds[c.GuildID], c)
		if c.prompt() {
			b.behind = behindFresh
		}
	}
	most := maxStuck * l.slots
	if len(guilds) > 1 {
		most = max(l.slots/8, 1)
	}
	for len(guilds) > 0 {
		guild := l.poorest(guilds)
		c := l.next(guilds[guild], &b, now)
		if c == nil || l.share(guild).busy+granted(guilds[guild]) >= most {
			delete(guilds, guild)
			continue
		}
		c.take++
		b.spend(c, l.known(c.id()), now)
	}
	return b.behind <= 0 && b.all > 0
}

// prompt reports whether the deliveries of the candidate should be sent at once.
func (c *candidate) prompt() bool { return c.Lane == laneUrgent || c.Lane == laneWell && c.Fresh }

func granted(list []*candidate) int {
	n := 0
	for _, c := range list {
		n += c.take
	}
	return n
}

// poorest returns the guild with the fewest sends; among several, the guild that got a slot the
// longest ago.
func (l *limiter) poorest(guilds map[string][]*candidate) string {
	var best string
	for id, list := range guilds {
		if best == "" {
			best = id
			continue
		}
		mine, its := l.share(id), l.share(best)
		order := cmp.Or(cmp.Compare(mine.busy+granted(list), its.busy+granted(guilds[best])), mine.served.Compare(its.served), cmp.Compare(id, best))
		if order < 0 {
			best = id
		}
	}
	return best
}

// next returns the endpoint of a guild that gets the next slot; nil if none may have it.
func (l *limiter) next(list []*candidate, b *budget, now time.Time) *candidate {
	var best *candidate
	for _, c := range list {
		s := l.known(c.id())
		if len(s.begun)+s.unrecorded+c.take >= s.most(c.Lane, now) {
			if len(s.begun) > 0 {
				s.more = true // wake the claim loop when the endpoint gives a slot back
			}
			continue
		}
		if !b.allows(c, s, now) {
			l.starved = true
			continue
		}
		if best == nil || l.before(c, best) {
			best = c
		}
	}
	return best
}

func (l *limiter) before(a, b *candidate) bool {
	x, y := l.known(a.id()), l.known(b.id())
	return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(len(x.begun)+a.take, len(y.begun)+b.take), x.served.Compare(y.served)) < 0
}

var unknown = &sends{}

func (l *limiter) known(id endpointID) *sends {
	if s := l.endpoints[id]; s != nil {
		return s
	}
	return unknown
}

func (l *limiter) share(guild string) share {
	if g := l.guilds[guild]; g != nil {
		return *g
	}
	return share{}
}

// allows reports whether the budget has a slot for a candidate.
func (b *budget) allows(c *candidate, s *sends, now time.Time) bool {
	stumbled := c.Lane == laneFailing && s.stumbled(now)
	if b.all <= 0 || !s.answers(now) && b.unproven <= 0 || b.behind <= 0 && !c.prompt() {
		return false
	}
	switch c.Lane {
	case laneFailing, laneBlocked:
		if stumbled {
			return b.stumbled > 0
		}
		return b.failing > 0 && b.lane[c.Lane] > 0
	case laneWell:
		return c.Fresh || b.queued > 0
	}
	return true
}

func (b *budget) spend(c *candidate, s *sends, now time.Time) {
	b.all--
	b.queued--
	if !c.prompt() {
		b.behind--
	}
	if !s.answers(now) {
		b.unproven--
	}
	b.fail(c.Lane, s.stumbled(now), 1)
}

// fail subtracts n sends to a failing endpoint of the lane from the budget.
func (b *budget) fail(lane int, stumbled bool, n int) {
	switch {
	case lane == laneFailing && stumbled:
		b.stumbled -= n
	case lane == laneFailing, lane == laneBlocked:
		b.failing -= n
		b.lane[lane] -= n
	}
}

// begin takes a slot for a claimed delivery.
func (l *limiter) begin(c claimed, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := c.id()
	s := l.endpoints[id]
	if s == nil {
		s = &sends{begun: make(map[string]time.Time, healthySlots)}
		l.endpoints[id] = s
	}
	s.begun[c.ID], s.served = now, now
	l.active[id] = s
	s.lane, s.more = c.Lane, c.More
	s.failing = c.Lane == laneFailing || c.Lane == laneBlocked
	g := l.guilds[c.GuildID]
	if g == nil {
		g = &share{}
		l.guilds[c.GuildID] = g
	}
	g.busy++
	g.served = now
}

// end gives the slot back and reports whether a delivery may be waiting for the slot. After
// anything except a success, the endpoint's own slot stays taken until recorded is called: the next
// attempt must know whether this result has blocked the endpoint.
func (l *limiter) end(c claimed, v decision, now time.Time) (waiting bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.endpoints[c.id()]
	took := now.Sub(s.begun[c.ID])
	hung := took > slowAfter
	delete(s.begun, c.ID)
	if v.Healthy {
		s.succeeded, s.failing, s.lane, s.quick = now, false, laneWell, took <= quickAfter
	} else {
		s.failing, s.hung = s.failing || v.Failing, hung
		s.unrecorded++
	}
	l.rest(c.id(), s)
	g := l.guilds[c.GuildID]
	g.busy--
	return l.starved || s.more
}

// rest removes an endpoint from the active endpoints if it is no longer active.
func (l *limiter) rest(id endpointID, s *sends) {
	if len(s.begun)+s.unrecorded == 0 {
		delete(l.active, id)
	}
}

// recorded frees the slots that end has kept until the results of a batch are recorded, and reports
// whether there were any.
func (l *limiter) recorded(batch []result) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	freed := false
	for _, r := range batch {
		if s := l.endpoints[r.id()]; !r.decision.Healthy && s != nil && s.unrecorded > 0 {
			s.unrecorded--
			l.rest(r.id(), s)
			freed = true
		}
	}
	return freed
}

// answers reports whether the endpoint will probably accept its next delivery.
func (l *limiter) answers(id endpointID, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known(id).answers(now)
}

// idle is answers for an endpoint with no current send.
func (l *limiter) idle(id endpointID, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.known(id)
	return len(s.begun) == 0 && s.answers(now)
}

// recoveredFirst reports whether recovered deliveries are first in turn at the next claim of the
// endpoint. The result alternates.
func (l *limiter) recoveredFirst(id endpointID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.endpoints[id]
	if s == nil {
		return false
	}
	s.turns = !s.turns
	return s.turns
}

// inUse returns the number of current sends.
func (l *limiter) inUse() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, s := range l.active {
		n += len(s.begun)
	}
	return n
}
