package delivery

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/logging"
	"guildhall/internal/base/tracing"
	"guildhall/internal/outbound/egress"
)

const (
	// pollInterval is how often a node looks for work that nobody woke it for:
	// retries that fall due, and what other nodes recorded or left behind.
	pollInterval = 250 * time.Millisecond

	// claimInterval is the least time between two claims, so that a rush of
	// wakes shares one; backlogInterval takes its place while some endpoint has
	// more than it may have sent to it, so that slots do not stand empty.
	claimInterval   = 10 * time.Millisecond
	backlogInterval = 2 * time.Millisecond

	// beginWithin bounds the time from a claim to the beginning of its sends. It
	// is less than the database lets a transaction stand idle: a process that was
	// frozen that long no longer holds the locks of its claim.
	beginWithin = 5 * time.Second
)

// Deliverer sends what is due. Each node runs one; they share the work by way
// of locks and leases, and none of it is lost when one dies.
//
// Nothing in it changes after New, but for what has locks of its own: bell and
// limiter. The claim loop alone uses scan and narrow.
type Deliverer struct {
	db       *db.DB
	schedule Schedule
	client   *egress.Client
	open     func(c claimed, at time.Time) ([]string, error)
	clock    func() time.Time
	jitter   func() float64
	lease    time.Duration
	oneGuild bool // each statement names one guild
	most     int  // deliveries that may wait for an endpoint, and that its log keeps
	log      *slog.Logger
	metrics  *metrics
	tracer   *tracing.Tracer

	bell         *bell
	egressHealth *egressHealth
	show         func(ctx context.Context, tx *db.Tx, guild, endpoint string) (any, error)
	limiter      *limiter
	results      chan result
	scan         endpointID        // where the next look for fresh deliveries begins
	narrow       bool              // the last look was at guilds that had rung, though more was to be looked at
	quietly      logging.Sometimes // trouble with single endpoints
}

// New prepares a Deliverer. It does nothing before Run.
func New(cfg Config) (*Deliverer, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	d := &Deliverer{
		db: cfg.DB, schedule: cfg.Schedule, client: egress.NewClient(cfg.Guard, cfg.Authorities),
		open: func(c claimed, at time.Time) ([]string, error) {
			return OpenSecrets(cfg.Box, c.GuildID, c.EndpointID, c.Secret, c.OldSecrets, at)
		},
		clock: cfg.Clock, jitter: cfg.Jitter, lease: lease, oneGuild: cfg.OneGuild || cfg.DB.Distributed(), log: cfg.Log, tracer: cfg.Tracer,
		most: MaxWaiting, show: cfg.Show, egressHealth: &egressHealth{}, bell: newBell(), limiter: newLimiter(cfg.Slots), results: make(chan result, cfg.Slots),
	}
	d.metrics = newMetrics(cfg.Metrics, d.limiter, d.egressHealth)
	return d, nil
}

// Wake says that a unit of the guild has committed, and may have recorded
// something. It never waits.
func (d *Deliverer) Wake(guild string) { d.bell.ring(guild) }

// Run delivers until ctx ends. Then it claims no more, lets what is under way
// finish, at most the time of an attempt, settles it and returns nil. It does
// not fail while it runs: a database that is away is waited for.
func (d *Deliverer) Run(ctx context.Context) error {
	var recording, maintenance, sends sync.WaitGroup
	recording.Go(func() { d.recordLoop(ctx) })
	maintenance.Go(func() { d.maintenanceLoop(ctx) })
	d.claimLoop(ctx, func(c claimed, begun func(), committed <-chan struct{}) {
		sends.Go(func() {
			started, at := time.Now(), d.time()
			begun()
			r := d.handle(context.WithoutCancel(ctx), c, started, at)
			<-committed
			d.results <- r
		})
	})
	sends.Wait()
	close(d.results)
	recording.Wait()
	maintenance.Wait()
	d.client.Close()
	return nil
}

// starter begins the send of a claimed delivery without waiting for it, and calls
// begun when it has: the claim keeps its locks until all have begun, not only been
// asked for. Its outcome is settled once the claim has committed: before, no one can
// see the lease.
type starter func(c claimed, begun func(), committed <-chan struct{})

// claimLoop claims when the bell rings and every pollInterval, and hands each
// delivery to start.
func (d *Deliverer) claimLoop(ctx context.Context, start starter) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-rest.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-d.bell.rung:
		case <-ticker.C:
			d.bell.ringAll()
		}
		more, err := d.claim(ctx, start)
		if err != nil && d.quietly.Due("claim", time.Now(), logging.Interval) {
			d.log.Error("claim webhook deliveries", "error", err)
		}
		switch {
		case err != nil: // the database is given time, and a guild that has rung waits
			rest.Reset(pollInterval)
		case more || d.narrow:
			rest.Reset(backlogInterval)
			d.bell.ringAll()
		default:
			rest.Reset(claimInterval)
		}
	}
}

// claim looks for what is waiting, grants it slots and begins its sends. It
// reports whether there may be more to claim at once.
//
// The sends begin before the claim commits, while it holds the schedules of
// their endpoints: whoever disables or deletes one waits for that lock, so no
// send begins after their commit. If the commit fails, the sends were made
// without a lease and are made again: under the same id, as after any crash.
func (d *Deliverer) claim(ctx context.Context, start starter) (more bool, err error) {
	guilds, all := d.callers()
	began := time.Now()
	if !d.limiter.free(began) {
		d.bell.later(guilds)
		return false, nil
	}
	waiting, err := d.poll(ctx, guilds, all, began)
	if err != nil {
		d.bell.ring(guilds...)
		return false, err
	}
	if len(waiting) == 0 {
		return false, nil
	}
	more = d.limiter.grant(waiting, began)
	if left := d.leftOut(waiting, began); len(left) > 0 {
		d.bell.later(left)
	}
	chosen := slices.DeleteFunc(waiting, func(c *candidate) bool { return c.take == 0 && !c.toQueue() })
	if len(chosen) == 0 {
		return false, nil
	}
	var rows []claimed
	skipped := 0
	committed := make(chan struct{})
	defer close(committed)
	// A claim that has begun is finished: a lease nobody knows of would keep its
	// delivery waiting.
	err = d.db.Do(context.WithoutCancel(ctx), func(ctx context.Context, tx *db.Tx) error {
		locked, err := lockIdle(ctx, tx, d.oneGuild, d.now(), chosen)
		if err != nil || len(locked) == 0 {
			skipped = len(chosen)
			return err
		}
		skipped = len(chosen) - len(locked)
		if rows, err = d.takeLocked(ctx, tx, chosen, locked, began); err != nil {
			return err
		}
		var begun sync.WaitGroup
		begun.Add(len(rows))
		for _, c := range rows {
			d.limiter.begin(c, time.Now())
			start(c, begun.Done, committed)
		}
		begun.Wait()
		return nil
	})
	if err != nil {
		d.bell.ring(guilds...)
		return false, err
	}
	d.metrics.claimed(rows, time.Since(began))
	for _, c := range rows {
		more = more || c.More
	}
	if skipped > 0 { // another node is at it; what it leaves is taken soon
		d.bell.ring(guilds...)
	}
	return more || len(rows) == claimSize, nil
}

// callers takes who has rung, and whether to look at everything: where both were
// asked for, in turn, so that what was just recorded does not wait for the look at
// everything each time.
func (d *Deliverer) callers() (guilds []string, all bool) {
	guilds, all = d.bell.take()
	d.narrow = all && len(guilds) > 0 && !d.narrow
	return guilds, all && !d.narrow
}

// leftOut names the guilds of endpoints that were granted nothing though what they
// have would go out at once: they are looked at again with the next claim. A look
// at everything would find them only in their turn.
func (d *Deliverer) leftOut(waiting []*candidate, now time.Time) (guilds []string) {
	for _, c := range waiting {
		if c.take == 0 && c.sendable() && (c.prompt() || c.Rung && d.limiter.idle(c.id(), now)) {
			guilds = append(guilds, c.GuildID)
		}
	}
	return guilds
}

// poll finds endpoints for which something may be waiting: those of the guilds
// that have just recorded something, and if all is asked for, any.
func (d *Deliverer) poll(ctx context.Context, guilds []string, all bool, now time.Time) ([]*candidate, error) {
	var waiting []*candidate
	var err error
	if len(guilds) > 0 {
		if waiting, err = pollGuilds(ctx, d.db.Reader(), d.oneGuild, d.now(), guilds); err != nil {
			return nil, err
		}
	}
	if !all {
		return waiting, nil
	}
	find := pollAll
	if d.oneGuild {
		find = pollDistributed
	}
	due, err := find(ctx, d.db.Reader(), d.now(), d.scan, d.limiter.full(now))
	if err != nil {
		return nil, err
	}
	fresh, last := 0, endpointID{}
	for _, c := range due {
		if c.Fresh {
			fresh, last = fresh+1, c.id()
		}
	}
	if d.scan = last; fresh < claimSize {
		d.scan = endpointID{}
	}
	waiting = append(waiting, due...)
	slices.SortStableFunc(waiting, func(a, b *candidate) int { return compareIDs(a.id(), b.id()) })
	return merge(waiting), nil
}

// takeLocked leases deliveries of the endpoints whose schedules are locked.
func (d *Deliverer) takeLocked(ctx context.Context, tx *db.Tx, chosen []*candidate, locked []schedule, began time.Time) ([]claimed, error) {
	granted := make(map[endpointID]int, len(chosen))
	for _, c := range chosen {
		granted[c.id()] = c.take
	}
	orders, by := make([]order, len(locked)), make(map[endpointID]schedule, len(locked))
	for i, s := range locked {
		orders[i], by[s.id()] = s.order(granted[s.id()]), s
		orders[i].RecoveredFirst = s.RecoveredAt != nil && d.limiter.recoveredFirst(s.id())
	}
	rows, err := take(ctx, tx, d.oneGuild, locked[0].Now, d.lease, orders)
	if err != nil {
		return nil, err
	}
	if time.Since(began) > beginWithin {
		return nil, errors.New("a claim took too long to be used")
	}
	for i := range rows {
		s := by[rows[i].id()]
		rows[i].Lane, rows[i].Quiet, rows[i].Suspect = s.Lane, s.QuietUntil, !s.well()
		rows[i].Now, rows[i].Locked = s.Now, began
		if rows[i].Recovered {
			rows[i].RecoveredAt = s.RecoveredAt
		}
	}
	return rows, nil
}

// time is this node's, for signatures and the log.
func (d *Deliverer) time() time.Time {
	if d.clock != nil {
		return d.clock()
	}
	return time.Now() // receivers compare a signature's time with a clock, not with our database
}

// now is the time that schedules count from: nil is the database's.
func (d *Deliverer) now() *time.Time {
	if d.clock == nil {
		return nil
	}
	t := d.clock()
	return &t
}

// bell keeps who has rung until the claim loop looks. Everything but rung, a
// channel that is full while something is to be looked at, is guarded by mu.
type bell struct {
	rung chan struct{}

	mu     sync.Mutex
	guilds map[string]bool // have recorded something
	all    bool            // something may be due
}

func newBell() *bell { return &bell{rung: make(chan struct{}, 1), guilds: make(map[string]bool)} }

// ring says that guilds have recorded something.
func (b *bell) ring(guilds ...string) {
	b.mu.Lock()
	for _, g := range guilds {
		b.guilds[g] = true
	}
	b.mu.Unlock()
	b.wake()
}

// ringAll says that anything may be due.
func (b *bell) ringAll() {
	b.mu.Lock()
	b.all = true
	b.mu.Unlock()
	b.wake()
}

// later is ring for guilds that are looked at when the bell rings next.
func (b *bell) later(guilds []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range guilds {
		b.guilds[g] = true
	}
	b.all = true
}

func (b *bell) wake() {
	select {
	case b.rung <- struct{}{}:
	default:
	}
}

// take returns who has rung, at most claimSize guilds; the others ring again.
func (b *bell) take() (guilds []string, all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for g := range maps.Keys(b.guilds) {
		if len(guilds) == claimSize {
			b.wake()
			break
		}
		guilds = append(guilds, g)
		delete(b.guilds, g)
	}
	all, b.all = b.all, false
	return guilds, all
}
