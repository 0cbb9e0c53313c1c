package collect

import "time"

// lastBatch is what a batch knows of the one before it. The collector's mutex guards it.
type lastBatch struct {
	ended  time.Time     // when the last batch ended
	want   int           // so many were ready then, or in it
	met    chan struct{} // closed when so many are ready; nil while no batch waits for them
	misses int           // batches in a row that have waited in vain
	skip   int           // batches that do not wait
}

// ample is a batch that waits for nobody: with 32 connections, which come in halves of 16,
// a twentieth fewer changes with a key are made where it waits for all.
const ample = 16

// mostMisses bounds how seldom it is tried whether callers come again: in one of 64 batches.
const mostMisses = 6

// gather waits until as many are ready as there were callers when the last batch ended, or
// an ample batch, for a Moment since then at most. Each time in vain doubles the number of
// batches that begin without it, so that callers that come by chance hardly ever wait.
func (c *Collector[T]) gather() {
	met, rest := c.expect()
	if met == nil {
		return
	}
	late := time.NewTimer(rest)
	defer late.Stop()
	select {
	case <-met:
	case <-late.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.met == nil {
		c.misses = 0
		return
	}
	c.met = nil
	c.misses = min(c.misses+1, mostMisses)
	c.skip = 1<<c.misses - 1
}

// expect returns what is closed when all have come again, and how long to wait for it;
// nil if the batch is to begin at once.
func (c *Collector[T]) expect() (met chan struct{}, rest time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest = c.cfg.Moment - time.Since(c.ended)
	if rest <= 0 || c.running > 1 || c.ready >= c.want {
		return nil, 0
	}
	if c.skip > 0 {
		c.skip--
		return nil, 0
	}
	c.met = make(chan struct{})
	return c.met, rest
}

// cameBack tells the batch that waits that so many are ready.
func (l *lastBatch) cameBack(ready int) {
	if l.met != nil && ready >= l.want {
		close(l.met)
		l.met = nil
	}
}
