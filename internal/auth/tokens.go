package auth

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/db"
	"guildhall/internal/fault"
)

const (
	// remembered is how long a token's row is kept, and forgotten how long it
	// is kept that there is no such token.
	remembered = 60 * time.Second
	forgotten  = 5 * time.Second
	// maxCached bounds the rows kept in memory.
	maxCached = 100_000
	// patience is how long a request waits for the database to find its token.
	patience = 1500 * time.Millisecond
	// narrow is how many lookups at a time are spent on addresses that have
	// failed too often.
	narrow = 2
)

// Config is what Tokens is made of. DB, URL and Env are required.
type Config struct {
	DB  *db.DB
	URL string // of the same database, for the line that hears revocations
	Env string // live or test; tokens of the other one are invalid
	// NodeID names this process among those that share the database; empty:
	// a new name.
	NodeID string
	// Clock is the node's clock. Only the time between two of its readings
	// counts; instants are the database's. nil means time.Now.
	Clock func() time.Time
	// Exhausted reports whether failed authentications have used up the bucket
	// of an address. Its requests still pass with a valid token, but those that
	// need a lookup share a narrow lane to the database. nil means never.
	Exhausted func(ctx context.Context, from netip.Addr) bool
	Log       *slog.Logger          // nil: nothing is logged
	Metrics   prometheus.Registerer // nil: nothing is measured
}

// Tokens recognises bearer tokens. While Run runs and its line to the database
// holds, rows are cached for up to a minute; otherwise each request reads its
// row anew. Either way a token whose revocation has returned is refused.
type Tokens struct {
	db        *db.DB
	url       string
	env       string
	node      string
	clock     func() time.Time
	exhausted func(context.Context, netip.Addr) bool
	log       *slog.Logger
	met       *metrics

	cache  *otter.Cache[digest, *entry]
	gens   generations
	lease  atomic.Pointer[time.Time] // when the last heartbeat that came back was sent
	narrow chan struct{}
	uses   uses
	epoch  atomic.Int64
	nodes  atomic.Int64
	acks   chan struct{}
}

// NewTokens returns Tokens that work at once and become fast under Run.
func NewTokens(cfg Config) (*Tokens, error) {
	switch {
	case cfg.DB == nil || cfg.URL == "":
		return nil, errors.New("auth: DB and URL are required")
	case cfg.Env != "live" && cfg.Env != "test":
		return nil, errors.New("auth: Env must be live or test")
	}
	if cfg.NodeID == "" {
		cfg.NodeID = db.NewID()
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Exhausted == nil {
		cfg.Exhausted = func(context.Context, netip.Addr) bool { return false }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cache, err := otter.New(&otter.Options[digest, *entry]{
		MaximumSize: maxCached,
		ExpiryCalculator: otter.ExpiryWritingFunc(func(e otter.Entry[digest, *entry]) time.Duration {
			if e.Value.principal.Load() == nil {
				return forgotten
			}
			return remembered
		}),
	})
	if err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	t := &Tokens{
		db: cfg.DB, url: cfg.URL, env: cfg.Env, node: cfg.NodeID, clock: cfg.Clock,
		exhausted: cfg.Exhausted, log: cfg.Log, cache: cache,
		narrow: make(chan struct{}, narrow), acks: make(chan struct{}, 1),
	}
	if t.met, err = newMetrics(cfg.Metrics, t); err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	return t, nil
}

// Authenticate returns whose token bearer is, for a request from an address;
// the zero address is one that could not be known. It is invalid_token for a
// text that is no token of this env, and for a token that is unknown, revoked
// or expired; ip_not_allowed outside the token's allowlist; rate_limited when
// the address has failed so often that lookups for it have to queue too long;
// service_unavailable when the row is needed and cannot be read. The principal
// is shared: nobody may change it.
func (t *Tokens) Authenticate(ctx context.Context, bearer string, from netip.Addr) (*Principal, error) {
	hash, ok := recognise(bearer, t.env)
	if !ok {
		return nil, errInvalid
	}
	now := t.clock()
	if e := t.recall(hash, now); e != nil {
		return t.judge(e, from, now)
	}
	e, err := t.find(ctx, hash, from)
	if err != nil {
		return nil, err
	}
	return t.judge(e, from, t.clock())
}

// judge decides by the row, the time and the address of this one request.
func (t *Tokens) judge(e *entry, from netip.Addr, at time.Time) (*Principal, error) {
	p := e.principal.Load()
	if p == nil {
		return nil, errInvalid
	}
	now := e.databaseTime(at)
	if p.ExpiresAt != nil && !now.Before(*p.ExpiresAt) {
		return nil, errInvalid
	}
	if e.restricted && (!from.IsValid() || !contains(e.allow, from)) {
		return nil, errAddress
	}
	if now.Sub(p.LastUsedAt) < useEvery {
		return p, nil
	}
	used := *p
	used.LastUsedAt = now
	if e.principal.CompareAndSwap(p, &used) {
		t.uses.add(p.TokenID)
	}
	return e.principal.Load(), nil
}

// recall returns the row of a token from memory, where that can be trusted,
// or nil. now is the time of a moment ago.
//
// The cache has heard of every revocation that had returned by now. That needs
// the order below: a lease that holds proves that all earlier revocations have
// moved their generation already.
func (t *Tokens) recall(hash digest, now time.Time) *entry {
	if !t.trusted(now) {
		return nil
	}
	e, ok := t.cache.GetIfPresent(hash)
	if !ok {
		return nil
	}
	if e.generation != t.gens.of(hash) || !e.datable(now) {
		t.cache.Invalidate(hash)
		return nil
	}
	t.met.hits.Inc()
	return e
}

// find returns the row of a token as it was at or after the start of this call.
func (t *Tokens) find(ctx context.Context, hash digest, from netip.Addr) (*entry, error) {
	if t.exhausted(ctx, from) {
		leave, err := t.enterNarrow(ctx)
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	if t.trusted(t.clock()) {
		// Requests for one token share one lookup. One that began before the
		// request may be too old for it, so lease and generation are checked
		// again after it.
		e, err := t.cache.Get(ctx, hash, otter.LoaderFunc[digest, *entry](t.read))
		if err != nil {
			return nil, errUnavailable.Because(err).After(5 * time.Second)
		}
		if now := t.clock(); t.trusted(now) && e.generation == t.gens.of(hash) && e.datable(now) {
			return e, nil
		}
	}
	e, err := t.read(ctx, hash)
	if err != nil {
		return nil, errUnavailable.Because(err).After(5 * time.Second)
	}
	return e, nil
}

// enterNarrow waits for one of the few places for suspicious lookups.
func (t *Tokens) enterNarrow(ctx context.Context) (leave func(), err error) {
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

// read asks the database for a token's row.
func (t *Tokens) read(ctx context.Context, hash digest) (*entry, error) {
	t.met.reads.Inc()
	generation, start := t.gens.of(hash), t.clock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := byHash(ctx, t.db.Reader(), hash)
	// The database told its time at some moment of the call; the middle of it
	// is wrong by half the call at most.
	e := &entry{generation: generation, readAt: start.Add(t.clock().Sub(start) / 2), now: r.Now}
	switch {
	case db.Missing(err):
		return e, nil
	case err != nil:
		return nil, err
	case subtle.ConstantTimeCompare(r.Hash, hash[:]) != 1 || r.RevokedAt != nil:
		return e, nil
	}
	e.restricted = len(r.Allow) > 0
	for _, s := range r.Allow {
		// A range that nobody can read allows nothing.
		if p, ok := parsePrefix(s); ok {
			e.allow = append(e.allow, p)
		}
	}
	p := &Principal{
		TokenID: r.ID, Name: r.Name, Preview: r.Preview, GuildID: r.GuildID,
		Scopes: r.Scopes, ExpiresAt: r.ExpiresAt, CreatedAt: r.CreatedAt,
	}
	if r.LastUsedAt != nil {
		p.LastUsedAt = *r.LastUsedAt
	}
	e.principal.Store(p)
	return e, nil
}

// entry is what is remembered of a digest: a token's row, or that there is no
// token to be accepted. Only the principal changes, when a use is noted.
type entry struct {
	generation uint64 // of the digest, before the row was read
	readAt     time.Time
	now        time.Time // the database's time at readAt
	restricted bool
	allow      []netip.Prefix
	principal  atomic.Pointer[Principal] // nil: refuse
}

// datable reports whether the database's time can be told from the entry still.
func (e *entry) datable(now time.Time) bool {
	age, believable := passed(e.readAt, now)
	return believable && age <= remembered
}

// databaseTime is the database's time when this node's clock shows now.
func (e *entry) databaseTime(now time.Time) time.Time { return e.now.Add(now.Sub(e.readAt)) }

// generations tell whether something has been announced about a digest since a
// moment. They only rise. Digests share them, which costs a lookup too many at
// times and never one too few.
type generations struct {
	all  atomic.Uint64
	some [1024]atomic.Uint64
}

func (g *generations) slot(hash digest) *atomic.Uint64 {
	return &g.some[(int(hash[0])<<8|int(hash[1]))%len(g.some)]
}

func (g *generations) of(hash digest) uint64 { return g.all.Load() + g.slot(hash).Load() }
