package auth

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

const (
	// tokenTTL is how long a token's row is kept, and noTokenTTL how long it
	// is kept that there is no such token.
	tokenTTL   = 60 * time.Second
	noTokenTTL = 5 * time.Second
	// maxCached bounds the rows kept in memory, and maxRefused what is known not
	// to be a token: nobody comes back for that but to guess.
	maxCached  = 100_000
	maxRefused = 5_000
	// lookupTimeout is how long a request waits for the database to find its token.
	lookupTimeout = 1500 * time.Millisecond
	// readTimeout is how long the statement may take that nobody may be waiting for
	// any more. A database that answers in 300 ms needs 1.8 s when it has to be
	// connected to first; given up sooner, no connection would ever be there.
	readTimeout = 2 * lookupTimeout
	// narrow is how many lookups at a time are spent on addresses that have
	// failed too often.
	narrow = 2
)

// Config is what Tokens is made of. DB, URL and Env are required.
type Config struct {
	DB  *db.DB
	URL string // of the same database, for the connection that hears of revocations
	// Lookups is how many statements that look for tokens run at a time; 0 means 2.
	Lookups int
	Env     string // live or test; tokens of the other one are invalid
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

// Tokens recognises bearer tokens. While Run runs and its connection to the database
// holds, rows are cached for up to a minute; otherwise each request reads its
// row anew. Either way a token whose revocation has returned is refused.
type Tokens struct {
	// Never changed.
	db        *db.DB
	url       string
	env       string
	node      string
	clock     func() time.Time
	exhausted func(context.Context, netip.Addr) bool
	log       *slog.Logger
	met       *metrics

	// Of everybody: filled by requests, emptied by the listener.
	cache *otter.Cache[digest, *entry]
	// refused holds the entries without a principal, so that guesses push no
	// token out of the cache.
	refused  *otter.Cache[digest, *entry]
	guilds   *otter.Cache[string, there] // that bot keys have named
	gens     generations
	lookups  *lookups
	narrow   chan struct{}
	lastUsed lastUsed

	// Written by the listener, read by requests and metrics.
	lease  atomic.Pointer[time.Time] // when the last heartbeat that came back was sent
	silent atomic.Bool               // the connection stands, and nothing comes over it
	epoch  atomic.Int64              // up to which changes are known
	nodes  atomic.Int64              // heard from of late

	acks chan struct{} // from what receives to what sends heartbeats: tell the epoch now
}

// NewTokens returns Tokens that work at once and become fast under Run.
func NewTokens(cfg Config) (*Tokens, error) {
	switch {
	case cfg.DB == nil || cfg.URL == "":
		return nil, errors.New("auth: DB and URL are required")
	case cfg.Env != "live" && cfg.Env != "test":
		return nil, errors.New("auth: Env must be live or test")
	}
	cfg.Lookups = cmp.Or(cfg.Lookups, 2)
	cfg.NodeID = cmp.Or(cfg.NodeID, db.NewID())
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Exhausted == nil {
		cfg.Exhausted = func(context.Context, netip.Addr) bool { return false }
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cache, err := otter.New(&otter.Options[digest, *entry]{
		MaximumSize:      maxCached,
		ExpiryCalculator: otter.ExpiryWriting[digest, *entry](tokenTTL),
	})
	if err != nil {
		return nil, fault.Wrap(err, "auth")
	}
	refused, err := otter.New(&otter.Options[digest, *entry]{
		MaximumSize:      maxRefused,
		ExpiryCalculator: otter.ExpiryWriting[digest, *entry](noTokenTTL),
	})
	if err != nil {
		return nil, fault.Wrap(err, "auth")
	}
	guilds, err := otter.New(&otter.Options[string, there]{
		MaximumSize:      maxCached,
		ExpiryCalculator: otter.ExpiryWriting[string, there](tokenTTL),
	})
	if err != nil {
		return nil, fault.Wrap(err, "auth")
	}
	t := &Tokens{
		db: cfg.DB, url: cfg.URL, env: cfg.Env, node: cfg.NodeID, clock: cfg.Clock,
		exhausted: cfg.Exhausted, log: cfg.Log, cache: cache, refused: refused, guilds: guilds,
		narrow: make(chan struct{}, narrow), acks: make(chan struct{}, 1),
	}
	t.lookups = newLookups(cfg.Lookups, t.read)
	t.met = newMetrics(cfg.Metrics, t)
	return t, nil
}

// Authenticate returns whose token bearer is, for a request from an address;
// the zero address is one that could not be known. It is invalid_token for a
// text that is no token of this env, and for a token that is unknown, revoked
// or expired; ip_not_allowed outside the token's allowlist; rate_limited when
// the address has failed so often that lookups for it have to queue too long;
// service_unavailable when the row is needed and cannot be read. The principal
// is shared: nobody may change it. With ip_not_allowed, and with invalid_token for
// a token that was revoked or has expired, it is returned as well, so that the
// refusal can be told to the token's owner.
func (t *Tokens) Authenticate(ctx context.Context, bearer string, from netip.Addr) (*Principal, error) {
	hash, ok := recognise(bearer, t.env)
	if !ok {
		return nil, t.unrecognised(bearer)
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

// unrecognised says why a text is no token of this env: its own prefix tells
// what belongs to the other one, so that no secret is given away.
func (t *Tokens) unrecognised(bearer string) error {
	other := "live"
	if t.env == other {
		other = "test"
	}
	if _, ok := recognise(bearer, other); ok {
		kind, brand := "token", bearer[:len(tokenBrand)]
		if brand == keyBrand {
			kind = "bot key"
		}
		return errInvalid.With("This is a %s %s on a %s server: it begins with %s%s_, and %ss of this server begin with %s%s_.",
			other, kind, t.env, brand, other, kind, brand, t.env)
	}
	return errInvalid
}

// judge decides by the row, the time and the address of this one request.
func (t *Tokens) judge(e *entry, from netip.Addr, at time.Time) (*Principal, error) {
	p := e.principal.Load()
	if p == nil {
		return e.revoked, errInvalid
	}
	now := e.databaseTime(at)
	if p.ExpiresAt != nil && !now.Before(*p.ExpiresAt) {
		return p, errInvalid
	}
	if e.restricted && !Within(e.allow, from) {
		return p, errAddress
	}
	if now.Sub(p.LastUsedAt) < lastUsedInterval {
		return p, nil
	}
	used := *p
	used.LastUsedAt = now
	if e.principal.CompareAndSwap(p, &used) {
		t.lastUsed.add(p.ID)
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
		e, ok = t.refused.GetIfPresent(hash)
	}
	if !ok {
		return nil
	}
	if e.generation != t.gens.of(hash) || !e.datable(now) {
		t.forget(hash)
		return nil
	}
	t.met.hits.Inc()
	return e
}

// entry is what is remembered of a digest: a token's row, or that there is no
// token to be accepted. Only the principal changes, when a use is noted.
type entry struct {
	// Written before others see it.
	generation uint64 // of the digest, before the row was read
	readAt     time.Time
	now        time.Time // the database's time at readAt
	restricted bool
	allow      []netip.Prefix
	revoked    *Principal // whose token it was; nil: it is not revoked, or none

	// Changed by requests that use the token.
	principal atomic.Pointer[Principal] // nil: refuse
}

// datable reports whether the database's time can be told from the entry still.
func (e *entry) datable(now time.Time) bool {
	age, believable := passed(e.readAt, now)
	return believable && age <= tokenTTL
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

func (g *generations) of(hash digest) uint64 { return g.all.Load() + g.slot(hash).Load() }

func (g *generations) slot(hash digest) *atomic.Uint64 {
	return &g.some[(int(hash[0])<<8|int(hash[1]))%len(g.some)]
}
