package webhooks

import (
	"sync"
	"time"
)

const (
	// slow is how long a send may be under way before its endpoint counts as a
	// suspect, until it answers.
	slow = time.Second

	// warm is how long after a success an endpoint may have all its slots at once.
	warm = 2 * time.Second

	// mostSlots times the slots bounds all sends, however long they wait.
	mostSlots = 4
)

// pace knows the sends of this node that are under way, and shares its slots
// out so that endpoints that do not answer cannot take them all. An endpoint
// starts with one send and has healthySlots once it has answered. Suspects,
// those that failed last or keep a send waiting, get a quarter of the slots at
// most. A send that has been waiting for long no longer counts against the
// others: when many endpoints fall silent at once, theirs is the memory, not
// the slots.
type pace struct {
	mu    sync.Mutex
	slots int
	busy  int
	lanes map[string]*laneState
}

type laneState struct {
	begun     map[string]time.Time // the sends under way, by delivery
	open      int                  // failures that are not settled yet
	succeeded time.Time
	failing   bool
	more      bool
}

// late counts the sends that have been under way for suspiciously long.
func (l *laneState) late(now time.Time) int {
	n := 0
	for _, t := range l.begun {
		if now.Sub(t) > slow {
			n++
		}
	}
	return n
}

func newPace(slots int) *pace {
	return &pace{slots: slots, lanes: make(map[string]*laneState)}
}

// room returns what each endpoint of interest may have, the free slots, and how
// many of them suspects may take.
func (p *pace) room(now time.Time) (known map[string]allowance, free, suspects int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, suspects = make(map[string]allowance, len(p.lanes)), max(p.slots/4, 1)
	prompt := p.busy
	for id, l := range p.lanes {
		late := l.late(now)
		prompt -= late
		if late > 0 || l.failing {
			suspects -= len(l.begun)
		}
		switch {
		case len(l.begun)+l.open == 0 && (l.failing || now.Sub(l.succeeded) > warm):
			delete(p.lanes, id) // the next claim says whether it fails
			continue
		case late > 0 || l.failing || l.succeeded.IsZero():
			known[id] = allowance{Busy: len(l.begun) + l.open, Most: 1}
		default:
			known[id] = allowance{Busy: len(l.begun) + l.open, Most: healthySlots}
		}
	}
	return known, max(min(p.slots-prompt, mostSlots*p.slots-p.busy), 0), max(suspects, 0)
}

// begin takes a slot for a claimed row.
func (p *pace) begin(c claimed, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lanes[c.EndpointID]
	if l == nil {
		l = &laneState{begun: make(map[string]time.Time, healthySlots)}
		p.lanes[c.EndpointID] = l
	}
	p.busy++
	l.begun[c.ID] = now
	l.failing, l.more = c.Failures > 0, c.More
}

// end gives the slot back. It reports whether something may be waiting for it,
// and whether the endpoint's attempt before this one failed. After a failure the
// endpoint keeps its own slot taken until settled is told: the next attempt must
// know whether this one has blocked the endpoint.
func (p *pace) end(c claimed, v verdict, now time.Time) (wake, failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lanes[c.EndpointID]
	failed = l.failing
	wake = p.busy >= p.slots || l.more
	p.busy--
	delete(l.begun, c.ID)
	switch {
	case v.Healthy:
		l.succeeded, l.failing = now, false
	case v.Failing:
		l.succeeded, l.failing = time.Time{}, true
		l.open++
	}
	return wake, failed
}

// settled frees what end kept for the failures of a batch, and reports whether
// there were any.
func (p *pace) settled(batch []result) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	freed := false
	for _, r := range batch {
		if l := p.lanes[r.EndpointID]; r.verdict.Failing && l != nil {
			l.open--
			freed = true
		}
	}
	return freed
}

// inUse is the number of slots taken.
func (p *pace) inUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy
}
