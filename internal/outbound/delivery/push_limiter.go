package delivery

import (
	"cmp"
	"sync"
	"time"
)

const (
	// healthySlots is how many sends a node has under way to one endpoint at
	// the same time, quickSlots to one that has answered within quickAfter last:
	// each send is soon done, and four at a time would bound what it is sent more
	// than its speed does. To one that fails, it is one.
	healthySlots = 4
	quickSlots   = 16
	quickAfter   = 250 * time.Millisecond

	// slowAfter is how long a send may be under way before it counts as stuck.
	// Stuck sends take no slots: when many endpoints fall silent at once, theirs
	// is the memory, not the slots.
	slowAfter = time.Second

	// maxStuck times the slots bounds all sends, however long they wait.
	maxStuck = 4

	// behindFresh is how many deliveries from queues a claim takes while others
	// were just recorded, which wait for the whole of the claim.
	behindFresh = 4

	// provenFor is how long an endpoint counts as one that answers, after it has.
	provenFor = 10 * time.Minute

	// turnsFor is how long it is remembered whose turn it was.
	turnsFor = time.Minute

	// sweepInterval is how often what is remembered is gone through. Everything
	// else counts what is under way alone.
	sweepInterval = 10 * time.Second
)

// endpointID names an endpoint.
type endpointID struct{ guild, endpoint string }

// limiter knows the sends of this node that are under way and shares the slots
// out: first among guilds, then among their endpoints, to the one that has least and
// has waited longest.
//
// Of a node's slots may be used at most
//
//	by one guild, while several wait                        1/8
//	by one endpoint                                         1 send, healthySlots once it has answered,
//	                                                        quickSlots if quickly; 1 while it fails or a send is stuck
//	by endpoints that have not answered for a while         3/4
//	by what waits in queues                                 3/4, so that what was just recorded finds slots
//	by endpoints that have stumbled: they answered lately   1/8, apart from the next line's
//	by other endpoints that fail                            1/4, of it 3/4 by those that are blocked, and 3/4 by the others
//
// All fields but the first are guarded by mu. The claim loop calls full, free, grant
// and begin; senders call end; the settler calls settled.
type limiter struct {
	slots int // never changes

	mu        sync.Mutex
	endpoints map[endpointID]*sends
	active    map[endpointID]*sends // those with sends under way, or failures that are not written yet
	guilds    map[string]*share
	starved   bool      // a sender was refused for want of slots
	swept     time.Time // when those that say nothing any more were forgotten
}

// sends is what this node knows of one endpoint.
type sends struct {
	begun      map[string]time.Time // under way, by delivery
	unrecorded int                  // failures that are not written yet
	succeeded  time.Time            // last
	served     time.Time            // last given a slot
	lane       int                  // when last claimed
	failing    bool                 // its last attempt here failed
	hung       bool                 // and took long
	more       bool                 // it had more than it was given
	quick      bool                 // its last success came quickly
	turns      bool                 // its recovered deliveries were first in turn last
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

// stuck counts the sends that have been under way for suspiciously long.
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

// stumbled reports whether the endpoint fails, but has answered lately and fails
// quickly: it is likely to be well with the next attempt, and to hold no slot for
// long if it is not.
func (s *sends) stumbled(now time.Time) bool {
	return s.failing && !s.hung && now.Sub(s.succeeded) < provenFor
}

func (s *sends) answers(now time.Time) bool { return s.proven(now) || s.stumbled(now) }

// most is how many sends the endpoint may have at once.
func (s *sends) most(lane int, now time.Time) int {
	most := 1
	if lane <= laneWell && s.proven(now) && s.stuck(now) == 0 {
		most = healthySlots
		if s.quick {
			most = quickSlots
		}
	}
	if lane == laneUrgent {
		most++ // an urgent one does not wait for the send that is under way
	}
	return most
}

// budget is what is left to be given out in one round.
type budget struct {
	all      int // of all slots
	unproven int // to endpoints that have not answered lately
	queued   int // to what waits in queues
	behind   int // to what need not go out at once
	stumbled int // to endpoints that have stumbled
	failing  int // to others that fail
	lane     map[int]int
}

// budget counts what is under way.
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

// sweep forgets endpoints and guilds that say nothing any more.
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

// full returns the endpoints that may have no send more, so that the look-up of
// what is due passes them over.
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

// free reports whether any slot is. If none is, the next one that is given back
// is wanted.
func (l *limiter) free(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	free := l.budget(now).all > 0
	l.starved = l.starved || !free
	return free
}

// grant shares the free slots, at most claimSize, among candidates: it sets how many
// sends each may begin. It reports whether it has left something for the next
// claim, which should not be long.
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

// prompt reports whether what waits for the candidate is to go out at once.
func (c *candidate) prompt() bool { return c.Lane == laneUrgent || c.Lane == laneWell && c.Fresh }

func granted(list []*candidate) int {
	n := 0
	for _, c := range list {
		n += c.take
	}
	return n
}

// poorest is the guild with the fewest sends, of several the one that was served
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

// next is the endpoint of a guild that gets the next slot, nil if none may.
func (l *limiter) next(list []*candidate, b *budget, now time.Time) *candidate {
	var best *candidate
	for _, c := range list {
		s := l.known(c.id())
		if len(s.begun)+s.unrecorded+c.take >= s.most(c.Lane, now) {
			if len(s.begun) > 0 {
				s.more = true // the next slot that it gives back is wanted
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

// fail takes n sends to an endpoint of the lane from what those that fail have.
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

// end gives the slot back and reports whether something may be waiting for it.
// After anything but a success the endpoint keeps its own slot taken until settled is told:
// the next attempt must know whether this one has blocked the endpoint.
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

// rest takes an endpoint out of the active ones if it is none any more.
func (l *limiter) rest(id endpointID, s *sends) {
	if len(s.begun)+s.unrecorded == 0 {
		delete(l.active, id)
	}
}

// recorded frees what end kept for the results of a batch, and reports whether
// there were any.
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

// answers reports whether the endpoint is likely to take what it is sent next.
func (l *limiter) answers(id endpointID, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known(id).answers(now)
}

// idle is answers of an endpoint with no send under way.
func (l *limiter) idle(id endpointID, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.known(id)
	return len(s.begun) == 0 && s.answers(now)
}

// recoveredFirst reports whether what recover has queued for the endpoint is first in
// turn with the next claim, every other time.
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

// inUse is the number of sends under way.
func (l *limiter) inUse() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, s := range l.active {
		n += len(s.begun)
	}
	return n
}
