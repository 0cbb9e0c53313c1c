// Package collect does together what arrives together.
//
// A statement for sixty changes costs Postgres little more than one for a single change:
// most of that is round trip, planning and flush of the log. So a change that arrives
// while no batch is on its way is a batch at once, and what arrives meanwhile goes into
// the next one. A lone caller waits for nobody.
//
//	Do      waiting, in line by subject, in turn by caller; or left at once, among few
//	Enter   what a batch needs, such as a connection, is there
//	gather  callers of the batch before are back, or a Moment is over
//	take    at most Most of those that still wait, each subject once
//	Run     one batch; the next one begins
//	tell    done, or failed: Do returns; left: it returns *Left, the subject is occupied until Release
//
// The package promises:
//
//   - An item is run once, in one batch. If the batch has left it, nothing of it
//     was done, and its caller does it.
//   - While no batch is on its way, Few items are left at once. Once there are more, batches
//     follow each other until none waits.
//   - Two items of one subject are never on their way together, and they are
//     begun in the order in which they came. An item that its caller does keeps its
//     place: those behind it wait. An item without a subject waits for no other.
//   - Callers are served in turn, by group and within a group by name. However
//     many items of one caller wait, another's goes into the next batch.
//   - A caller whose context ends before its item is on its way takes it back, and
//     so does one that has waited for Wait. Afterwards it gets the outcome.
//   - A batch begins after each of its items has come. It waits for callers of the batch
//     before for a Moment at most, and seldom in vain.
//   - A further batch starts beside those on their way only when Enough wait; no more than
//     Lanes do. Where Apart is set, a batch holds items of one group only, and each group
//     has one batch on its way.
package collect

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"guildhall/internal/base/fault"
)

// Alone says that something was left undone and has to be done by itself.
var Alone = errors.New("collect: to be done alone") //nolint:revive,staticcheck // it is an outcome and no failure

// Left is what Do returns for an item that its caller is to do, and is Alone. The item's
// subject, or one place among the few, is occupied until the caller calls Release, once;
// a subject is not where the item has waited in vain.
type Left struct{ Release func() }

func (*Left) Error() string { return Alone.Error() }
func (*Left) Unwrap() error { return Alone }

// Caller is on whose account an item is done.
type Caller struct{ Group, Name string }

// Config says what a batch is. Functions and both errors are required, but for Made.
type Config[T any] struct {
	// Run does a batch. It returns Alone when it has left all of its items, and why it
	// has failed when that is to be told to all.
	Run func(ctx context.Context, batch []T) error

	// Made says of an item of a batch without an error that it was not left.
	Made func(T) bool

	// Enter waits for what a batch needs, before its items are chosen. The context
	// it returns is Run's. When it fails, so do all items that wait.
	Enter func(ctx context.Context) (within context.Context, release func(), err error)

	Most   int  // items of a batch; 0 means 64
	Enough int  // so many begin a batch beside others; 0 means Most
	Few    int  // so many are left at once while there is no batch
	Lanes  int  // batches on their way at once; 0 means 4, and 8 where they are Apart
	Apart  bool // a batch holds items of one group

	// Moment is how long after the end of a batch the next one waits at most for callers
	// whose items were in it; 0: not at all. Callers that come again and again, each after
	// its answer, would else be in two halves, of which each waits for the other's batch.
	Moment time.Duration

	// Wait is how long an item may wait to be on its way. One that has waited in vain is
	// OwnShare when more than half a batch of its own caller's were waiting, and Busy
	// otherwise. Either may be Alone.
	Wait           func(ctx context.Context) time.Duration
	OwnShare, Busy error

	// Began is told of each batch: its size, and how long the item that came first had
	// waited.
	Began func(size int, waited time.Duration)
}

// Collector collects items of one kind. It has no goroutine while nothing is to be done.
type Collector[T any] struct {
	cfg Config[T]

	mu      sync.Mutex            // guards what follows
	lines   map[string][]*item[T] // of each subject; only the first is ready, or on its way
	turns   *turns[T]             // by group and caller: what a batch may take
	waiting map[Caller]int
	ready   int // items that a batch may take
	running int // batches
	few     int // items that were left at once

	ended  time.Time // when the last batch ended
	want   int       // so many were ready then, or in it
	came   sync.Cond // told when so many are ready
	misses int       // batches in a row that have waited in vain
	skip   int       // batches that do not wait
}

// item is one thing to be done. Once it is done, it is its caller's.
type item[T any] struct {
	value   T
	by      Caller
	subject string
	came    time.Time

	ready, taken bool // guarded by the collector's mutex
	done         chan struct{}
	err          error // written before done is closed
}

// New returns a collector.
func New[T any](cfg Config[T]) *Collector[T] {
	cfg.Most = cmp.Or(cfg.Most, 64)
	cfg.Enough = cmp.Or(cfg.Enough, cfg.Most)
	cfg.Lanes = cmp.Or(cfg.Lanes, map[bool]int{false: 4, true: 8}[cfg.Apart])
	c := &Collector[T]{cfg: cfg, lines: map[string][]*item[T]{}, turns: &turns[T]{below: map[string]*turns[T]{}}, waiting: map[Caller]int{}}
	c.came.L = &c.mu
	return c
}

// Do has value done in a batch and returns what became of it: *Left when its caller is to do it.
func (c *Collector[T]) Do(ctx context.Context, by Caller, subject string, value T) error {
	if c.amongFew() {
		return c.left(func() { c.few-- })
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Wait(ctx), c.cfg.Busy)
	defer cancel()
	it := &item[T]{value: value, by: by, subject: subject, came: time.Now(), done: make(chan struct{}), err: context.Cause(ctx)}
	if it.err == nil {
		c.add(it)
		select {
		case <-it.done:
		case <-ctx.Done():
			c.takeBack(it, context.Cause(ctx))
		}
		<-it.done
	}
	if errors.Is(it.err, Alone) {
		return c.left(func() { c.leave(it); c.start() })
	}
	return it.err
}

// left is what its caller does, and after it over.
func (c *Collector[T]) left(over func()) error {
	return &Left{Release: func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		over()
	}}
}

// amongFew counts an item that is left at once, if it is one of few.
func (c *Collector[T]) amongFew() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running > 0 || c.few >= c.cfg.Few {
		return false
	}
	c.few++
	return true
}

// add puts it in its line and starts a batch if there is to be one.
func (c *Collector[T]) add(it *item[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[it.by]++
	if it.subject != "" {
		c.lines[it.subject] = append(c.lines[it.subject], it)
		if len(c.lines[it.subject]) > 1 {
			return
		}
	}
	c.offer(it)
	c.start()
}

// offer lets a batch take it.
func (c *Collector[T]) offer(it *item[T]) {
	it.ready = true
	c.ready++
	c.turns.push(it, it.by.Group, it.by.Name)
	if c.ready >= c.want {
		c.came.Signal()
	}
}

// leave takes an item out of its line, and offers the next one if it was the first.
func (c *Collector[T]) leave(it *item[T]) {
	at := slices.Index(c.lines[it.subject], it)
	if at < 0 { // it has no subject
		return
	}
	line := slices.Delete(c.lines[it.subject], at, at+1)
	c.lines[it.subject] = line
	switch {
	case len(line) == 0:
		delete(c.lines, it.subject)
	case at == 0:
		c.offer(line[0])
	}
}

// takeBack takes an item back, unless it is on its way. Its turn passes over it.
func (c *Collector[T]) takeBack(it *item[T], because error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if it.taken {
		return
	}
	if it.err = because; errors.Is(because, c.cfg.Busy) && 2*c.waiting[it.by] > c.cfg.Most {
		it.err = c.cfg.OwnShare
	}
	c.waitsNoMore(it)
	c.leave(it)
	close(it.done)
}

func (c *Collector[T]) waitsNoMore(it *item[T]) {
	if it.ready {
		it.ready = false
		c.ready--
	}
	if c.waiting[it.by]--; c.waiting[it.by] == 0 {
		delete(c.waiting, it.by)
	}
}

// start begins a batch, if one is wanted.
func (c *Collector[T]) start() {
	if from := c.next(); from != nil {
		go c.batches(from)
	}
}

// next is where the items of a batch are to come from; nil when none is wanted.
func (c *Collector[T]) next() *turns[T] {
	if !c.wanted() {
		return nil
	}
	c.running++
	if c.cfg.Apart {
		return c.turns.shift()
	}
	return c.turns
}

func (c *Collector[T]) wanted() bool {
	return len(c.turns.next) > 0 && c.running < c.cfg.Lanes && (c.running == 0 || c.cfg.Apart || c.ready >= c.cfg.Enough)
}

// batches runs one after the other, while one is wanted. Their context is no request's.
func (c *Collector[T]) batches(from *turns[T]) {
	for from != nil {
		ctx, release, err := c.cfg.Enter(context.Background()) //nolint:forbidigo // a batch is nobody's alone
		items := c.take(from)
		if err == nil {
			err = c.run(ctx, items)
			release()
		}
		from = c.over(from, items, err)
	}
}

// take chooses the items of a batch: of each group in turn one, of each of its callers in turn.
func (c *Collector[T]) take(from *turns[T]) (items []*item[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gather()
	for len(items) < c.cfg.Most {
		it := from.pop()
		if it == nil {
			break
		}
		it.taken = true
		c.waitsNoMore(it)
		items = append(items, it)
	}
	return items
}

// run calls Run. One that panics has failed for all of its items.
func (c *Collector[T]) run(ctx context.Context, items []*item[T]) error {
	if len(items) == 0 { // all were taken back
		return nil
	}
	values, waited := make([]T, len(items)), time.Duration(0)
	for i, it := range items {
		values[i], waited = it.value, max(waited, time.Since(it.came))
	}
	c.cfg.Began(len(items), waited)
	return fault.Caught(func() error { return c.cfg.Run(ctx, values) })
}

// over makes room for the next batch, and has the callers of this one told beside it.
func (c *Collector[T]) over(from *turns[T], items []*item[T], err error) (next *turns[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	c.ended, c.want = time.Now(), min(c.ready+len(items), c.cfg.Most, ample)
	if from != c.turns {
		c.turns.put(from)
	}
	go c.tell(items, err)
	return c.next()
}

// tell tells the callers of a batch, and makes its subjects available again.
func (c *Collector[T]) tell(items []*item[T], err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, it := range items {
		if it.err = err; err == nil && c.cfg.Made != nil && !c.cfg.Made(it.value) {
			it.err = Alone
		}
		if !errors.Is(it.err, Alone) {
			c.leave(it)
		}
		close(it.done)
	}
	c.start()
}
