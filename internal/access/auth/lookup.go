package auth

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"guildhall/internal/base/fault"
)

// maxBatch is how many tokens one statement looks up.
const maxBatch = 256

// lookups reads tokens' rows in batches. However many requests need a row, only a few statements
// run at a time; requests that arrive while all of these are running wait for the next statement,
// which looks up all their tokens. No request gets a row that was read before the request arrived.
type lookups struct {
	read  func(ctx context.Context, hashes []digest) (map[digest]*entry, error)
	slots int

	mu      sync.Mutex // guards the fields below
	running int
	next    map[digest]*lookup // lookups that have not started; requests for the same token share one
	order   []*lookup          // the same lookups, the oldest first
}

// lookup is the lookup of one row, for one or more requests.
type lookup struct {
	hash digest
	ctx  context.Context // the first request's context, without its cancellation
	done chan struct{}   // closed when the result is set

	// entry and err are written by the worker before done is closed and read by requests
	// afterwards.
	entry *entry
	err   error
}

func newLookups(slots int, read func(context.Context, []digest) (map[digest]*entry, error)) *lookups {
	return &lookups{read: read, slots: slots, next: make(map[digest]*lookup)}
}

// find returns a token's row as it was at or after the start of the call.
func (l *lookups) find(ctx context.Context, hash digest) (*entry, error) {
	w := l.join(ctx, hash)
	late := time.NewTimer(lookupTimeout)
	defer late.Stop()
	select {
	case <-w.done:
		return w.entry, w.err
	case <-late.C:
		return nil, context.DeadlineExceeded
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *lookups) join(ctx context.Context, hash digest) *lookup {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.next[hash]
	if w == nil {
		w = &lookup{hash: hash, ctx: context.WithoutCancel(ctx), done: make(chan struct{})}
		l.next[hash] = w
		l.order = append(l.order, w)
	}
	if l.running < l.slots {
		l.running++
		go l.work()
	}
	return w
}

// work runs statements until no lookup waits.
func (l *lookups) work() {
	for {
		batch := l.take()
		if len(batch) == 0 {
			return
		}
		hashes := make([]digest, len(batch))
		for i, w := range batch {
			hashes[i] = w.hash
		}
		ctx, cancel := context.WithTimeout(batch[0].ctx, readTimeout)
		found, err := l.read(ctx, hashes)
		cancel()
		for _, w := range batch {
			if w.err = err; err == nil {
				w.entry = found[w.hash]
			}
			close(w.done)
		}
	}
}

// take returns the oldest waiting lookups, or ends the worker if there are none.
func (l *lookups) take() []*lookup {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.order), maxBatch)
	batch := l.order[:n:n]
	l.order = l.order[n:]
	for _, w := range batch {
		delete(l.next, w.hash)
	}
	if n == 0 {
		l.running--
		l.order = nil
	}
	return batch
}

// find returns a token's row as it was at or after the start of the call.
func (t *Tokens) find(ctx context.Context, hash digest, from netip.Addr) (*entry, error) {
	if t.exhausted(ctx, from) {
		release, err := t.enterNarrow(ctx)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	e, err := t.lookups.find(ctx, hash)
	if err != nil {
		return nil, errUnavailable.Because(err).After(5 * time.Second)
	}
	return e, nil
}

// enterNarrow waits for one of the few slots for lookups from suspicious addresses.
func (t *Tokens) enterNarrow(ctx context.Context) (release func(), err error) {
	wait := time.NewTimer(time.Second)
	defer wait.Stop()
	select {
	case t.narrow <- struct{}{}:
		return func() { <-t.narrow }, nil
	case <-wait.C:
	case <-ctx.Done():
	}
	return nil, fault.New(fault.Limited, "rate_limited", "Too many failed authentications from this address.").After(time.Second)
}

// read reads tokens' rows from the database and caches them. For a digest without a row it caches
// that there is no such token.
func (t *Tokens) read(ctx context.Context, hashes []digest) (map[digest]*entry, error) {
	t.met.reads.Add(float64(len(hashes)))
	found := make(map[digest]*entry, len(hashes))
	for _, hash := range hashes {
		found[hash] = &entry{generation: t.gens.of(hash)}
	}
	start := t.clock()
	rows, err := byHashes(ctx, t.db.Reader(), hashes)
	if err != nil {
		return nil, err
	}
	// Postgres read its clock at some time during the call; taking the middle is wrong by at most
	// half of the round trip.
	middle := start.Add(t.clock().Sub(start) / 2)
	for _, e := range found {
		e.readAt = middle
	}
	for _, r := range rows {
		if len(r.Hash) != len(digest{}) {
			continue
		}
		if e := found[digest(r.Hash)]; e != nil {
			e.fill(r)
		}
	}
	for hash, e := range found {
		t.remember(hash, e)
	}
	return found, nil
}

// fill sets the entry from a token's row.
func (e *entry) fill(r row) {
	e.now = r.Now
	if r.RevokedAt != nil {
		e.revoked = &Principal{By: By{GuildID: r.GuildID, ID: r.ID}}
		return
	}
	e.restricted = len(r.Allow) > 0
	for _, s := range r.Allow {
		// A malformed range allows no address.
		if p, ok := parsePrefix(s); ok {
			e.allow = append(e.allow, p)
		}
	}
	p := &Principal{
		By: By{GuildID: r.GuildID, ID: r.ID}, Name: r.Name, Preview: r.Preview, Allow: r.Allow,
		Scopes: r.Scopes, ExpiresAt: r.ExpiresAt, CreatedAt: r.CreatedAt, Read: quota(r.RateRead), Write: quota(r.RateWrite),
	}
	if p.IsKey() {
		p.Scopes = keyScopes
		if len(r.Guilds) > 0 {
			p.guilds = r.Guilds
		}
	}
	if r.LastUsedAt != nil {
		p.LastUsedAt = *r.LastUsedAt
	}
	e.principal.Store(p)
}

// remember caches an entry. Each use of the entry compares its generation, so a stale entry does no
// harm.
func (t *Tokens) remember(hash digest, e *entry) {
	if e.principal.Load() == nil {
		t.cache.Invalidate(hash)
		t.refused.Set(hash, e)
		return
	}
	t.cache.Set(hash, e)
}

// forget drops the cached entry of a digest.
func (t *Tokens) forget(hash digest) {
	t.cache.Invalidate(hash)
	t.refused.Invalidate(hash)
}
