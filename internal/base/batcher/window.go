package batcher

import "time"

// ample is a batch size at which no further caller is awaited. Measured with 32 connections that
// arrive in halves of 16: waiting for all 32 lowers the throughput of keyed changes by a twentieth.
const ample = 16

// mostMisses bounds the backoff of awaitCallers: however often callers fail to return, at least one
// batch in 64 waits for them.
const mostMisses = 6

// awaitCallers waits until as many items are ready as the last batch had callers, or until an ample
// batch is ready, but no longer than the Window after the last batch ended. Each wait that ends by
// timeout doubles the number of batches that start without waiting, so callers that arrive at
// random rarely wait.
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
