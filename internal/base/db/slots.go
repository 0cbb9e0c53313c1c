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

// waitTimeout is how long a request may wait for connection slots before it is refused:
// over all its statements and the look-up of its token.
const waitTimeout = 2 * time.Second

// Caller is the token and guild that a request's connection slots are counted for. The
// zero Caller is the program itself: it waits as long as its context lasts, and may hold
// every slot.
type Caller struct{ Token, Guild string }

// As returns a context whose database work is counted for c, as a request's is. The work
// waits for connection slots in turn with other callers, and when ctx ends the current
// statement still runs to its end.
func As(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey, &account{caller: c})
}

// Charge adds d to the time that the request of ctx has waited.
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

// Spent returns how much of its waiting time the request of ctx has used up, before it
// waits for a batch. It is the time waited so far, or more where a batch that begins later
// might end after the request's own deadline.
func Spent(ctx context.Context) time.Duration {
	spent := waited(ctx)
	if request := accountOf(ctx); request != nil && !request.by.IsZero() {
		spent = max(spent, waitTimeout+batchTimeout-time.Until(request.by))
	}
	return spent
}

// EndBy sets the deadline of all database work of the request of ctx. In the last second
// no statement and no COMMIT begins. At the deadline a connection whose statement is still
// running is closed.
func EndBy(ctx context.Context, by time.Time) {
	if request := accountOf(ctx); request != nil {
		request.by = by
	}
}

// lastBegin is how long before a request's deadline its last statement may begin. After a
// COMMIT that is cut off nobody knows whether the transaction committed.
const lastBegin = time.Second

// errSlow refuses a request whose deadline is near.
var errSlow error = fault.New(fault.Unavailable, "service_unavailable",
	"The database takes too long to answer; try the same request again.").After(5 * time.Second)

// late returns errSlow when no further statement may begin for the request of ctx.
func late(ctx context.Context) error {
	if request := accountOf(ctx); request != nil && !request.by.IsZero() && time.Until(request.by) < lastBegin {
		return errSlow
	}
	return nil
}

// account is the database state of one request.
type account struct {
	caller Caller
	waited atomic.Int64 // nanoseconds waited for slots, and what Charge added
	by     time.Time    // the deadline of EndBy; zero: none

	// The pool of which Queue acquired a slot for the request's first statement, and the
	// slot's release. Only the goroutine that serves the request uses both.
	early  *Slots
	giveUp func()
}

// accountOf returns the account of the request of ctx, and nil outside of a request.
func accountOf(ctx context.Context) *account {
	a, _ := ctx.Value(callerKey).(*account)
	return a
}

// connectionSlots returns the slots of a pool of n connections. A token may hold at most
// half of them, its guild at most three quarters.
func connectionSlots(n int) *Slots { return NewSlots(n, connectionShare(n)) }

func connectionShare(n int) Share {
	return Share{
		Token: max(1, n/2), Guild: max(1, n-max(1, n/4)),
		OwnShare: ErrOwnShare, Busy: ErrBusy,
	}
}

// Errors of requests that have waited for a connection slot in vain: ErrOwnShare when the
// request's own token holds its share, else ErrBusy.
var (
	ErrOwnShare error = fault.New(fault.Limited, "rate_limited",
		"This token has as many requests under way as it may have at once. Wait for Retry-After seconds.").After(time.Second)
	ErrBusy error = fault.New(fault.Unavailable, "service_unavailable",
		"The service is busy; try the same request again.").After(time.Second)
)

// Share is how many slots one token and one guild may hold, and the errors of callers that
// have waited in vain: OwnShare when their own token holds its share, else Busy.
type Share struct {
	Token, Guild   int
	OwnShare, Busy error
}

// Slots is a semaphore with fair queues, for a limited resource such as the connections of
// a pool. While nobody waits, a caller acquires a free slot at once, within the bounds of
// its token and guild. While callers wait, a released slot goes to the guild that holds
// the fewest slots, in turn among equal guilds, and within the guild to its tokens in
// turn. So a guild holds more than its share only while no other guild waits.
//
// Every method takes constant time, whatever the number of waiting callers.
type Slots struct {
	total int
	share Share

	mu      sync.Mutex // guards the fields below
	free    int
	tokens  map[Caller]*tokenSlots // tokens that hold a slot or wait for one
	guilds  map[string]*guildSlots // the guilds whose tokens are in the field tokens
	waiting []list.List            // queues of guilds that may get a slot; the index is how many slots they hold
	stats   SlotStats
}

// SlotStats is the current use of Slots, and counters since it was created.
type SlotStats struct {
	Held, Waiting  int
	Waits          int64         // acquisitions that had to wait
	Waited         time.Duration // how long all acquisitions together have waited
	OwnShare, Busy int64         // refusals by the caller's own share, and by other callers' use
}

type guildSlots struct {
	name   string
	bound  int
	held   int
	users  int           // the guild's tokens in Slots.tokens
	tokens list.List     // the queue of the guild's tokens that may get a slot
	queued int           // the index in Slots.waiting of the queue that holds turn
	turn   *list.Element // in Slots.waiting[queued]; nil: the guild may not get a slot
}

type tokenSlots struct {
	caller  Caller
	guild   *guildSlots
	bound   int
	held    int
	waiters list.List
	turn    *list.Element // in guild.tokens; nil: the token may not get a slot
}

type waiter struct {
	granted chan struct{} // closed when the waiter gets its slot
	element *list.Element // the waiter's place in tokenSlots.waiters; nil once the waiter has its slot; guarded by Slots.mu
}

// NewSlots returns n free slots.
func NewSlots(n int, share Share) *Slots {
	return &Slots{
		total: n, share: share, free: n, waiting: make([]list.List, n+1),
		tokens: make(map[Caller]*tokenSlots), guilds: make(map[string]*guildSlots),
	}
}

// Acquire waits for a slot. The caller must call release once. A request that has waited
// two seconds in all gets Share.OwnShare when its own token holds its share, else
// Share.Busy.
func (p *Slots) Acquire(ctx context.Context, c Caller) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	t := p.token(c)
	if p.free > 0 && t.held < t.bound && t.guild.held < t.guild.bound {
		// No waiting request may get this slot, or it would have got it when it was released.
		p.take(t)
		p.mu.Unlock()
		return func() { p.release(t) }, nil
	}
	w := &waiter{granted: make(chan struct{})}
	w.element = t.waiters.PushBack(w)
	p.stats.Waits++
	p.stats.Waiting++
	p.queue(t)
	p.mu.Unlock()
	if err := p.wait(ctx, t, w); err != nil {
		return nil, err
	}
	return func() { p.release(t) }, nil
}

// wait returns nil once w has its slot.
func (p *Slots) wait(ctx context.Context, t *tokenSlots, w *waiter) error {
	span := tracing.Child(ctx, "wait for a connection slot")
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
	case <-w.granted:
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
	case w.element == nil && ctx.Err() == nil: // granted while the timer fired
		return nil
	case w.element == nil:
		p.giveBack(t)
		return err
	}
	t.waiters.Remove(w.element)
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

func (p *Slots) release(t *tokenSlots) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.giveBack(t)
}

// token returns the state of a caller's token, and creates it where there is none.
func (p *Slots) token(c Caller) *tokenSlots {
	if t := p.tokens[c]; t != nil {
		return t
	}
	g := p.guilds[c.Guild]
	if g == nil {
		g = &guildSlots{name: c.Guild, bound: p.share.Guild}
		p.guilds[c.Guild] = g
	}
	g.users++
	t := &tokenSlots{caller: c, guild: g, bound: p.share.Token}
	if c == (Caller{}) {
		t.bound, g.bound = p.total, p.total
	}
	p.tokens[c] = t
	return t
}

// forget drops the state of a token that neither holds slots nor waits.
func (p *Slots) forget(t *tokenSlots) {
	if t.held > 0 || t.waiters.Len() > 0 {
		return
	}
	delete(p.tokens, t.caller)
	if t.guild.users--; t.guild.users == 0 {
		delete(p.guilds, t.guild.name)
	}
}

// take gives a free slot to t.
func (p *Slots) take(t *tokenSlots) {
	p.free--
	t.held++
	t.guild.held++
	p.queueGuild(t.guild)
}

// giveBack frees a slot of t and grants the free slots to waiters.
func (p *Slots) giveBack(t *tokenSlots) {
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
		w.element = nil
		// Its token goes to the end of its guild's queue.
		next.guild.tokens.Remove(next.turn)
		next.turn = nil
		p.take(next)
		p.queue(next)
		close(w.granted)
	}
	p.forget(t)
}

// next returns the token whose turn it is, and nil when no waiting token may get a slot.
func (p *Slots) next() *tokenSlots {
	for i := range p.waiting {
		if first := p.waiting[i].Front(); first != nil {
			g, _ := first.Value.(*guildSlots)
			t, _ := g.tokens.Front().Value.(*tokenSlots)
			return t
		}
	}
	return nil
}

// queue puts a token into its guild's queue when the token may get a slot, and takes it
// out when it may not. A token that is in the queue keeps its turn.
func (p *Slots) queue(t *tokenSlots) {
	switch may := t.waiters.Len() > 0 && t.held < t.bound; {
	case may && t.turn == nil:
		t.turn = t.guild.tokens.PushBack(t)
	case !may && t.turn != nil:
		t.guild.tokens.Remove(t.turn)
		t.turn = nil
	}
	p.queueGuild(t.guild)
}

// queueGuild does the same for a guild, in the queue of guilds that hold as many slots.
func (p *Slots) queueGuild(g *guildSlots) {
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

// Stats returns the current use and the counters.
func (p *Slots) Stats() SlotStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Held = p.total - p.free
	return s
}
