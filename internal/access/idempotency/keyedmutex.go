package idempotency

import (
	"context"
	"sync"
	"time"
)

// maxWaiting is how many duplicates of a caller's running requests may wait in
// one process (a token is one, a bot key one in each guild), and waitTimeout for how long.
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
	waiting map[caller]int
}

type caller struct{ guild, token string }

type mutexKey struct {
	caller
	key string
}

// NewKeyedMutex returns one that nobody holds.
func NewKeyedMutex() *KeyedMutex {
	return &KeyedMutex{running: make(map[mutexKey]chan struct{}), waiting: make(map[caller]int)}
}

// Lock returns once no other request of this caller with this key is inside; the
// caller must call unlock when it is done. While another is inside, replay is
// asked for the response that the key has already, and Lock returns that one
// instead. Without a response, after two seconds, or when eight others of the
// caller wait already, it is idempotency_key_in_use.
func (m *KeyedMutex) Lock(ctx context.Context, r Request, replay func(context.Context, Request) (*Response, error)) (unlock func(), response *Response, err error) {
	id := mutexKey{caller{r.GuildID, r.TokenID}, r.Key}
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
		if err := m.wait(ctx, id.caller, done, late); err != nil {
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

// wait waits until done is closed, as one of the few of its caller.
func (m *KeyedMutex) wait(ctx context.Context, by caller, done <-chan struct{}, late <-chan time.Time) error {
	m.mu.Lock()
	if m.waiting[by] >= maxWaiting {
		m.mu.Unlock()
		return inUse
	}
	m.waiting[by]++
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.waiting[by]--; m.waiting[by] == 0 {
			delete(m.waiting, by)
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
