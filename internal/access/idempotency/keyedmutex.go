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

// KeyedMutex makes the duplicates of a running request wait in this process, where
// waiting costs no database connection. Duplicates on other nodes meet at the
// primary key.
type KeyedMutex struct {
	mu      sync.Mutex // guards what follows
	running map[mutexKey]chan struct{}
	waiting map[string]int
}

type mutexKey struct{ token, key string }

// NewKeyedMutex returns one that nobody holds.
func NewKeyedMutex() *KeyedMutex {
	return &KeyedMutex{running: make(map[mutexKey]chan struct{}), waiting: make(map[string]int)}
}

// Lock returns once no other request with this token and key is inside; the
// caller must call unlock when it is done. While another is inside, replay is
// asked for the response that the key has already, and Lock returns that one
// instead. Without a response, after two seconds, or when eight others of the
// token wait already, it is idempotency_key_in_use.
func (m *KeyedMutex) Lock(ctx context.Context, r Request, replay func(context.Context, Request) (*Response, error)) (unlock func(), response *Response, err error) {
	id := mutexKey{r.TokenID, r.Key}
	var late <-chan time.Time
	for {
		unlock, done := m.tryLock(id)
		if unlock != nil {
			return unlock, nil, nil
		}
		if response, err := replay(ctx, r); response != nil || err != nil {
			return nil, response, err
		}
		if late == nil {
			timer := time.NewTimer(waitTimeout)
			defer timer.Stop()
			late = timer.C
		}
		if err := m.wait(ctx, r.TokenID, done, late); err != nil {
			return nil, nil, err
		}
		// Most likely there is a response now, for all who have waited.
		if response, err := replay(ctx, r); response != nil || err != nil {
			return nil, response, err
		}
	}
}

// tryLock gets in, or returns what is closed when whoever is inside leaves.
func (m *KeyedMutex) tryLock(id mutexKey) (unlock func(), done <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if done, busy := m.running[id]; busy {
		return nil, done
	}
	inside := make(chan struct{})
	m.running[id] = inside
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.running, id)
		close(inside)
	}, nil
}

// wait waits until done is closed, as one of the few of its token.
func (m *KeyedMutex) wait(ctx context.Context, token string, done <-chan struct{}, late <-chan time.Time) error {
	m.mu.Lock()
	if m.waiting[token] >= maxWaiting {
		m.mu.Unlock()
		return inUse
	}
	m.waiting[token]++
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.waiting[token]--; m.waiting[token] == 0 {
			delete(m.waiting, token)
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
