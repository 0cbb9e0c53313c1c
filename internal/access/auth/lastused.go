package auth

import (
	"context"
	"sync"
	"time"

	"guildhall/internal/base/db"
)

const (
	// lastUsedInterval is how old the stored time of a token's last use becomes before it is
	// written again.
	lastUsedInterval = time.Minute
	// flushInterval is how often last uses are written, all in one statement.
	flushInterval = time.Second
	// flushTimeout is short because readiness checks use the same connection.
	flushTimeout = time.Second
)

// lastUsed collects the tokens whose last use has to be written.
type lastUsed struct {
	mu  sync.Mutex // guards the field below
	ids map[string]struct{}
}

func (u *lastUsed) add(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ids == nil {
		u.ids = map[string]struct{}{}
	}
	// Without Run nothing empties the map, so its size is bounded as the cache's is.
	if len(u.ids) < maxCached {
		u.ids[id] = struct{}{}
	}
}

// writeLastUsed writes collected uses until ctx ends, and then the remaining ones.
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

// flushLastUsed writes the collected uses. If that fails they are dropped: the next use of the
// token is collected again within a minute.
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
