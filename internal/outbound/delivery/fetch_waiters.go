package delivery

import (
	"context"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/logging"
)

// waitersPollPause is the least time between two looks for those who wait: so that a rush of
// events costs few of them, and an event hardly waits for its own.
const waitersPollPause = 3 * time.Millisecond

// Waiters are the callers of this node that wait until there is something to fetch
// from a pull endpoint or a part of a stream, one for each at most. They hold no
// connection: one look finds for all of them which have something, and one for each
// stream.
//
// A unit of this node that may have recorded something brings a look at its guild about;
// what other nodes record, and leases that end, the look every pollInterval finds.
type Waiters struct {
	db      *db.DB
	log     *slog.Logger
	quietly logging.Sometimes
	bell    *bell

	// done counts the units that have committed, by guild. Guilds share counters: one too
	// many is a look too many. all counts those of every guild.
	done [1 << 10]atomic.Uint32
	all  atomic.Uint32

	mu      sync.Mutex
	of      map[string][]*Waiter // by guild, one for an endpoint
	parts   map[partID]*Waiter
	begun   map[string]bool // streams for which a look is due since somebody has begun to wait
	n       int
	stopped bool
}

// NewWaiters has nobody wait yet. No fetch is woken before Run. reg may be nil.
func NewWaiters(d *db.DB, log *slog.Logger, reg prometheus.Registerer) *Waiters {
	w := &Waiters{db: d, log: log, bell: newBell(), of: make(map[string][]*Waiter), parts: make(map[partID]*Waiter), begun: make(map[string]bool)}
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "guildhall", Subsystem: "webhook", Name: "waiting_callers", Help: "Callers on this node that wait until there is something to fetch.",
	}, func() float64 { return float64(w.Waiting()) })
	return w
}

// Waiting is how many callers wait at the moment.
func (w *Waiters) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// Waiter is one caller that waits.
type Waiter struct {
	among *Waiters
	id    endpointID
	part  partID // where it waits for a stream
	serve Part
	woken chan struct{} // there may be something
	over  chan struct{} // closed when it has waited long enough
}

// Done is how many units of a guild have committed, or of all where it is empty, as far
// as Begin has to know.
func (w *Waiters) Done(guild string) uint32 {
	if guild == "" {
		return w.all.Load()
	}
	return w.counter(guild).Load()
}

func (w *Waiters) counter(guild string) *atomic.Uint32 {
	return &w.done[maphash.String(seed, guild)%uint64(len(w.done))]
}

var seed = maphash.MakeSeed()

// Begin makes a caller the one that waits for an endpoint. The one before need not wait
// any longer. done is what Done was before a fetch that has found nothing: what a unit of
// this node has recorded since is not missed.
func (w *Waiters) Begin(guild, endpoint string, done uint32) *Waiter {
	one := &Waiter{among: w, id: endpointID{guild, endpoint}, woken: make(chan struct{}, 1), over: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		close(one.over)
		return one
	}
	if i := w.place(guild, endpoint); i >= 0 {
		close(w.of[guild][i].over)
		w.of[guild][i] = one
	} else {
		w.of[guild] = append(w.of[guild], one)
		w.n++
	}
	if w.Done(guild) != done {
		w.bell.ring(guild)
	}
	return one
}

// place is where in its guild the caller stands that waits for an endpoint; -1 if none does.
func (w *Waiters) place(guild, endpoint string) int {
	return slices.IndexFunc(w.of[guild], func(one *Waiter) bool { return one.id.endpoint == endpoint })
}

// Wait returns true as soon as there may be something to fetch, and false when there is
// no more waiting: ctx has ended, it is late, another waits instead, or the node stops.
func (one *Waiter) Wait(ctx context.Context, late <-chan time.Time) bool {
	select {
	case <-one.over:
		return false
	default:
	}
	select {
	case <-one.woken:
		return true
	case <-one.over:
		return false
	case <-late:
		return false
	case <-ctx.Done():
		return false
	}
}

// wake says that there may be something.
func (one *Waiter) wake() {
	select {
	case one.woken <- struct{}{}:
	default:
	}
}

// End is called when the caller waits no more.
func (one *Waiter) End() {
	w := one.among
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.parts[one.part] == one {
		delete(w.parts, one.part)
		w.n--
		return
	}
	guild := one.id.guild
	i := slices.Index(w.of[guild], one)
	if i < 0 {
		return
	}
	w.n--
	if w.of[guild] = slices.Delete(w.of[guild], i, i+1); len(w.of[guild]) == 0 {
		delete(w.of, guild)
	}
}

// Wake says that a unit of the guild has committed, and may have recorded something or
// given something back. It never waits.
func (w *Waiters) Wake(guild string) {
	w.counter(guild).Add(1)
	w.all.Add(1)
	w.mu.Lock()
	waits := w.of[guild] != nil || len(w.parts) > 0
	w.mu.Unlock()
	if waits {
		w.bell.ring(guild)
	}
}

// Run wakes waiters until ctx ends. Then all waiting is over, and begins no more.
func (w *Waiters) Run(ctx context.Context) error {
	defer w.stop()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-rest.C:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.bell.rung:
		case <-ticker.C:
			w.bell.ringAll()
		}
		if err := w.poll(ctx); err != nil && ctx.Err() == nil && w.quietly.Due("poll", time.Now(), logging.Interval) {
			w.log.Warn("look for what can be fetched", "error", err)
		}
		rest.Reset(waitersPollPause)
	}
}

func (w *Waiters) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	for _, guild := range w.of {
		for _, one := range guild {
			close(one.over)
		}
	}
	for _, one := range w.parts {
		close(one.over)
	}
	clear(w.of)
	clear(w.parts)
	w.n = 0
}

// findFetchable says for which of some endpoints something can be fetched.
const findFetchable = `
	SELECT p.guild_id, p.endpoint_id
	FROM unnest($1::text[], $2::text[]) AS p (guild_id, endpoint_id)
	CROSS JOIN LATERAL (
		SELECT
		FROM webhook_deliveries w
		WHERE w.state = 'pending' AND w.guild_id = p.guild_id AND w.endpoint_id = p.endpoint_id AND w.due_at <= now()
		LIMIT 1
	) w`

// findFetchableAcross is findFetchable where the tables are distributed by guild, where
// there is no LIMIT for each row: nearly nothing can be fetched that somebody waits for.
const findFetchableAcross = `
	SELECT DISTINCT w.guild_id, w.endpoint_id
	FROM unnest($1::text[], $2::text[]) AS p (guild_id, endpoint_id)
	JOIN webhook_deliveries w ON w.guild_id = p.guild_id AND w.endpoint_id = p.endpoint_id
	WHERE w.state = 'pending' AND w.due_at <= now()`

// poll wakes those who have something to fetch: of the guilds that have rung, or of all.
func (w *Waiters) poll(ctx context.Context) error {
	rung, all := w.bell.take()
	if err := w.pollStreams(ctx, rung, all); err != nil {
		return err
	}
	guilds, endpoints := w.named(rung, all)
	if len(guilds) == 0 {
		return nil
	}
	query := findFetchable
	if w.db.Distributed() {
		query = findFetchableAcross
	}
	found, err := db.Select[backlog](ctx, w.db.Reader(), query, db.Array(guilds), db.Array(endpoints))
	if err != nil {
		return fault.Wrap(err, "look for what can be fetched")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range found {
		if i := w.place(f.GuildID, f.EndpointID); i >= 0 {
			w.of[f.GuildID][i].wake()
		}
	}
	return nil
}

// named lists the endpoints of some guilds, or all, that somebody waits for.
func (w *Waiters) named(rung []string, all bool) (guilds, endpoints []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if all {
		guilds, endpoints = make([]string, 0, w.n), make([]string, 0, w.n)
		rung = rung[:0]
		for guild := range w.of {
			rung = append(rung, guild)
		}
	}
	for _, guild := range rung {
		for _, one := range w.of[guild] {
			guilds, endpoints = append(guilds, guild), append(endpoints, one.id.endpoint)
		}
	}
	return guilds, endpoints
}
