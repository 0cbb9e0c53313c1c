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
	// pollInterval is how often a node polls for work without a wake: for due retries, and for
	// deliveries that other nodes have recorded or left.
	pollInterval = 250 * time.Millisecond

	// claimInterval is the minimum time between two claims, so that many wakes in a short time
	// cause one claim. While an endpoint has more deliveries than free slots, backlogInterval is
	// used instead, so that slots do not stay unused.
	claimInterval   = 10 * time.Millisecond
	backlogInterval = 2 * time.Millisecond

	// beginWithin bounds the time from a claim to the start of its sends. beginWithin is shorter
	// than the database's timeout for an idle transaction: a process that was frozen for longer no
	// longer holds the locks of its claim.
	beginWithin = 5 * time.Second
)

// Deliverer sends the due deliveries. Each node runs one Deliverer. The nodes share the work
// through locks and leases, and no delivery is lost when a node dies.
//
// No field changes after New, except wakeups and limiter, which have their own mutexes, and scan and
// narrow, which only the claim loop uses.
type Deliverer struct {
	db       *db.DB
	schedule Schedule
	client   *egress.Client
	open     func(c claimed, at time.Time) ([]string, error)
	clock    func() time.Time
	jitter   func() float64
	lease    time.Duration
	oneGuild bool // each statement names one guild
	most     int  // maximum of waiting deliveries for an endpoint, and of deliveries in its log
	log      *slog.Logger
	metrics  *metrics
	tracer   *tracing.Tracer

	wakeups      *wakeups
	egressHealth *egressHealth
	show         func(ctx context.Context, tx *db.Tx, guild, endpoint string) (any, error)
	limiter      *limiter
	results      chan result
	scan         endpointID        // where the next poll for fresh deliveries starts
	narrow       bool              // the last poll was only of guilds with a wake, although a poll of everything was due
	quietly      logging.Sometimes // errors of single endpoints
}

// New returns a Deliverer, which does nothing before Run.
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
		most: MaxWaiting, show: cfg.Show, egressHealth: &egressHealth{}, wakeups: newWakeups(), limiter: newLimiter(cfg.Slots), results: make(chan result, cfg.Slots),
	}
	d.metrics = newMetrics(cfg.Metrics, d.limiter, d.egressHealth)
	return d, nil
}

// Wake signals that a unit of work of the guild has committed and may have recorded an event. Wake
// never blocks.
func (d *Deliverer) Wake(guild string) { d.wakeups.add(guild) }

// Run sends deliveries until ctx ends. Then Run makes no more claims, waits for the running sends,
// at most for the timeout of an attempt, records their results and returns nil. Run does not fail
// while the database is down: Run retries.
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

// starter starts the send of a claimed delivery without waiting for the send to end, and calls
// begun when the send has started: the claim keeps its locks until all its sends have started. The
// result is recorded after the claim has committed, because no other transaction sees the lease
// before.
type starter func(c claimed, begun func(), committed <-chan struct{})

// claimLoop makes a claim after each wake and every pollInterval, and passes each delivery to
// start.
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
		case <-d.wakeups.signal:
		case <-ticker.C:
			d.wakeups.addAll()
		}
		more, err := d.claim(ctx, start)
		if err != nil && d.quietly.Due("claim", time.Now(), logging.Interval) {
			d.log.Error("claim webhook deliveries", "error", err)
		}
		switch {
		case err != nil: // wait for the database; guilds with a wake wait too
			rest.Reset(pollInterval)
		case more || d.narrow:
			rest.Reset(backlogInterval)
			d.wakeups.addAll()
		default:
			rest.Reset(claimInterval)
		}
	}
}

// claim polls for waiting deliveries, asks the limiter for slots and starts the sends. claim
// reports whether the next claim should follow at once.
//
// The sends start before the claim commits, while the claim holds the locks of the endpoints'
// schedules: a unit of work that disables or deletes an endpoint waits for the lock, so no send
// starts after its commit. If the commit of the claim fails, the sends were made without a lease
// and are made again with the same ids, as after a crash.
func (d *Deliverer) claim(ctx context.Context, start starter) (more bool, err error) {
	guilds, all := d.callers()
	began := time.Now()
	if !d.limiter.free(began) {
		d.wakeups.addLater(guilds)
		return false, nil
	}
	waiting, err := d.poll(ctx, guilds, all, began)
	if err != nil {
		d.wakeups.add(guilds...)
		return false, err
	}
	if len(waiting) == 0 {
		return false, nil
	}
	more = d.limiter.grant(waiting, began)
	if left := d.leftOut(waiting, began); len(left) > 0 {
		d.wakeups.addLater(left)
	}
	chosen := slices.DeleteFunc(waiting, func(c *candidate) bool { return c.take == 0 && !c.toQueue() })
	if len(chosen) == 0 {
		return false, nil
	}
	var rows []claimed
	skipped := 0
	committed := make(chan struct{})
	defer close(committed)
	// A claim that has started is completed even if ctx ends: the deliveries of an unknown lease
	// would have to wait until it expires.
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
		d.wakeups.add(guilds...)
		return false, err
	}
	d.metrics.claimed(rows, time.Since(began))
	for _, c := range rows {
		more = more || c.More
	}
	if skipped > 0 { // another node has locked the schedule; this node polls again soon
		d.wakeups.add(guilds...)
	}
	return more || len(rows) == claimSize, nil
}

// callers returns the guilds with a wake, and whether to poll everything. If both are due, they
// alternate, so that a new event does not have to wait for a poll of everything each time.
func (d *Deliverer) callers() (guilds []string, all bool) {
	guilds, all = d.wakeups.take()
	d.narrow = all && len(guilds) > 0 && !d.narrow
	return guilds, all && !d.narrow
}

// leftOut returns the guilds of endpoints that were granted no slot although their deliveries
// should be sent at once: the next claim polls these guilds again. A poll of everything would find
// the endpoints only in their turn.
func (d *Deliverer) leftOut(waiting []*candidate, now time.Time) (guilds []string) {
	for _, c := range waiting {
		if c.take == 0 && c.sendable() && (c.prompt() || c.Woken && d.limiter.idle(c.id(), now)) {
			guilds = append(guilds, c.GuildID)
		}
	}
	return guilds
}

// poll finds endpoints that may have deliveries to send: in the given guilds or, if all is set, in
// every guild.
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

// time returns the time of this node, for signatures and the log.
func (d *Deliverer) time() time.Time {
	if d.clock != nil {
		return d.clock()
	}
	return time.Now() // receivers compare the time of a signature with their own clock, not with our database
}

// now returns the time for schedules; nil means the database's clock.
func (d *Deliverer) now() *time.Time {
	if d.clock == nil {
		return nil
	}
	t := d.clock()
	return &t
}

// wakeups collects the wakes until the claim loop polls. mu guards all fields except signal, a channel
// with one value while there is something to poll.
type wakeups struct {
	signal chan struct{}

	mu     sync.Mutex
	guilds map[string]bool // guilds that have recorded events
	all    bool            // any endpoint may be due
}

func newWakeups() *wakeups {
	return &wakeups{signal: make(chan struct{}, 1), guilds: make(map[string]bool)}
}

// add adds guilds that have recorded events.
func (b *wakeups) add(guilds ...string) {
	b.mu.Lock()
	for _, g := range guilds {
		b.guilds[g] = true
	}
	b.mu.Unlock()
	b.wake()
}

// addAll makes the claim loop poll all endpoints.
func (b *wakeups) addAll() {
	b.mu.Lock()
	b.all = true
	b.mu.Unlock()
	b.wake()
}

// addLater adds guilds to poll with the next wake, without waking the claim loop.
func (b *wakeups) addLater(guilds []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range guilds {
		b.guilds[g] = true
	}
	b.all = true
}

func (b *wakeups) wake() {
	select {
	case b.signal <- struct{}{}:
	default:
	}
}

// take returns and removes the collected guilds, at most claimSize; for the others, the claim loop
// is woken again.
func (b *wakeups) take() (guilds []string, all bool) {
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
