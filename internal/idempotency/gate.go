package idempotency

import (
	"context"
	"sync"
	"time"
)

// maxWaiting is how many repeats of a token's running requests may wait in one
// process; patience is for how long.
const (
	maxWaiting = 8
	patience   = 2 * time.Second
)

// Gate makes the twins of a running request wait in this process, where
// waiting costs no database connection. Twins on other nodes meet at the
// primary key.
type Gate struct {
	mu      sync.Mutex
	running map[gateKey]chan struct{}
	waiting map[string]int
}

type gateKey struct{ token, key string }

// NewGate returns an open gate.
func NewGate() *Gate {
	return &Gate{running: make(map[gateKey]chan struct{}), waiting: make(map[string]int)}
}

// Enter returns once no other request with this token and key is inside; the
// caller must call leave when it is done. After two seconds, or when eight
// others of the token wait already, it is idempotency_key_in_use.
func (g *Gate) Enter(ctx context.Context, token, key string) (leave func(), err error) {
	id := gateKey{token, key}
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, busy := g.running[id]; busy {
		if g.waiting[token] >= maxWaiting {
			return nil, inUse
		}
		g.waiting[token]++
		defer func() {
			if g.waiting[token]--; g.waiting[token] == 0 {
				delete(g.waiting, token)
			}
		}()
		late := time.NewTimer(patience)
		defer late.Stop()
		for done, busy := g.running[id]; busy; done, busy = g.running[id] {
			g.mu.Unlock()
			select {
			case <-done:
				err = nil
			case <-late.C:
				err = inUse
			case <-ctx.Done():
				err = ctx.Err()
			}
			g.mu.Lock()
			if err != nil {
				return nil, err
			}
		}
	}
	done := make(chan struct{})
	g.running[id] = done
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.running, id)
		close(done)
	}, nil
}
