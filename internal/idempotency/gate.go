package idempotency

import (
	"context"
	"sync"
	"time"
)

// maxWaiting is how many duplicates of a token's running requests may wait in
// one process, and waitTimeout for how long.
const (
	maxWaiting  = 8
	waitTimeout = 2 * time.Second
)

// Gate makes the duplicates of a running request wait in this process, where
// waiting costs no database connection. Duplicates on other nodes meet at the
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
// caller must call leave when it is done. While another is inside, replay is
// asked for the answer that the key has already, and Enter returns that one
// instead. Without an answer, after two seconds, or when eight others of the
// token wait already, it is idempotency_key_in_use.
func (g *Gate) Enter(ctx context.Context, r Request, replay func(context.Context, Request) (*Answer, error)) (leave func(), answer *Answer, err error) {
	id := gateKey{r.TokenID, r.Key}
	var late <-chan time.Time
	for {
		leave, done := g.try(id)
		if leave != nil {
			return leave, nil, nil
		}
		if answer, err := replay(ctx, r); answer != nil || err != nil {
			return nil, answer, err
		}
		if late == nil {
			timer := time.NewTimer(waitTimeout)
			defer timer.Stop()
			late = timer.C
		}
		if err := g.wait(ctx, r.TokenID, done, late); err != nil {
			return nil, nil, err
		}
		// Most likely there is an answer now, for all who have waited.
		if answer, err := replay(ctx, r); answer != nil || err != nil {
			return nil, answer, err
		}
	}
}

// try gets in, or returns what is closed when whoever is inside leaves.
func (g *Gate) try(id gateKey) (leave func(), done <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if done, busy := g.running[id]; busy {
		return nil, done
	}
	inside := make(chan struct{})
	g.running[id] = inside
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.running, id)
		close(inside)
	}, nil
}

// wait waits until done is closed, as one of the few of its token.
func (g *Gate) wait(ctx context.Context, token string, done <-chan struct{}, late <-chan time.Time) error {
	g.mu.Lock()
	if g.waiting[token] >= maxWaiting {
		g.mu.Unlock()
		return inUse
	}
	g.waiting[token]++
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.waiting[token]--; g.waiting[token] == 0 {
			delete(g.waiting, token)
		}
	}()
	select {
	case <-done:
		return nil
	case <-late:
		return inUse
	case <-ctx.Done():
		return ctx.Err()
	}
}
