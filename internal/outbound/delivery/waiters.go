package delivery

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

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
	quietly sometimes
	bell    *bell

	mu      sync.Mutex
	of      map[string]map[string]*Waiter // by guild and endpoint
	parts   map[partID]*Waiter
	n       int
	stopped bool
}

// NewWaiters has nobody wait yet. No fetch is woken before Run. reg may be nil.
func NewWaiters(d *db.DB, log *slog.Logger, reg prometheus.Registerer) *Waiters {
	w := &Waiters{db: d, log: log, bell: newBell(), of: make(map[string]map[string]*Waiter), parts: make(map[partID]*Waiter)}
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

// Begin makes a caller the one that waits for an endpoint. The one before need not wait
// any longer. Nothing is missed that is recorded after a fetch before Begin.
func (w *Waiters) Begin(guild, endpoint string) *Waiter {
	one := &Waiter{among: w, id: endpointID{guild, endpoint}, woken: make(chan struct{}, 1), over: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		close(one.over)
		return one
	}
	if w.of[guild] == nil {
		w.of[guild] = make(map[string]*Waiter)
	}
	if before := w.of[guild][endpoint]; before != nil {
		close(before.over)
	} else {
		w.n++
	}
	w.of[guild][endpoint] = one
	w.bell.ring(guild)
	return one
}

// Wait returns true as soon as there may be something to fetch, and false when there is
// no more waiting: ctx has ended, another waits instead, or the node stops.
func (one *Waiter) Wait(ctx context.Context) bool {
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
	guild := w.of[one.id.guild]
	if guild[one.id.endpoint] != one {
		return
	}
	w.n--
	if delete(guild, one.id.endpoint); len(guild) == 0 {
		delete(w.of, one.id.guild)
	}
}

// Wake says that a unit of the guild has committed, and may have recorded something or
// given something back. It never waits.
func (w *Waiters) Wake(guild string) {
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
		if err := w.look(ctx); err != nil && ctx.Err() == nil && w.quietly.due("look", time.Now(), logInterval) {
			w.log.Warn("look for what can be fetched", "error", err)
		}
		rest.Reset(claimInterval)
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

// look wakes those who have something to fetch: of the guilds that have rung, or of all.
func (w *Waiters) look(ctx context.Context) error {
	rung, all := w.bell.take()
	if err := w.lookAtStreams(ctx, rung, all); err != nil {
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
		if one := w.of[f.GuildID][f.EndpointID]; one != nil {
			one.wake()
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
		for endpoint := range w.of[guild] {
			guilds, endpoints = append(guilds, guild), append(endpoints, endpoint)
		}
	}
	return guilds, endpoints
}
