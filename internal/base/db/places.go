package db

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"guildhall/internal/base/fault"
	"guildhall/internal/base/tracing"
)

// waitTimeout is how long a request waits for places, all its statements
// together and the look-up of its token with them, before it is refused.
const waitTimeout = 2 * time.Second

// Caller is on whose account the database works. The zero Caller is the program
// itself, which waits as long as its context lets it and has no bound of its
// own.
type Caller struct{ Token, Guild string }

// As returns a context whose database work is done on the account of c, as a
// request is: it waits for its turn among the others, and is not cut off in the
// middle of a statement when ctx ends.
func As(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey, &account{caller: c})
}

// Charge counts d among what the request of ctx has waited.
func Charge(ctx context.Context, d time.Duration) {
	if request := accountOf(ctx); request != nil {
		request.waited.Add(int64(d))
	}
}

func waited(ctx context.Context) time.Duration {
	request := accountOf(ctx)
	if request == nil {
		return 0
	}
	return time.Duration(request.waited.Load())
}

// Spent is how much is over of the time for which the request of ctx may wait for its
// turn in a batch: what it has waited so far, or more where otherwise the batch might end
// after the request has to.
func Spent(ctx context.Context) time.Duration {
	spent := waited(ctx)
	if request := accountOf(ctx); request != nil && !request.by.IsZero() {
		spent = max(spent, waitTimeout+batchTimeout-time.Until(request.by))
	}
	return spent
}

// EndBy has all that the database does for the request of ctx end by then, also if it
// does not answer: a second before, nothing new is begun, no COMMIT either, and the
// connection is ended whose statement has not ended then.
func EndBy(ctx context.Context, by time.Time) {
	if request := accountOf(ctx); request != nil {
		request.by = by
	}
}

// lastBegin is how long before the end of a request the last statement may begin. A
// COMMIT that is cut off leaves its caller without knowing what became of it.
const lastBegin = time.Second

// errSlow is the refusal of a request whose time is over.
var errSlow error = fault.New(fault.Unavailable, "service_unavailable",
	"The database takes too long to answer; try the same request again.").After(5 * time.Second)

// late fails when nothing new is to be begun for the request of ctx.
func late(ctx context.Context) error {
	if request := accountOf(ctx); request != nil && !request.by.IsZero() && time.Until(request.by) < lastBegin {
		return errSlow
	}
	return nil
}

// account is what one request does on a caller's account.
type account struct {
	caller Caller
	waited atomic.Int64 // nanoseconds: for places, and what was charged
	by     time.Time    // when all has to have ended; zero: no bound

	// The place that the request took when it began to read; its first statement
	// has it. Both belong to the goroutine that serves the request.
	early  *Places
	giveUp func()
}

// accountOf returns nil outside of a request.
func accountOf(ctx context.Context) *account {
	a, _ := ctx.Value(callerKey).(*account)
	return a
}

// connectionPlaces are the places of a pool's n connections: a token holds at
// most half of them, its guild at most three quarters.
func connectionPlaces(n int) *Places { return NewPlaces(n, connectionShare(n)) }

func connectionShare(n int) Share {
	return Share{
		Token: max(1, n/2), Guild: max(1, n-max(1, n/4)),
		OwnShare: ErrOwnShare, Busy: ErrBusy,
	}
}

// How callers are refused that have waited for the database in vain: while their
// own token holds its share, and otherwise.
var (
	ErrOwnShare error = fault.New(fault.Limited, "rate_limited",
		"This token has as many requests under way as it may have at once. Wait for Retry-After seconds.").After(time.Second)
	ErrBusy error = fault.New(fault.Unavailable, "service_unavailable",
		"The service is busy; try the same request again.").After(time.Second)
)

// Share is how many places one token and one guild may hold, and how callers are
// refused that have waited in vain: while their own token holds its share, and
// otherwise.
type Share struct {
	Token, Guild   int
	OwnShare, Busy error
}

// Places are the right to use something of which there are only so many, such as
// the connections of a pool, and share them fairly. As long as nobody waits a
// caller takes a free place at once, within the bounds of its token and its
// guild. When callers wait, a place that becomes free goes to the guild that
// holds the fewest, in turn among equals, and there in turn by token. So a guild
// keeps more than its share only as long as nobody else wants it.
//
// All of it takes constant time, whatever the number of callers that wait.
type Places struct {
	total int
	share Share

	mu      sync.Mutex // guards what follows
	free    int
	tokens  map[Caller]*tokenPlaces // those that hold or wait
	guilds  map[string]*guildPlaces // theirs
	waiting []list.List             // guilds that may be given a place, by how many they hold
	stats   PlaceStats
}

// PlaceStats counts what has happened so far.
type PlaceStats struct {
	Held, Waiting  int
	Waits          int64         // callers that had to wait
	Waited         time.Duration // for how long, together
	OwnShare, Busy int64         // refused: by their own token's share, by the others
}

type guildPlaces struct {
	name   string
	bound  int
	held   int
	users  int           // tokens of it in the map
	tokens list.List     // those that may be given a place
	queued int           // where turn is
	turn   *list.Element // in waiting[queued]; nil: it may not be given one
}

type tokenPlaces struct {
	caller  Caller
	guild   *guildPlaces
	bound   int
	held    int
	waiters list.List
	turn    *list.Element // in guild.tokens; nil: it may not be given one
}

type waiter struct {
	given chan struct{} // closed once it was given a place
	place *list.Element // in waiters; nil once it was given one; guarded by the mutex of Places
}

// NewPlaces returns n free places.
func NewPlaces(n int, share Share) *Places {
	return &Places{
		total: n, share: share, free: n, waiting: make([]list.List, n+1),
		tokens: make(map[Caller]*tokenPlaces), guilds: make(map[string]*guildPlaces),
	}
}

// Acquire waits for a place; the caller must give it back with release, once.
// A request that has waited two seconds in all is refused: with Share.OwnShare
// when it is its own token that holds as many as it may, else with Share.Busy.
func (p *Places) Acquire(ctx context.Context, c Caller) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	t := p.token(c)
	if p.free > 0 && t.held < t.bound && t.guild.held < t.guild.bound {
		// No waiting request could have it: it would have been given one.
		p.take(t)
		p.mu.Unlock()
		return func() { p.release(t) }, nil
	}
	w := &waiter{given: make(chan struct{})}
	w.place = t.waiters.PushBack(w)
	p.stats.Waits++
	p.stats.Waiting++
	p.queue(t)
	p.mu.Unlock()
	if err := p.wait(ctx, t, w); err != nil {
		return nil, err
	}
	return func() { p.release(t) }, nil
}

// wait returns nil once w has its place.
func (p *Places) wait(ctx context.Context, t *tokenPlaces, w *waiter) error {
	span := tracing.Child(ctx, "wait for a place")
	defer span.End()
	begun := time.Now()
	var late <-chan time.Time
	if t.caller != (Caller{}) {
		timer := time.NewTimer(waitTimeout - waited(ctx))
		defer timer.Stop()
		late = timer.C
	}
	var err error
	select {
	case <-w.given:
	case <-late:
		err = p.share.Busy
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	waited := time.Since(begun)
	Charge(ctx, waited)
	p.stats.Waiting--
	p.stats.Waited += waited
	switch {
	case err == nil:
		return nil
	case w.place == nil && ctx.Err() == nil: // given at the last moment
		return nil
	case w.place == nil:
		p.giveBack(t)
		return err
	}
	t.waiters.Remove(w.place)
	if ctx.Err() == nil && t.held >= t.bound {
		err = p.share.OwnShare
		p.stats.OwnShare++
	} else if ctx.Err() == nil {
		p.stats.Busy++
	}
	p.queue(t)
	p.forget(t)
	return err
}

func (p *Places) release(t *tokenPlaces) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.giveBack(t)
}

// token returns the state of a caller's token, which is new if nobody uses it.
func (p *Places) token(c Caller) *tokenPlaces {
	if t := p.tokens[c]; t != nil {
		return t
	}
	g := p.guilds[c.Guild]
	if g == nil {
		g = &guildPlaces{name: c.Guild, bound: p.share.Guild}
		p.guilds[c.Guild] = g
	}
	g.users++
	t := &tokenPlaces{caller: c, guild: g, bound: p.share.Token}
	if c == (Caller{}) {
		t.bound, g.bound = p.total, p.total
	}
	p.tokens[c] = t
	return t
}

// forget drops a state that nobody uses.
func (p *Places) forget(t *tokenPlaces) {
	if t.held > 0 || t.waiters.Len() > 0 {
		return
	}
	delete(p.tokens, t.caller)
	if t.guild.users--; t.guild.users == 0 {
		delete(p.guilds, t.guild.name)
	}
}

// take gives t a free place.
func (p *Places) take(t *tokenPlaces) {
	p.free--
	t.held++
	t.guild.held++
	p.queueGuild(t.guild)
}

// giveBack makes a place of t free and hands out what is free.
func (p *Places) giveBack(t *tokenPlaces) {
	p.free++
	t.held--
	t.guild.held--
	p.queue(t)
	for p.free > 0 {
		next := p.next()
		if next == nil {
			break
		}
		first := next.waiters.Front()
		w, _ := next.waiters.Remove(first).(*waiter)
		w.place = nil
		// Behind the other tokens of its guild.
		next.guild.tokens.Remove(next.turn)
		next.turn = nil
		p.take(next)
		p.queue(next)
		close(w.given)
	}
	p.forget(t)
}

// next is the token whose turn it is; nil if none may be given a place.
func (p *Places) next() *tokenPlaces {
	for i := range p.waiting {
		if first := p.waiting[i].Front(); first != nil {
			g, _ := first.Value.(*guildPlaces)
			t, _ := g.tokens.Front().Value.(*tokenPlaces)
			return t
		}
	}
	return nil
}

// queue lets a token stand among those of its guild exactly if it may be given
// a place. A token that stands there already keeps its turn.
func (p *Places) queue(t *tokenPlaces) {
	switch may := t.waiters.Len() > 0 && t.held < t.bound; {
	case may && t.turn == nil:
		t.turn = t.guild.tokens.PushBack(t)
	case !may && t.turn != nil:
		t.guild.tokens.Remove(t.turn)
		t.turn = nil
	}
	p.queueGuild(t.guild)
}

// queueGuild does the same for a guild, among those that hold as many places.
func (p *Places) queueGuild(g *guildPlaces) {
	may := g.tokens.Len() > 0 && g.held < g.bound
	if g.turn != nil {
		if may && g.queued == g.held {
			return
		}
		p.waiting[g.queued].Remove(g.turn)
		g.turn = nil
	}
	if may {
		g.queued = g.held
		g.turn = p.waiting[g.queued].PushBack(g)
	}
}

// Stats returns what has happened so far.
func (p *Places) Stats() PlaceStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Held = p.total - p.free
	return s
}
