package auth

import (
	"context"
	"sync"
	"time"

	"guildhall/internal/db"
)

const (
	// useEvery is how old a token's last use becomes before it is written anew.
	useEvery = time.Minute
	// flushEvery is how often the uses noted since are written, all in one
	// statement.
	flushEvery = time.Second
	// flushTimeout is short, because readiness uses the same connection.
	flushTimeout = time.Second
)

// uses are the tokens whose last use has to be written.
type uses struct {
	mu  sync.Mutex
	ids map[string]struct{}
}

func (u *uses) add(id string) {
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

func (u *uses) take() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := make([]string, 0, len(u.ids))
	for id := range u.ids {
		list = append(list, id)
	}
	u.ids = nil
	return list
}

// writeUses writes noted uses until ctx ends, and then those still noted.
func (t *Tokens) writeUses(ctx context.Context) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			t.flushUses(ctx)
		case <-ctx.Done():
			t.flushUses(context.WithoutCancel(ctx))
			return
		}
	}
}

// flushUses writes what is noted. What cannot be written is dropped: the next
// use of the token is noted again within a minute.
func (t *Tokens) flushUses(ctx context.Context) {
	ids := t.uses.take()
	if len(ids) == 0 {
		return
	}
	limit, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	err := t.db.Do(limit, func(ctx context.Context, tx *db.Tx) error { return noteUses(ctx, tx, ids) })
	if err != nil && ctx.Err() == nil {
		t.log.WarnContext(ctx, "the last use of some tokens was not written", "tokens", len(ids), "error", err)
	}
}
