// Package batcher runs concurrent items of one kind in batches (group commit).
//
// A statement for sixty changes costs Postgres little more than a statement for one
// change: most of the cost is the round trip, planning and the flush of the log. So an
// item that arrives while no batch is running starts a batch at once, and items that
// arrive meanwhile wait for the next batch. A lone caller never waits.
//
//	Do            queue the item, in order within its subjects, in turn by caller; or fall back at once
//	Acquire       get what a batch needs, such as a connection slot
//	awaitCallers  wait for the callers of the previous batch, at most until the Window ends
//	take          at most Most of the waiting items, each subject once
//	Run           execute the batch; the next batch starts after it
//	notify        Do returns the result, or a *Fallback, which occupies the subjects until Release
//
// The package promises:
//
//   - An item runs once, in one batch. If its batch did not apply the item, nothing of the
//     item was done, and its caller does it (*Fallback).
//   - While no batch is running, up to Few items fall back at once. When more arrive, batches
//     follow each other until no item waits.
//   - Two items with a subject in common never run concurrently, and they start in the order in
//     which they arrived. After a fallback, an item keeps its position until Release: later items of
//     its subjects wait. An item without a subject waits for no other item.
//   - Callers are served in turn, by group and within a group by name. However many items of
//     one caller wait, the next batch has room for the items of others.
//   - A caller whose context ends before its item runs withdraws the item, and so does a caller
//     that has waited for its Timeout. Once the item runs, its caller gets the result.
//   - A batch starts after each of its items has arrived. It waits for callers of the previous
//     batch for at most the Window, and seldom in vain.
//   - A further batch starts beside running batches only when Enough items wait, and at most
//     Lanes batches run. With PerGroup a batch holds items of one group, and each group has at
//     most one running batch.
package batcher

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"guildhall/internal/base/fault"
)

// ErrFallback is the result of an item that no batch has done and that its caller has to do.
var ErrFallback = errors.New("batcher: not batched, fall back")

// Fallback is returned by Do for an item that its caller has to do; it wraps ErrFallback. It
// occupies the item's subjects, or one of the Few, until the caller calls Release, once. The
// Fallback of an item that has waited in vain occupies no subject.
type Fallback struct{ Release func() }

func (*Fallback) Error() string { return ErrFallback.Error() }
func (*Fallback) Unwrap() error { return ErrFallback }

// Caller identifies on whose account an item runs.
type Caller struct{ Group, Name string }

// Config describes the batches of a Batcher. The functions and both errors are required,
// except for Applied.
type Config[T any] struct {
	// Run executes a batch. It returns ErrFallback when it has done none of the items, and
	// another error when every caller of the batch is to get that error.
	Run func(ctx context.Context, batch []T) error

	// Applied reports, after a Run without an error, whether the batch has done the item.
	Applied func(T) bool

	// Acquire gets what a batch needs, before its items are chosen. Run receives the context
	// that Acquire returns. If Acquire fails, all waiting items fail.
	Acquire func(ctx context.Context) (within context.Context, release func(), err error)

	Most     int  // items of a batch at most; 0 means 64
	Enough   int  // waiting items that start a batch beside running batches; 0 means Most
	Few      int  // items that fall back at once while no batch is running
	Lanes    int  // concurrent batches at most; 0 means 4, and 8 with PerGroup
	PerGroup bool // a batch holds items of one group

	// Window is how long, after the end of a batch, the next batch waits at most for the
	// callers of that batch to return; 0: not at all. Without it, callers that send the next
	// item right after each result form two halves, and each half waits for the other's batch.
	Window time.Duration

	// Timeout returns how long an item may wait for its batch to start. An item that has waited
	// in vain fails with OwnShare when more than half a batch of its own caller's items were
	// waiting, and with Busy otherwise. Either error may be ErrFallback.
	Timeout        func(ctx context.Context) time.Duration
	OwnShare, Busy error

	// Started is called for each batch with its size and with how long its oldest item waited.
	Started func(size int, waited time.Duration)
}

// Batcher batches items of one kind. It has no goroutine while no item waits or runs.
type Batcher[T any] struct {
	cfg Config[T]

	mu      sync.Mutex            // guards the fields below
	lines   map[string][]*item[T] // queue of each subject; an item that is not the first waits
	turns   *turns[T]             // ready items by group and caller
	waiting map[Caller]int
	ready   int // items that a batch may take
	running int // batches
	few     int // items that fell back at once and were not released

	ended   time.Time // end of the last batch
	want    int       // the next batch waits for this many ready items
	arrived sync.Cond // signaled when that many items are ready
	misses  int       // batches in a row that have waited in vain
	skip    int       // batches that do not wait
}

// item is a queued value. After done is closed, only its caller uses it.
type item[T any] struct {
	value     T
	by        Caller
	subjects  []string
	arrivedAt time.Time

	ready, taken bool // guarded by the batcher's mutex
	done         chan struct{}
	err          error // written before done is closed
}

// New returns a Batcher.
func New[T any](cfg Config[T]) *Batcher[T] {
	cfg.Most = cmp.Or(cfg.Most, 64)
	cfg.Enough = cmp.Or(cfg.Enough, cfg.Most)
	cfg.Lanes = cmp.Or(cfg.Lanes, map[bool]int{false: 4, true: 8}[cfg.PerGroup])
	b := &Batcher[T]{cfg: cfg, lines: map[string][]*item[T]{}, turns: &turns[T]{below: map[string]*turns[T]{}}, waiting: map[Caller]int{}}
	b.arrived.L = &b.mu
	return b
}

// Do runs value in a batch and returns its result. It returns a *Fallback when the caller has
// to do the item. The subjects differ from each other.
func (b *Batcher[T]) Do(ctx context.Context, by Caller, value T, subjects ...string) error {
	if b.amongFew() {
		return b.fallback(func() { b.few-- })
	}
	ctx, cancel := context.WithTimeoutCause(ctx, b.cfg.Timeout(ctx), b.cfg.Busy)
	defer cancel()
	it := &item[T]{value: value, by: by, subjects: subjects, arrivedAt: time.Now(), done: make(chan struct{}), err: context.Cause(ctx)}
	if it.err == nil {
		b.add(it)
		select {
		case <-it.done:
		case <-ctx.Done():
			b.withdraw(it, context.Cause(ctx))
		}
		<-it.done
	}
	if errors.Is(it.err, ErrFallback) {
		return b.fallback(func() { b.leave(it); b.start() })
	}
	return it.err
}

// fallback returns a *Fallback whose Release calls release under the mutex.
func (b *Batcher[T]) fallback(release func()) error {
	return &Fallback{Release: func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		release()
	}}
}

// amongFew reports whether an item may fall back at once, and counts it if so.
func (b *Batcher[T]) amongFew() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running > 0 || b.few >= b.cfg.Few {
		return false
	}
	b.few++
	return true
}

// add queues an item and starts a batch if one is wanted.
func (b *Batcher[T]) add(it *item[T]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting[it.by]++
	for _, subject := range it.subjects {
		b.lines[subject] = append(b.lines[subject], it)
	}
	b.offer(it)
	b.start()
}

// offer makes an item ready, so that a batch may take it, if the item is the first of each of
// its subjects.
func (b *Batcher[T]) offer(it *item[T]) {
	if slices.ContainsFunc(it.subjects, func(subject string) bool { return b.lines[subject][0] != it }) {
		return
	}
	it.ready = true
	b.ready++
	b.turns.push(it, it.by.Group, it.by.Name)
	if b.ready >= b.want {
		b.arrived.Signal()
	}
}

// leave removes an item from the queues of its subjects, and offers the next item of each queue
// in which the removed one was the first.
func (b *Batcher[T]) leave(it *item[T]) {
	for _, subject := range it.subjects {
		at := slices.Index(b.lines[subject], it)
		if at < 0 { // the item was withdrawn, or its context had ended before
			return
		}
		line := slices.Delete(b.lines[subject], at, at+1)
		b.lines[subject] = line
		switch {
		case len(line) == 0:
			delete(b.lines, subject)
		case at == 0:
			b.offer(line[0])
		}
	}
}

// withdraw fails an item with cause, unless a batch has taken it. The item stays in turns,
// which skip it.
func (b *Batcher[T]) withdraw(it *item[T], cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if it.taken {
		return
	}
	if it.err = cause; errors.Is(cause, b.cfg.Busy) && 2*b.waiting[it.by] > b.cfg.Most {
		it.err = b.cfg.OwnShare
	}
	b.waitsNoMore(it)
	b.leave(it)
	b.start() // an item of two subjects may have waited for this one alone
	close(it.done)
}

// waitsNoMore subtracts an item from the counts of waiting items.
func (b *Batcher[T]) waitsNoMore(it *item[T]) {
	if it.ready {
		it.ready = false
		b.ready--
	}
	if b.waiting[it.by]--; b.waiting[it.by] == 0 {
		delete(b.waiting, it.by)
	}
}

// start starts a goroutine for each batch that is wanted.
func (b *Batcher[T]) start() {
	for from := b.next(); from != nil; from = b.next() {
		go b.batches(from)
	}
}

// next counts a new batch as running and returns the turns to take its items from. It returns
// nil when no batch is wanted.
func (b *Batcher[T]) next() *turns[T] {
	if !b.wanted() {
		return nil
	}
	b.running++
	if b.cfg.PerGroup {
		return b.turns.shift()
	}
	return b.turns
}

// wanted reports whether a batch is to start now.
func (b *Batcher[T]) wanted() bool {
	return len(b.turns.next) > 0 && b.running < b.cfg.Lanes && (b.running == 0 || b.cfg.PerGroup || b.ready >= b.cfg.Enough)
}

// batches runs batches one after the other while one is wanted. Their context belongs to no
// request.
func (b *Batcher[T]) batches(from *turns[T]) {
	for from != nil {
		ctx, release, err := b.cfg.Acquire(context.Background()) //nolint:forbidigo // a batch belongs to no single request
		items := b.take(from)
		if err == nil {
			err = b.run(ctx, items)
			release()
		}
		from = b.finish(from, items, err)
	}
}

// take returns the items of a batch: one of each group in turn, and within a group one of each
// caller in turn.
func (b *Batcher[T]) take(from *turns[T]) (items []*item[T]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.awaitCallers()
	for len(items) < b.cfg.Most {
		it := from.pop()
		if it == nil {
			break
		}
		it.taken = true
		b.waitsNoMore(it)
		items = append(items, it)
	}
	return items
}

// run calls Run. A panic in Run becomes the error of every item of the batch.
func (b *Batcher[T]) run(ctx context.Context, items []*item[T]) error {
	if len(items) == 0 { // all items were withdrawn
		return nil
	}
	values, waited := make([]T, len(items)), time.Duration(0)
	for i, it := range items {
		values[i], waited = it.value, max(waited, time.Since(it.arrivedAt))
	}
	b.cfg.Started(len(items), waited)
	return fault.Caught(func() error { return b.cfg.Run(ctx, values) })
}

// finish ends a batch and returns the turns of the next batch, or nil. The callers of the ended
// batch are notified concurrently with the next batch.
func (b *Batcher[T]) finish(from *turns[T], items []*item[T], err error) (next *turns[T]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	b.ended, b.want = time.Now(), min(b.ready+len(items), b.cfg.Most, ample)
	if from != b.turns {
		b.turns.put(from)
	}
	go b.notify(items, err)
	return b.next()
}

// notify gives the items of a batch their result and frees their subjects.
func (b *Batcher[T]) notify(items []*item[T], err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, it := range items {
		if it.err = err; err == nil && b.cfg.Applied != nil && !b.cfg.Applied(it.value) {
			it.err = ErrFallback
		}
		if !errors.Is(it.err, ErrFallback) {
			b.leave(it)
		}
		close(it.done)
	}
	b.start()
}
