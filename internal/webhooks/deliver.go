package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"guildhall/internal/db"
)

const (
	// poll is how often a node looks for work that nobody woke it for: retries
	// that fall due, and what other nodes recorded or left behind.
	poll = 250 * time.Millisecond

	// breath is the least time between two claims, so that a rush of wakes
	// shares one, and settleWait is how long a result waits for company. At 200
	// events a second they keep an event below four statements in all, BEGIN
	// and COMMIT counted; what they cost an event's way is a few milliseconds.
	breath     = 10 * time.Millisecond
	settleWait = 10 * time.Millisecond

	// hurry takes breath's place while an endpoint has a backlog, so that its
	// slots do not stand empty.
	hurry = 2 * time.Millisecond

	// complainEvery is how often the log hears of a database that is away.
	complainEvery = 10 * time.Second

	// settlePatience is how long settling a batch is tried. Longer makes no
	// sense: the leases have run out by then and the rows are sent again.
	settlePatience = 60 * time.Second
)

// Deliverer sends what is due. Each node runs one; they share the work by way
// of leases, and none of it is lost when one dies.
type Deliverer struct {
	db       *db.DB
	schedule Schedule
	client   *client
	open     func(c claimed, at time.Time) ([]string, error)
	clock    func() time.Time
	jitter   func() float64
	lease    time.Duration
	log      *slog.Logger
	metrics  *metrics

	wake    chan struct{}
	results chan result
	pace    *pace
}

// NewDeliverer prepares a Deliverer. It does nothing before Run.
func NewDeliverer(cfg Config) (*Deliverer, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.DB == nil {
		return nil, errors.New("webhooks: a DB is needed to deliver")
	}
	if cfg.Schedule == nil {
		cfg.Schedule = DefaultSchedule()
	}
	if cfg.Slots == 0 {
		cfg.Slots = defaultSlots
	}
	if cfg.Jitter == nil {
		cfg.Jitter = rand.Float64
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	d := &Deliverer{
		db:       cfg.DB,
		schedule: cfg.Schedule,
		client:   newClient(cfg.Guard, cfg.Authorities),
		open: func(c claimed, at time.Time) ([]string, error) {
			return openSecrets(cfg.Box, c.GuildID, c.EndpointID, c.Secret, c.OldSecrets, at)
		},
		clock:   cfg.Clock,
		jitter:  cfg.Jitter,
		lease:   lease,
		log:     cfg.Log,
		wake:    make(chan struct{}, 1),
		results: make(chan result, cfg.Slots),
		pace:    newPace(cfg.Slots),
	}
	m, err := newMetrics(cfg.Metrics, d.pace)
	if err != nil {
		return nil, fmt.Errorf("webhooks: register metrics: %w", err)
	}
	d.metrics = m
	return d, nil
}

// Wake says that something may be due now. It never waits.
func (d *Deliverer) Wake() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Run delivers until ctx ends. Then it claims no more, lets what is under way
// finish, at most attemptLimit, settles it and returns nil. It does not fail
// while it runs: a database that is away is waited for.
func (d *Deliverer) Run(ctx context.Context) error {
	var settling, chores, sends sync.WaitGroup
	settling.Go(func() { d.settleLoop(ctx) })
	chores.Go(func() { d.choreLoop(ctx) })
	d.claimLoop(ctx, func(c claimed) {
		sends.Go(func() { d.results <- d.handle(context.WithoutCancel(ctx), c) })
	})
	sends.Wait()
	close(d.results)
	settling.Wait()
	chores.Wait()
	d.client.close()
	return nil
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

// claimLoop claims when woken and every poll, and hands each row to start.
func (d *Deliverer) claimLoop(ctx context.Context, start func(claimed)) {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	rest := time.NewTimer(0)
	defer rest.Stop()
	var complained time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-rest.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		case <-ticker.C:
		}
		pause := breath
		for full := true; full && ctx.Err() == nil; {
			var more bool
			var err error
			if full, more, err = d.claimOnce(ctx, start); err != nil && time.Since(complained) > complainEvery {
				complained = time.Now()
				d.log.Error("claim webhook deliveries", "error", err)
			}
			if more {
				pause = hurry
			}
		}
		rest.Reset(pause)
	}
}

// claimOnce claims as much as there are free slots for and starts it. It reports
// whether there may be more to claim at once, and whether some endpoint has more
// than it may have sent to it.
func (d *Deliverer) claimOnce(ctx context.Context, start func(claimed)) (full, more bool, err error) {
	began := time.Now()
	known, free, suspects := d.pace.room(began)
	limit := min(claimLimit, free)
	if limit == 0 {
		return false, false, nil
	}
	var rows []claimed
	// A claim that has begun is finished: a lease nobody knows of would keep its
	// row waiting.
	err = d.db.Do(context.WithoutCancel(ctx), func(ctx context.Context, tx *db.Tx) error {
		var err error
		rows, err = claim(ctx, tx, d.now(), d.lease, known, limit, suspects)
		return err
	})
	if err != nil {
		return false, false, err
	}
	d.metrics.claimed(rows, time.Since(began))
	for _, c := range rows {
		d.pace.begin(c, time.Now())
		more = more || c.More
		start(c)
	}
	return len(rows) == limit, more, nil
}

// handle makes one attempt, or finds that there is none to make, and returns
// its result. It always returns one: whatever goes wrong in here is a verdict
// on this delivery and no other.
func (d *Deliverer) handle(ctx context.Context, c claimed) (r result) {
	started, at := time.Now(), d.time()
	var v verdict
	var a answer
	defer func() {
		if p := recover(); p != nil {
			d.log.Error("webhook attempt panicked", "delivery", c.ID, "panic", fmt.Sprint(p))
			v, a = d.schedule.unsendable(c, internal, d.jitter()), answer{}
		}
		took := time.Since(started)
		wake, failed := d.pace.end(c, v, started.Add(took))
		if wake {
			d.Wake()
		}
		d.metrics.attempted(c, v, took)
		r = newResult(c, v, a, at, took)
		r.suspect = failed || c.Failures > 0
	}()

	switch {
	case c.URL == nil:
		v = d.schedule.unsendable(c, noEndpoint, 0)
		return
	case !*c.Enabled:
		// It was disabled after this row was recorded.
		v = verdict{State: stateHeld, Step: c.Step}
		return
	case !json.Valid(c.Payload):
		v = d.schedule.unsendable(c, badPayload, 0)
		return
	}
	secrets, err := d.open(c, at)
	if err != nil {
		v = d.schedule.unsendable(c, noSecret, d.jitter())
		return
	}
	header := http.Header{
		"Content-Type": {"application/json"},
		"User-Agent":   {userAgent},
		headerEvent:    {c.Type},
		headerDelivery: {c.ID},
		headerAttempt:  {strconv.Itoa(c.Attempts + 1)},
		headerSequence: {strconv.FormatInt(c.OccurredAt.UnixMicro(), 10)},
	}
	if err := sign(header, secrets, c.EventID, at, c.Payload); err != nil {
		v = d.schedule.unsendable(c, noSecret, d.jitter())
		return
	}
	a = d.client.send(ctx, *c.URL, header, c.Payload)
	v = d.schedule.judge(c, a, d.time(), d.jitter())
	return
}

// newResult puts an attempt and its verdict into the form that is stored.
func newResult(c claimed, v verdict, a answer, at time.Time, took time.Duration) result {
	r := result{
		GuildID: c.GuildID, ID: c.ID, EndpointID: c.EndpointID, LeaseGen: c.LeaseGen,
		State: v.State, PauseMs: v.Pause.Milliseconds(), Step: v.Step,
		Logged: v.Logged, StartedAt: at, DurationMs: took.Milliseconds(), Outcome: v.Outcome,
		verdict: v,
	}
	if a.Status != 0 {
		r.Status, r.Excerpt = &a.Status, &a.Excerpt
	}
	if text := advice(v.Outcome, a.Status); text != "" {
		r.Error = &text
	}
	return r
}

// settleLoop settles results in batches until there are no more.
func (d *Deliverer) settleLoop(ctx context.Context) {
	for first := range d.results {
		batch, wait := []result{first}, time.NewTimer(settleWait)
	collect:
		for len(batch) < claimLimit {
			select {
			case r, ok := <-d.results:
				if !ok {
					break collect
				}
				batch = append(batch, r)
			case <-wait.C:
				break collect
			}
		}
		wait.Stop()
		d.settle(ctx, batch)
		if d.pace.settled(batch) {
			d.Wake()
		}
	}
}

// settle keeps trying until the batch is written, or so much time has gone that
// its rows are due again anyway. When ctx has ended it does not try for long.
func (d *Deliverer) settle(ctx context.Context, batch []result) {
	lasting := context.WithoutCancel(ctx)
	d.disableGone(lasting, batch)
	pause, until := 50*time.Millisecond, time.Now().Add(settlePatience)
	for try := 1; ; try++ {
		err := d.settleOnce(lasting, batch)
		if err == nil {
			return
		}
		if time.Now().After(until) || ctx.Err() != nil && try >= 3 {
			d.log.Error("webhook deliveries could not be settled; they will be sent again", "count", len(batch), "error", err)
			return
		}
		d.log.Warn("settle webhook deliveries", "count", len(batch), "error", err)
		time.Sleep(pause)
		pause = min(2*pause, 2*time.Second)
	}
}

// settleOnce writes the batch. If the log refuses it, the attempts are put
// aside; if one row spoils even that, the others are written without it. An
// error means that nothing of the batch was written and it can be tried again.
func (d *Deliverer) settleOnce(ctx context.Context, batch []result) error {
	err := d.write(ctx, settle, batch)
	if err == nil || db.Unavailable(err) {
		return err
	}
	d.log.Warn("webhook attempts could not be logged, they are put aside", "count", len(batch), "error", err)
	err = d.write(ctx, settleUnlogged, batch)
	if err == nil || db.Unavailable(err) || len(batch) == 1 {
		return err
	}
	for _, r := range batch {
		d.settle(ctx, []result{r})
	}
	return nil
}

// write settles a batch in one of the two ways, together with what it says of
// the endpoints' health.
func (d *Deliverer) write(ctx context.Context, how func(context.Context, *db.Tx, *time.Time, []result) (int, error), batch []result) error {
	var ill []sick
	var n int
	began := time.Now()
	now, notes := d.now(), notes(batch)
	err := d.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		var err error
		if n, err = how(ctx, tx, now, batch); err != nil || len(notes) == 0 {
			return err
		}
		ill, err = noteHealth(ctx, tx, now, notes)
		return err
	})
	if err != nil {
		return err
	}
	d.metrics.settled(len(batch)-n, time.Since(began))
	d.tend(ctx, ill)
	return nil
}

// notes is what the batch says of endpoints, of those that were or are failing:
// a success of a healthy one changes nothing and is not written.
func notes(batch []result) []health {
	var order []string
	by := make(map[string]*health)
	for _, r := range batch {
		news := r.verdict.Failing || r.verdict.Healthy && (r.suspect || by[r.EndpointID] != nil)
		if !news {
			continue
		}
		if by[r.EndpointID] == nil {
			by[r.EndpointID] = &health{GuildID: r.GuildID, EndpointID: r.EndpointID}
			order = append(order, r.EndpointID)
		}
		by[r.EndpointID].add(r.verdict)
	}
	out := make([]health, 0, len(order))
	for _, id := range order {
		out = append(out, *by[id])
	}
	return out
}

// disableGone switches off the endpoints that answered 410, before their
// deliveries are settled as held: a delivery must never be held for an endpoint
// that is enabled.
func (d *Deliverer) disableGone(ctx context.Context, batch []result) {
	for _, r := range batch {
		if r.verdict.Disable != "" {
			d.disable(ctx, r.GuildID, r.EndpointID, r.verdict.Disable)
		}
	}
}

// tend disables endpoints that have failed for too long and warns of those on
// their way there.
func (d *Deliverer) tend(ctx context.Context, ill []sick) {
	for _, s := range ill {
		if reason := s.disableReason(); reason != "" {
			d.disable(ctx, s.GuildID, s.EndpointID, reason)
		} else if s.Warned > s.WarnedBefore {
			d.log.Warn("webhook endpoint keeps failing", "guild", s.GuildID, "endpoint", s.EndpointID,
				"failing_since", s.FailingSince, "percent_to_disabled", s.Warned)
		}
	}
}

// disable switches an endpoint off. If that fails now, its next failure tries
// again, and what is held meanwhile the chores release.
func (d *Deliverer) disable(ctx context.Context, guild, id, reason string) {
	err := d.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error { return disable(ctx, tx, guild, id, reason) })
	if err != nil {
		d.log.Error("disable webhook endpoint", "guild", guild, "endpoint", id, "error", err)
		return
	}
	d.log.Warn("webhook endpoint disabled", "guild", guild, "endpoint", id, "reason", reason)
}
