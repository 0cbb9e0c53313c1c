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

// waitersPollPause is the minimum time between two polls for waiting callers: many events in a
// short time cause few polls, and each event is found nearly at once.
const waitersPollPause = 3 * time.Millisecond

// Waiters are the callers of this node that wait until events can be fetched from a pull endpoint
// or from a part of a stream; at most one caller waits for each. The waiting callers hold no
// database connection: one poll finds which of their endpoints have events, and one more poll for
// each stream.
//
// When a unit of work of this node has committed, its guild is polled at once. Events that other
// nodes record, and leases that expire, are found by the poll of every pollInterval.
type Waiters struct {
	db      *db.DB
	log     *slog.Logger
	quietly logging.Sometimes
	wakeups *wakeups

	// done counts the committed units of work by guild. Several guilds share one counter: a count
	// too high costs one needless poll. all counts the units of work of every guild.
	done [1 << 10]atomic.Uint32
	all  atomic.Uint32

	mu      sync.Mutex
	of      map[string][]*Waiter // by guild, one caller for each endpoint
	parts   map[partID]*Waiter
	begun   map[string]bool // streams to poll because a caller has started to wait
	n       int
	stopped bool
}

// NewWaiters returns a Waiters without callers. No caller is woken before Run. reg may be nil.
func NewWaiters(d *db.DB, log *slog.Logger, reg prometheus.Registerer) *Waiters {
	w := &Waiters{db: d, log: log, wakeups: newWakeups(), of: make(map[string][]*Waiter), parts: make(map[partID]*Waiter), begun: make(map[string]bool)}
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "guildhall", Subsystem: "webhook", Name: "waiting_callers", Help: "Callers on this node that wait until there is something to fetch.",
	}, func() float64 { return float64(w.Waiting()) })
	return w
}

// Waiting returns the number of callers that wait now.
func (w *Waiters) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// Waiter is one waiting caller.
type Waiter struct {
	among *Waiters
	id    endpointID
	part  partID // the part of a stream, if the caller waits for a stream
	serve Part
	woken chan struct{} // receives a value when there may be events
	over  chan struct{} // closed when the caller must stop waiting
}

// Done returns how many write transactions of a guild have committed, or of all guilds if guild is
// empty. A caller reads it before its SELECT and passes it to Begin, which then does not wait if a
// transaction has committed in between.
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

// Begin registers a caller that waits for an endpoint. The caller that waited for the endpoint
// before stops waiting. done is the result of Done before the fetch that has found nothing: so
// Begin does not miss events that a unit of work of this node has recorded since then.
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
		w.wakeups.add(guild)
	}
	return one
}

// place returns the index, within the guild, of the caller that waits for an endpoint; -1 if no
// caller waits.
func (w *Waiters) place(guild, endpoint string) int {
	return slices.IndexFunc(w.of[guild], func(one *Waiter) bool { return one.id.endpoint == endpoint })
}

// Wait returns true as soon as there may be events to fetch. Wait returns false if the caller must
// stop waiting: ctx has ended, late has fired, another caller waits instead, or the node is
// stopping.
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

// wake signals that there may be events.
func (one *Waiter) wake() {
	select {
	case one.woken <- struct{}{}:
	default:
	}
}

// End unregisters the caller.
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

// Wake signals that a unit of work of the guild has committed and may have recorded or returned an
// event. Wake never blocks.
func (w *Waiters) Wake(guild string) {
	w.counter(guild).Add(1)
	w.all.Add(1)
	w.mu.Lock()
	waits := w.of[guild] != nil || len(w.parts) > 0
	w.mu.Unlock()
	if waits {
		w.wakeups.add(guild)
	}
}

// Run wakes waiters until ctx ends. Then every waiter stops waiting, and no new caller can wait.
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
		case <-w.wakeups.signal:
		case <-ticker.C:
			w.wakeups.addAll()
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

// findFetchable finds which of the given endpoints have deliveries that can be fetched.
const findFetchable = `
	SELECT p.guild_id, p.endpoint_id
	FROM unnest($1::text[], $2::text[]) AS p (guild_id, endpoint_id)
	CROSS JOIN LATERAL (
		SELECT
		FROM webhook_deliveries w
		WHERE w.state = 'pending' AND w.guild_id = p.guild_id AND w.endpoint_id = p.endpoint_id AND w.due_at <= now()
		LIMIT 1
	) w`

// findFetchableAcross does the same as findFetchable where the tables are distributed by guild:
// there, a LIMIT for each row is impossible. The endpoints that callers wait for have few
// deliveries that can be fetched.
const findFetchableAcross = `
	SELECT DISTINCT w.guild_id, w.endpoint_id
	FROM unnest($1::text[], $2::text[]) AS p (guild_id, endpoint_id)
	JOIN webhook_deliveries w ON w.guild_id = p.guild_id AND w.endpoint_id = p.endpoint_id
	WHERE w.state = 'pending' AND w.due_at <= now()`

// poll wakes the callers with events to fetch: those of the guilds in woken, or all callers.
func (w *Waiters) poll(ctx context.Context) error {
	woken, all := w.wakeups.take()
	if err := w.pollStreams(ctx, woken, all); err != nil {
		return err
	}
	guilds, endpoints := w.named(woken, all)
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

// named lists the endpoints of the given guilds, or of all guilds, that callers wait for.
func (w *Waiters) named(woken []string, all bool) (guilds, endpoints []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if all {
		guilds, endpoints = make([]string, 0, w.n), make([]string, 0, w.n)
		woken = woken[:0]
		for guild := range w.of {
			woken = append(woken, guild)
		}
	}
	for _, guild := range woken {
		for _, one := range w.of[guild] {
			guilds, endpoints = append(guilds, guild), append(endpoints, one.id.endpoint)
		}
	}
	return guilds, endpoints
}
