package idempotency

import (
	"context"
	"sync"
	"time"
)

// maxWaiting is how many duplicates of a caller's running requests may wait in this process,
// waitTimeout for how long. A caller is a token, or a bot key in one guild.
const (
	maxWaiting  = 8
	waitTimeout = 2 * time.Second
)

// KeyedMutex makes duplicates of a running request wait in this process, without a database
// connection. Duplicates on other nodes wait at the primary key.
type KeyedMutex struct {
	mu      sync.Mutex // guards the fields below
	running map[mutexKey]chan struct{}
	waiting map[caller]int
}

type caller struct{ guild, token string }

type mutexKey struct {
	caller
	key string
}

// NewKeyedMutex returns an unlocked KeyedMutex.
func NewKeyedMutex() *KeyedMutex {
	return &KeyedMutex{running: make(map[mutexKey]chan struct{}), waiting: make(map[caller]int)}
}

// Lock returns when no other request of this caller with this key is running; the caller must then
// call unlock. While another is running, Lock calls replay for a stored response and returns that
// response if there is one. If there is none after two seconds, or if eight duplicates of the
// caller are already waiting, it returns idempotency_key_in_use.
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
		// The request that ran has most likely stored a response, for all duplicates that waited.
		if response, err := replay(ctx, r); response != nil || err != nil {
			return nil, response, err
		}
	}
}

// tryLock locks the key, or returns a channel that is closed when the present holder unlocks.
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

// wait waits until done is closed, and counts against maxWaiting of its caller.
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
