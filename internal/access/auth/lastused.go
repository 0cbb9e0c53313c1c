package auth

import (
	"context"
	"sync"
	"time"

	"guildhall/internal/base/db"
)

const (
	// lastUsedInterval is how old a token's last use becomes before it is written anew.
	lastUsedInterval = time.Minute
	// flushInterval is how often the last uses noted since are written, all in one
	// statement.
	flushInterval = time.Second
	// flushTimeout is short, because readiness uses the same connection.
	flushTimeout = time.Second
)

// lastUsed are the tokens whose last use has to be written.
type lastUsed struct {
	mu  sync.Mutex // guards what follows
	ids map[string]struct{}
}

func (u *lastUsed) add(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ids == nil {
		u.ids = map[string]struct{}{}
	}
	// Without Run nobody empties this, so it is bounded like the cache.
	if len(u.ids) < maxCached {
		u.ids[id] = struct{}{}
	}
}

// writeLastUsed writes noted uses until ctx ends, and then those still noted.
func (t *Tokens) writeLastUsed(ctx context.Context) {
	tick := time.NewTicker(flushInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			t.flushLastUsed(ctx)
		case <-ctx.Done():
			t.flushLastUsed(context.WithoutCancel(ctx))
			return
		}
	}
}

// flushLastUsed writes what is noted. An instant that cannot be written is dropped: the
// next use of the token is noted again within a minute.
func (t *Tokens) flushLastUsed(ctx context.Context) {
	ids := t.lastUsed.take()
	if len(ids) == 0 {
		return
	}
	limit, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	err := t.db.Do(limit, func(ctx context.Context, tx *db.Tx) error { return storeLastUsed(ctx, tx, ids) })
	if err != nil && ctx.Err() == nil {
		t.log.WarnContext(ctx, "the last use of some tokens was not written", "tokens", len(ids), "error", err)
	}
}

func (u *lastUsed) take() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := make([]string, 0, len(u.ids))
	for id := range u.ids {
		list = append(list, id)
	}
	u.ids = nil
	return list
}
