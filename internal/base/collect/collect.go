// Package collect does together what arrives together.
//
// A statement for one change costs Postgres little more than the round trip, the
// planning and the flush of the log around it, and a statement for sixty changes
// costs hardly more. So a change that arrives while no batch is on its way is a
// batch at once; what arrives meanwhile waits and goes into the next one. Nothing
// waits for a timer, and a lone caller for nobody.
//
//	Do ──► waiting, in line by subject, in turn by caller
//	          │  a batch ends, or none is on its way
//	          ▼
//	       Enter   what a batch needs, such as a connection, is there
//	       take    at most Most of those that still wait, each subject once
//	       Run     one batch; it says what became of each item
//	          │
//	          ├──► done, or failed: Do returns
//	          └──► Alone: Do returns Left; the subject stays occupied until Release
//
// An item that its caller can as well do need not wait for others: where few are, and no
// batch is on its way, Now has it done on the caller's own goroutine.
//
// The package promises:
//
//   - An item is run once, in one batch. If the batch says Alone of it, nothing of it
//     was done, and its caller does it.
//   - Two items of one subject are never on their way together, and they are
//     begun in the order in which they came. An item that its caller does keeps its
//     place: those behind it wait. An item without a subject waits for no other.
//   - Callers are served in turn, by group and within a group by name. However
//     many items of one caller wait, another's goes into the next batch.
//   - A caller whose context ends before its item is on its way takes it back, and
//     so does one that has waited for Wait. Afterwards it gets the outcome.
//   - A batch begins after each of its items has come.
//   - A further batch starts beside those on their way only when Enough wait, and a
//     second one beside one that is Long when it would be as large as that; no more
//     than Lanes do. Where Apart is set, a batch holds items of one group
//     only, and each group has one batch on its way.
//
// The package knows neither requests nor databases.
package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"guildhall/internal/base/fault"
)

// Alone is what a batch says of an item that it has left undone and that has to
// be done by itself.
var Alone = errors.New("collect: to be done alone") //nolint:revive,staticcheck // it is an outcome and no failure

// Left is what Do returns for such an item. Its subject is occupied until its caller,
// who has it done, calls Release.
type Left struct{ Release func() }

func (*Left) Error() string { return Alone.Error() }

// Unwrap is Alone.
func (*Left) Unwrap() error { return Alone }

// Caller is on whose account an item is done.
type Caller struct{ Group, Name string }

// Config says what a batch is. Run is required.
type Config[T any] struct {
	// Run does a batch and returns what became of each item: nil when it is done,
	// Alone, or why it has failed.
	Run func(ctx context.Context, batch []T) []error

	// Enter waits for what a batch needs, before its items are chosen. The context
	// it returns is Run's. When it fails, so do all items that wait.
	Enter func(ctx context.Context) (within context.Context, release func(), err error)

	// Long, if not nil, says of an item that it makes its batch long: one of several
	// round trips. While it waits for them another one can do as much. Beside a
	// short batch that would cost more than it brings: half as many to a batch.
	Long func(T) bool

	Most   int  // items of a batch; 0 means 64
	Enough int  // so many begin a batch beside others; 0 means Most
	Few    int  // things that Now does at once; 0 means 1
	Lanes  int  // batches on their way at once; 0 means 4
	Apart  bool // a batch holds items of one group

	// Wait is how long an item may wait to be on its way; 0 means 2 s. Late is the
	// error of one that has waited in vain; own says that more than half a batch of
	// its own caller's were waiting. Waited, if not nil, is how much of that time has
	// passed before Do.
	Wait   time.Duration
	Late   func(own bool) error
	Waited func(ctx context.Context) time.Duration

	// Began, if not nil, is told of each batch: its size, and how long the item
	// that came first had waited.
	Began func(size int, waited time.Duration)
}

// Collector collects items of one kind. It needs no goroutine of its own while
// nothing is to be done.
type Collector[T any] struct {
	cfg Config[T]

	mu      sync.Mutex          // guards what follows
	last    map[string]*item[T] // of each subject: who is at the end of its line
	groups  map[string]*group[T]
	turn    []*group[T] // those from which a batch may take
	ready   int         // items that a batch may take
	running int         // batches
	now     int         // what Now does
	enough  int         // so many that are ready begin a second batch beside the first
	waiting map[Caller]int
}

// least is the smallest batch that is worth its round trips beside another one.
const least = 4

// New returns a collector.
func New[T any](cfg Config[T]) *Collector[T] {
	cfg.Most = cmp.Or(cfg.Most, 64)
	cfg.Enough = cmp.Or(cfg.Enough, cfg.Most)
	cfg.Few = cmp.Or(cfg.Few, 1)
	cfg.Lanes = cmp.Or(cfg.Lanes, 4)
	cfg.Wait = cmp.Or(cfg.Wait, 2*time.Second)
	if cfg.Late == nil {
		cfg.Late = func(bool) error { return context.DeadlineExceeded }
	}
	return &Collector[T]{
		cfg: cfg, last: make(map[string]*item[T]), groups: make(map[string]*group[T]), waiting: make(map[Caller]int),
	}
}

// Now calls do, if no batch is on its way and Now does fewer than Few other things, and
// says whether it has. Nothing waits for what it does. Once there are more, batches
// follow each other until nobody waits.
func (c *Collector[T]) Now(do func()) bool {
	if !c.enter() {
		return false
	}
	defer c.leave()
	do()
	return true
}

func (c *Collector[T]) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running > 0 || c.now >= c.cfg.Few {
		return false
	}
	c.now++
	return true
}

func (c *Collector[T]) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now--
}

// Do has value done in a batch, and returns what became of it. It is *Left when the
// batch has left it undone.
func (c *Collector[T]) Do(ctx context.Context, by Caller, subject string, value T) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	wait := c.cfg.Wait
	if c.cfg.Waited != nil {
		wait -= c.cfg.Waited(ctx)
	}
	if wait <= 0 {
		return c.cfg.Late(false)
	}
	it := &item[T]{value: value, by: by, subject: subject, came: time.Now(), done: make(chan struct{})}
	c.add(it)
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-it.done:
	case <-ctx.Done():
		if _, back := c.takeBack(it); back {
			return ctx.Err()
		}
		<-it.done
	case <-late.C:
		if own, back := c.takeBack(it); back {
			return c.cfg.Late(own)
		}
		<-it.done
	}
	if errors.Is(it.err, Alone) {
		return &Left{Release: sync.OnceFunc(func() { c.pass(it) })}
	}
	return it.err
}

// add puts it in its line and starts a batch if there is to be one.
func (c *Collector[T]) add(it *item[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[it.by]++
	if it.subject != "" {
		before := c.last[it.subject]
		c.last[it.subject] = it
		if before != nil {
			before.next = it
			return
		}
	}
	c.offer(it)
	c.start()
}

// wanted says whether a batch is to start beside so many others.
func (c *Collector[T]) wanted(others int) bool {
	if len(c.turn) == 0 || others >= c.cfg.Lanes {
		return false
	}
	return others == 0 || c.cfg.Apart || c.ready >= c.cfg.Enough || others == 1 && c.ready >= c.enough
}

func (c *Collector[T]) start() {
	if c.wanted(c.running) {
		c.running++
		c.enough = c.cfg.Most // until it has taken its items
		go c.work()
	}
}

// pass lets the next of the subject have its turn, after an item that was done
// alone.
func (c *Collector[T]) pass(it *item[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(it)
	c.start()
}

// work runs batches until none is to start. Its context is no request's.
func (c *Collector[T]) work() {
	ctx := context.Background() //nolint:forbidigo // a batch is nobody's alone
	for {
		c.batch(ctx)
		c.mu.Lock()
		if !c.wanted(c.running - 1) {
			c.running--
			c.mu.Unlock()
			return
		}
		c.enough = c.cfg.Most
		c.mu.Unlock()
	}
}

// batch runs one batch.
func (c *Collector[T]) batch(ctx context.Context) {
	release, entered := func() {}, error(nil)
	if c.cfg.Enter != nil {
		var out func()
		if ctx, out, entered = c.cfg.Enter(ctx); entered == nil {
			release = out
		}
	}
	g, items := c.take()
	if len(items) > 0 {
		var outcomes []error
		if entered != nil {
			outcomes = slices.Repeat([]error{entered}, len(items))
		} else {
			outcomes = c.run(ctx, items)
		}
		for i, it := range items {
			it.err = outcomes[i]
		}
	}
	release()
	c.end(g, items)
}

// run calls Run. One that panics has failed for all of its items.
func (c *Collector[T]) run(ctx context.Context, items []*item[T]) (outcomes []error) {
	values := make([]T, len(items))
	waited := time.Duration(0)
	for i, it := range items {
		values[i] = it.value
		waited = max(waited, time.Since(it.came))
	}
	defer func() {
		failure := error(nil)
		if p := recover(); p != nil {
			failure = fault.Wrap(fault.Panicked(p), "a batch")
		} else if len(outcomes) != len(items) {
			failure = fmt.Errorf("a batch of %d has said what became of %d", len(items), len(outcomes))
		}
		if failure != nil {
			outcomes = slices.Repeat([]error{failure}, len(items))
		}
	}()
	if c.cfg.Began != nil {
		c.cfg.Began(len(items), waited)
	}
	return c.cfg.Run(ctx, values)
}

// take chooses the items of a batch: of each group in turn one, of each of its
// callers in turn. Where batches hold one group only, the group is returned.
func (c *Collector[T]) take() (only *group[T], batch []*item[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		if c.cfg.Long != nil && slices.ContainsFunc(batch, func(it *item[T]) bool { return c.cfg.Long(it.value) }) {
			c.enough = max(least, len(batch))
		}
	}()
	for len(batch) < c.cfg.Most && len(c.turn) > 0 {
		g := c.turn[0]
		if it := c.pop(g); it != nil {
			batch = append(batch, it)
		}
		if c.cfg.Apart && len(g.turn) > 0 && len(batch) < c.cfg.Most {
			continue
		}
		c.turn = c.turn[1:]
		g.queued = false
		if c.cfg.Apart && len(batch) > 0 {
			g.running = true
			return g, batch
		}
		c.enqueue(g)
	}
	return nil, batch
}

// end tells the callers of a batch, and makes its subjects and its group
// available again.
func (c *Collector[T]) end(only *group[T], items []*item[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if only != nil {
		only.running = false
		c.enqueue(only)
	}
	for _, it := range items {
		if !errors.Is(it.err, Alone) {
			c.advance(it)
		}
		close(it.done)
	}
}
