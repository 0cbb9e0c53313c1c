package collect

import "time"

// ample is a batch that waits for nobody: with 32 connections, which come in halves of 16,
// a twentieth fewer changes with a key are made where it waits for all.
const ample = 16

// mostMisses bounds how seldom it is tried whether callers come again: in one of 64 batches.
const mostMisses = 6

// gather waits until as many are ready as there were callers when the last batch ended, or
// an ample batch, for a Moment since then at most. Each time in vain doubles the number of
// batches that begin without it, so that callers that come by chance hardly ever wait.
func (c *Collector[T]) gather() {
	until := c.ended.Add(c.cfg.Moment)
	if c.running > 1 || c.ready >= c.want || time.Until(until) <= 0 {
		return
	}
	if c.skip > 0 {
		c.skip--
		return
	}
	timer := time.AfterFunc(time.Until(until), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.came.Signal()
	})
	defer timer.Stop()
	for c.ready < c.want && time.Until(until) > 0 {
		c.came.Wait()
	}
	if c.misses = min(c.misses+1, mostMisses); c.ready >= c.want {
		c.misses = 0
	}
	c.skip = 1<<c.misses - 1
}
