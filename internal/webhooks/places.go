package webhooks

import (
	"context"
	"sync"
	"time"

	"guildhall/internal/fault"
)

const (
	// lookupPlaces is how many host names are looked up at the same time, and
	// guildPlaces how many of them for one guild: an eighth.
	lookupPlaces = 16
	guildPlaces  = lookupPlaces / 8

	// placeTimeout is how long a request waits for a place.
	placeTimeout = 2 * time.Second
)

// The refusals of who has waited in vain: for lookups of its own guild, or for
// those of others.
var (
	errOwnLookups = fault.New(fault.Limited, "rate_limited",
		"This guild has as many host names being looked up as it may have at once.").After(time.Second)
	errNoPlace = fault.New(fault.Unavailable, "service_unavailable",
		"Too many host names are being looked up; try the same request again.").After(time.Second)
)

// places are the right to look a host name up. They are shared by guild: one
// that asks for many waits for itself, and places that become free go to the
// guilds that wait in turn.
type places struct {
	mu    sync.Mutex
	free  int
	held  map[string]int             // by guild, those above zero
	waits map[string][]chan struct{} // by guild, the oldest first; closed when given a place
	turns []string                   // the guilds that wait, the next first
}

func newPlaces() *places {
	return &places{free: lookupPlaces, held: make(map[string]int), waits: make(map[string][]chan struct{})}
}

// take waits for a place, at most placeTimeout, and returns how to give it back.
func (p *places) take(ctx context.Context, guild string) (release func(), err error) {
	given := p.ask(guild)
	timer := time.NewTimer(placeTimeout)
	defer timer.Stop()
	select {
	case <-given:
		return func() { p.giveBack(guild) }, nil
	case <-timer.C:
		err = errNoPlace
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-given: // at the last moment
		return func() { p.giveBack(guild) }, nil
	default:
	}
	if ctx.Err() == nil && p.held[guild] >= guildPlaces {
		err = errOwnLookups
	}
	p.forget(guild, given)
	return nil, err
}

// ask puts the guild in the queue and hands out what is free.
func (p *places) ask(guild string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	given := make(chan struct{})
	if len(p.waits[guild]) == 0 {
		p.turns = append(p.turns, guild)
	}
	p.waits[guild] = append(p.waits[guild], given)
	p.handOut()
	return given
}

func (p *places) giveBack(guild string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free++
	if p.held[guild]--; p.held[guild] == 0 {
		delete(p.held, guild)
	}
	p.handOut()
}

// handOut gives free places to the guilds that wait, one each in turn, and none
// to those that have theirs.
func (p *places) handOut() {
	for i := 0; p.free > 0 && i < len(p.turns); {
		guild := p.turns[i]
		if p.held[guild] >= guildPlaces {
			i++
			continue
		}
		first := p.waits[guild][0]
		close(first)
		p.free--
		p.held[guild]++
		// To the end of the line, if it waits for more.
		p.turns = append(p.turns[:i], p.turns[i+1:]...)
		if p.waits[guild] = p.waits[guild][1:]; len(p.waits[guild]) > 0 {
			p.turns = append(p.turns, guild)
		} else {
			delete(p.waits, guild)
		}
	}
}

// forget takes one that has given up out of the queue.
func (p *places) forget(guild string, given <-chan struct{}) {
	line := p.waits[guild]
	for i, g := range line {
		if g == given {
			line = append(line[:i], line[i+1:]...)
			break
		}
	}
	if p.waits[guild] = line; len(line) > 0 {
		return
	}
	delete(p.waits, guild)
	for i, g := range p.turns {
		if g == guild {
			p.turns = append(p.turns[:i], p.turns[i+1:]...)
			return
		}
	}
}
