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
	// tokenTTL is how long a token's row is cached, noTokenTTL how long it is cached that a token
	// does not exist.
	tokenTTL   = 60 * time.Second
	noTokenTTL = 5 * time.Second
	// maxCached bounds the cached tokens. maxRefused bounds the cached texts that are no token,
	// which matter only when somebody guesses.
	maxCached  = 100_000
	maxRefused = 5_000
	// lookupTimeout is how long a request waits for the lookup of its token.
	lookupTimeout = 1500 * time.Millisecond
	// readTimeout bounds the lookup's statement, for which no request may be waiting any more. With
	// a database that takes 300 ms to respond, opening a connection and reading take 1.8 s; with a
	// shorter timeout no connection would ever be opened.
	readTimeout = 2 * lookupTimeout
	// narrow is the number of concurrent lookups for addresses with too many failed
	// authentications.
	narrow = 2
)

// Config is the configuration of Tokens. DB, URL and Env are required.
type Config struct {
	DB  *db.DB
	URL string // the URL of the same database, for the listener's connection
	// Lookups is the number of concurrent lookup statements; 0 means 2.
	Lookups int
	Env     string // live or test; tokens of the other environment are invalid
	// NodeID identifies this process among those that share the database; empty: a random id.
	NodeID string
	// Clock is the node's clock; nil means time.Now. Only differences between its readings are
	// used; expiry is decided by the database's time.
	Clock func() time.Time
	// Exhausted reports whether failed authentications have emptied the bucket of an address. Valid
	// tokens from the address still work, but its lookups share a few slots. nil means never.
	Exhausted func(ctx context.Context, from netip.Addr) bool
	Log       *slog.Logger          // nil: no log
	Metrics   prometheus.Registerer // nil: no metrics
}

// evictingCache is the part of otter.Cache that Tokens uses. It is an interface because the compiler
// compiles otter's generic code again for each package that uses a struct with an otter.Cache.
type evictingCache[K comparable, V any] interface {
	GetIfPresent(key K) (V, bool)
	Set(key K, value V) (V, bool)
	Invalidate(key K) (V, bool)
}

// Tokens authenticates bearer tokens. While Run runs and its connection to the database works, rows
// are cached for up to a minute; otherwise each request reads its row. In both cases a token is
// refused once its revocation has returned.
type Tokens struct {
	// Constant after NewTokens.
	db        *db.DB
	url       string
	env       string
	node      string
	clock     func() time.Time
	exhausted func(context.Context, netip.Addr) bool
	log       *slog.Logger
	met       *metrics

	// The caches are filled by requests, and the listener drops entries.
	cache evictingCache[digest, *entry]
	// refused holds the entries for texts that are no token. It is separate, so that guesses evict
	// no token from the cache.
	refused  evictingCache[digest, *entry]
	guilds   evictingCache[string, there] // guilds that requests with bot keys have named
	gens     generations
	lookups  *lookups
	narrow   chan struct{}
	lastUsed lastUsed

	// The fields below are written by the listener and read by requests and metrics.
	lease  atomic.Pointer[time.Time] // when the newest heartbeat that has come back was sent
	silent atomic.Bool               // the connection is open, but no heartbeat comes back
	epoch  atomic.Int64              // the epoch of the newest announcement received
	nodes  atomic.Int64              // live nodes

	connections int64 // number of connections that the listener has opened; only the listener uses it

	acks chan struct{} // asks the goroutine that sends heartbeats to send the new epoch now
}

// NewTokens returns Tokens that work at once; only while Run runs are tokens cached.
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

// Authenticate returns the principal of bearer, for a request from an address, which is zero if
// unknown. Its errors are invalid_token for a text that is no token of this environment and for a
// token that is unknown, revoked or expired; ip_not_allowed outside the token's allowlist;
// rate_limited if the address has failed too often and its lookup would have to wait too long; and
// service_unavailable if the row cannot be read. The principal is shared and must not be changed.
// With ip_not_allowed, and with invalid_token for a revoked or expired token, the principal is
// returned too, so that the refusal can be shown to the token's owner.
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

// unrecognised returns the error for a text that is no token of this environment. A token of the
// other environment gets a message that says so: its prefix alone shows that, so the message
// reveals no secret.
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

// judge decides by the token's row, the time and the address of the request.
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

// recall returns the cached row of a token, or nil if there is none that can be trusted. now must
// have been read just before.
//
// The cache has received every revocation that had returned by now. This depends on the order
// below: if the lease is valid when it is read after the entry, all earlier revocations have
// already changed the generation.
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

// entry is a cached lookup: a token's row, or that there is no such token. After its creation only
// principal changes, when a new use is recorded.
type entry struct {
	// Written before the entry is shared.
	generation uint64 // the digest's generation before the row was read
	readAt     time.Time
	now        time.Time // the database's time at readAt
	restricted bool
	allow      []netip.Prefix
	revoked    *Principal // the principal of a revoked token; nil: not revoked, or no token

	// Changed by requests that use the token.
	principal atomic.Pointer[Principal] // nil: refuse
}

// datable reports whether the database's time can still be derived from the entry.
func (e *entry) datable(now time.Time) bool {
	age, believable := passed(e.readAt, now)
	return believable && age <= tokenTTL
}

// databaseTime returns the database's time at which this node's clock shows now.
func (e *entry) databaseTime(now time.Time) time.Time { return e.now.Add(now.Sub(e.readAt)) }

// generations count announcements, so that a reader can tell whether a digest was announced since
// it was read. They only rise. Several digests share one counter; that sometimes causes an
// unnecessary lookup, and never a missing one.
type generations struct {
	all  atomic.Uint64
	some [1024]atomic.Uint64
}

func (g *generations) of(hash digest) uint64 { return g.all.Load() + g.slot(hash).Load() }

func (g *generations) slot(hash digest) *atomic.Uint64 {
	return &g.some[(int(hash[0])<<8|int(hash[1]))%len(g.some)]
}
