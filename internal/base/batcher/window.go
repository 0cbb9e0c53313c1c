package batcher

import "time"

// ample is the size of a batch that waits for no further caller: with 32 connections, which
// arrive in halves of 16, waiting for all of them makes a twentieth fewer keyed changes.
const ample = 16

// mostMisses bounds how seldom batches wait for callers that do not return: at least one batch
// in 64 waits.
const mostMisses = 6

// awaitCallers waits until as many items are ready as there were callers when the last batch
// ended, or an ample batch, and at most until the Window since then is over. Each wait in vain
// doubles the number of batches that start without waiting, so callers that arrive by chance
// hardly ever wait.
func (b *Batcher[T]) awaitCallers() {
	until := b.ended.Add(b.cfg.Window)
	if b.running > 1 || b.ready >= b.want || time.Until(until) <= 0 {
		return
	}
	if b.skip > 0 {
		b.skip--
		return
	}
	timer := time.AfterFunc(time.Until(until), func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.arrived.Signal()
	})
	defer timer.Stop()
	for b.ready < b.want && time.Until(until) > 0 {
		b.arrived.Wait()
	}
	if b.misses = min(b.misses+1, mostMisses); b.ready >= b.want {
		b.misses = 0
	}
	b.skip = 1<<b.misses - 1
}
