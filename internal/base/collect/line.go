package collect

import "time"

// item is one thing to be done. The mutex of its collector guards it until it is
// taken; then it belongs to its batch, and after done is closed to its caller.
type item[T any] struct {
	// Never changed.
	value   T
	by      Caller
	subject string
	came    time.Time

	// Guarded by the collector's mutex.
	next  *item[T] // of the same subject
	state state

	done chan struct{} // closed once err is there
	err  error         // written by the batch before, read by the caller after
}

type state int

const (
	inLine state = iota // behind another of its subject
	ready               // to be taken
	gone                // taken back by its caller
	taken
)

// group is the callers of a group that have something ready.
type group[T any] struct {
	name    string
	running bool // Apart only: a batch of it is on its way
	queued  bool // in turn
	callers map[Caller]*queue[T]
	turn    []*queue[T]
}

// queue is what a caller has ready, the oldest first.
type queue[T any] struct {
	by    Caller
	items []*item[T]
}

// offer lets a batch take it.
func (c *Collector[T]) offer(it *item[T]) {
	it.state = ready
	c.ready++
	g := c.groups[it.by.Group]
	if g == nil {
		g = &group[T]{name: it.by.Group, callers: make(map[Caller]*queue[T])}
		c.groups[g.name] = g
	}
	q := g.callers[it.by]
	if q == nil {
		q = &queue[T]{by: it.by}
		g.callers[it.by] = q
		g.turn = append(g.turn, q)
	}
	q.items = append(q.items, it)
	c.enqueue(g)
}

// enqueue lets a group stand in turn exactly if a batch may take from it, and
// forgets one that has nothing.
func (c *Collector[T]) enqueue(g *group[T]) {
	switch {
	case len(g.turn) == 0 && !g.running:
		delete(c.groups, g.name)
	case len(g.turn) > 0 && !g.running && !g.queued:
		g.queued = true
		c.turn = append(c.turn, g)
	}
}

// pop takes an item of the group; nil if its caller has taken it back.
func (c *Collector[T]) pop(g *group[T]) *item[T] {
	q := g.turn[0]
	g.turn = g.turn[1:]
	it := q.items[0]
	if q.items = q.items[1:]; len(q.items) > 0 {
		g.turn = append(g.turn, q)
	} else {
		delete(g.callers, q.by)
	}
	if it.state == gone {
		c.advance(it)
		return nil
	}
	it.state = taken
	c.ready--
	c.left(it)
	return it
}

// advance offers the next of the subject.
func (c *Collector[T]) advance(it *item[T]) {
	if it.subject == "" {
		return
	}
	next := it.next
	for next != nil && next.state == gone {
		next = next.next
	}
	if next == nil {
		delete(c.last, it.subject)
		return
	}
	c.offer(next)
}

// takeBack takes an item back that is not on its way yet. It stays where it stands, and
// is passed over when its turn comes. own says that more than half a batch of its
// caller's were waiting.
func (c *Collector[T]) takeBack(it *item[T]) (own, back bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own = 2*c.waiting[it.by] > c.cfg.Most
	switch it.state {
	case taken, gone:
		return own, false
	case ready:
		c.ready--
	case inLine:
	}
	it.state = gone
	c.left(it)
	return own, true
}

// left counts an item that waits no more.
func (c *Collector[T]) left(it *item[T]) {
	if c.waiting[it.by]--; c.waiting[it.by] == 0 {
		delete(c.waiting, it.by)
	}
}
