package delivery

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/egress"
)

// Texts of the log about attempts to record results.
const (
	saysAside = "they are put aside"
	saysAgain = `msg="record results of webhook deliveries"`
	saysLost  = "could not be recorded"
)

// record records a batch, or fails.
func (d *Deliverer) record(ctx context.Context, batch []result) error {
	_, err := d.recordOnce(ctx, batch)
	return err
}

// log returns the log of the workers that are created later.
func (w *deliveryDB) log() *testutil.Log {
	log := &testutil.Log{}
	w.cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	return log
}

// taken returns claimed deliveries of an endpoint with a success each, and the log of their worker.
func (w *deliveryDB) taken(n int) (d *Deliverer, log *testutil.Log, batch []result) {
	w.t.Helper()
	log = w.log()
	e, _ := w.add(w.guild, w.receive(nil).URL)
	w.record(w.guild, n)
	d = w.deliverer()
	for _, c := range w.takes(d, e, n) {
		v := d.schedule.judge(c.Step, delivered, 0, 0)
		batch = append(batch, newResult(c, v, egress.Response{Status: 204}, time.Now(), time.Millisecond))
	}
	return d, log, batch
}

func (w *deliveryDB) logged(log *testutil.Log, text string, n int) {
	w.t.Helper()
	if said := strings.Count(log.String(), text); said != n {
		w.t.Errorf("the log says %d times %q, want %d:\n%s", said, text, n, log)
	}
}

// failing makes every write to the tables of deliveries fail until the returned statement is run.
// Each try takes a number of the sequence tries.
func (w *deliveryDB) failing() (mend string) {
	w.t.Helper()
	w.exec(`CREATE SEQUENCE tries MINVALUE 0 START 0`)
	w.exec(`CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM nextval('tries'); RAISE SQLSTATE '53100'; END $$`)
	w.exec(`CREATE TRIGGER full_disk BEFORE UPDATE ON webhook_deliveries FOR EACH STATEMENT EXECUTE FUNCTION full_disk()`)
	return `DROP TRIGGER full_disk ON webhook_deliveries`
}

func (w *deliveryDB) tries() int { return w.count(`SELECT last_value FROM tries`) + 1 }

// A batch is recorded as soon as Postgres accepts it again, and the log mentions the wait once.
// RELIABILITY.md, Events.
func TestABatchIsSettledUntilItIsWritten(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	d, log, batch := w.taken(2)
	mend, done := w.failing(), make(chan struct{})
	go func() {
		defer close(done)
		d.recordRetrying(t.Context(), batch)
	}()
	w.until("it is tried five times", func() bool { return w.tries() >= 5 })
	w.exec(mend)
	<-done
	if n := w.inState(StateDelivered); n != 2 {
		t.Errorf("it is not settled: %s", w.states())
	}
	w.logged(log, saysAgain, 1)
	w.logged(log, saysLost, 0)
}

// A worker that is stopping tries three times. RELIABILITY.md, Events.
func TestAWorkerThatEndsSettlesForAMomentOnly(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	d, log, batch := w.taken(2)
	w.failing()
	ended, end := context.WithCancel(t.Context())
	end()
	d.recordRetrying(ended, batch)
	if n := w.tries(); n != 3 {
		t.Errorf("it is tried %d times", n)
	}
	w.logged(log, saysLost, 1)
}

// If the log cannot be written, the attempts of the whole batch are stored in the deliveries' own
// rows. A row that makes even this fail is the only one that is not recorded; it is tried three
// times, and the others do not wait for it. RELIABILITY.md, Events.
func TestARowThatSpoilsABatchIsTheOnlyOneLeft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		broken            string
		delivered, asides int
	}{
		"the log": {`ALTER TABLE webhook_attempts ADD CONSTRAINT broken CHECK (number < 0) NOT VALID`, 3, 1},
		// Once for the batch, and once for each try of the row.
		"a row": {`ALTER TABLE webhook_deliveries ADD CONSTRAINT broken CHECK (id <> $1 OR state = 'pending') NOT VALID`, 2, 1 + 3},
	} {
		w := newDeliveryDB(t)
		d, log, batch := w.taken(3)
		w.exec(strings.ReplaceAll(c.broken, "$1", "'"+batch[1].ID+"'"))
		d.recordRetrying(t.Context(), batch)
		if n := w.inState(StateDelivered); n != c.delivered {
			t.Errorf("%s is broken: %s", name, w.states())
		}
		w.logged(log, saysAside, c.asides)
	}
}

// An endpoint that cannot be disabled delays only its own delivery. RELIABILITY.md, Events.
func TestAnEndpointThatCannotBeSwitchedOffHoldsNoOthers(t *testing.T) {
	t.Parallel()
	for name, locked := range map[string]bool{"its lock is another's": true, "the log refuses it": false} {
		w := newDeliveryDB(t)
		dead, _ := w.add(w.guild, "https://gone.example/")
		w.record(w.guild, 1)
		d, _, batch := w.taken(2)
		for _, c := range w.takes(d, dead, 1) {
			batch = slices.Insert(batch, 1, newResult(c, d.schedule.judge(c.Step, gone, 0, 0), egress.Response{Status: 410}, time.Now(), 0))
		}
		settle := func() (left []result, err error) { return d.recordOnce(t.Context(), batch) }
		var left []result
		var err error
		if locked {
			w.unit(func(ctx context.Context, tx *db.Tx) error {
				const held = `SELECT FROM webhook_endpoints WHERE guild_id = $1 AND id = $2 FOR UPDATE`
				if _, err := tx.ExecContext(ctx, held, w.guild, dead.ID); err != nil {
					return err
				}
				left, err = settle()
				return nil
			})
		} else {
			w.exec(`ALTER TABLE audit_log ADD CONSTRAINT broken CHECK (action <> 'webhook.disabled') NOT VALID`)
			left, err = settle()
			w.exec(`ALTER TABLE audit_log DROP CONSTRAINT broken`)
		}
		if n := w.inState(StateDelivered); n != 2 || err == nil || len(left) != 1 || left[0].id().endpoint != dead.ID {
			t.Errorf("%s: %d delivered, %d left, %v", name, n, len(left), err)
		}
		batch = left
		if left, err = settle(); err != nil || len(left) > 0 || w.inState(StateHeld) != 1 {
			t.Errorf("%s: afterwards %s, %v", name, w.states(), err)
		}
	}
}

// An endpoint that is already disabled is not disabled again.
func TestAnEndpointIsSwitchedOffOnce(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	log := w.log()
	e, _ := w.add(w.guild, "https://gone.example/")
	d := w.deliverer()
	for range 2 {
		off, err := d.disable(t.Context(), endpointID{e.GuildID, e.ID}, reasonGone, e.URL)
		if err != nil || !off {
			t.Fatalf("it is off: %v, %v", off, err)
		}
		w.logged(log, "webhook endpoint disabled", 1)
		if n := w.count(`SELECT count(*) FROM audit_log`); n != 1 {
			t.Errorf("the audit log has %d lines", n)
		}
	}
	if off, err := d.disable(t.Context(), endpointID{e.GuildID, e.ID}, reasonGone, "https://new.example/"); err != nil || off {
		t.Errorf("an endpoint that has moved is off: %v, %v", off, err)
	}
	w.logged(log, "webhook endpoint disabled", 1)
}

// Recovered deliveries ignore a block until one of them fails.
func TestOnlyARecoveredFailureEndsThePassOfTheRecovered(t *testing.T) {
	t.Parallel()
	queued, other := time.Now(), time.Now().Add(-time.Hour)
	for name, c := range map[string]struct {
		queued, of *time.Time
		passes     bool
	}{
		"one of it":               {&queued, &queued, false},
		"one of an earlier queue": {&queued, &other, true},
		"one that was not in it":  {&queued, nil, true},
		"one after it has ended":  {nil, &queued, true},
		"one where none was":      {nil, nil, true},
	} {
		s := schedule{Disposition: "send", Passes: true, RecoveredAt: c.queued, Now: time.Now()}
		r := result{State: StatePending, recoveredAt: c.of, decision: decision{State: StatePending, Outcome: serverError, Failing: true}}
		if got := s.learn([]result{r}); got.Passes != c.passes {
			t.Errorf("%s fails: the rest passes %t, want %t", name, got.Passes, c.passes)
		}
	}
}

// When a retry of an endpoint that answers is due soon, the claim loop is woken at that time.
func TestARetryThatIsDueSoonRings(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	d := w.deliverer()
	results := map[string]result{}
	for guild, c := range map[string]struct {
		state string
		pause time.Duration
		fails bool
	}{
		"soon": {StatePending, time.Millisecond, false}, "at last": {StatePending, 2 * time.Millisecond, false},
		"settled": {StateDelivered, time.Millisecond, false}, "failing": {StatePending, time.Millisecond, true},
	} {
		id := endpointID{guild, "e"}
		d.limiter.endpoints[id] = &sends{failing: c.fails, hung: c.fails, succeeded: time.Now()}
		results[guild] = result{GuildID: id.guild, EndpointID: id.endpoint, State: c.state, decision: decision{Pause: c.pause}}
	}
	for _, guild := range []string{"soon", "settled", "failing", "at last"} {
		d.remind([]result{results[guild]})
	}
	woken := func(guild string) bool {
		d.wakeups.mu.Lock()
		defer d.wakeups.mu.Unlock()
		return d.wakeups.guilds[guild]
	}
	w.until("both were woken", func() bool { return woken("soon") && woken("at last") })
	if woken("settled") || woken("failing") {
		t.Errorf("%v were woken", d.wakeups.guilds)
	}
}

// The due time of an endpoint follows from its results in their order.
func TestAnEndpointIsDueAsItsResultsSay(t *testing.T) {
	t.Parallel()
	now := time.Now()
	in := func(d time.Duration) *time.Time { t := now.Add(d); return &t }
	retry := func(pause time.Duration, quiet time.Duration, logged bool) result {
		v := decision{State: StatePending, Failing: true, Quiet: quiet, Outcome: serverError}
		return result{State: StatePending, PauseMs: pause.Milliseconds(), Logged: logged, decision: v}
	}
	well := result{State: StateDelivered, decision: decision{State: StateDelivered, Healthy: true}}
	blocked, held := health{BlockedUntil: in(time.Hour)}, result{State: StateHeld, decision: decision{State: StateHeld}}
	soon, minute, hour := in(time.Second), in(time.Minute), in(time.Hour)
	later := retry(time.Minute, 0, true)
	for name, c := range map[string]struct {
		is        schedule
		results   []result
		due       *time.Time
		releasing bool
	}{
		"a success":                               {schedule{}, []result{well}, nil, false},
		"a retry":                                 {schedule{}, []result{later}, minute, false},
		"a retry before another":                  {schedule{NextDue: hour}, []result{later}, minute, false},
		"a retry after another":                   {schedule{NextDue: soon}, []result{later}, soon, false},
		"a success before a retry":                {schedule{NextDue: hour}, []result{well}, hour, false},
		"what was not sent":                       {schedule{}, []result{retry(time.Minute, 0, false)}, in(0), false},
		"what was not sent, and asked for quiet":  {schedule{}, []result{retry(time.Minute, time.Second, false)}, minute, false},
		"of two, one was not sent":                {schedule{}, []result{retry(time.Minute, 0, false), later}, in(0), false},
		"a retry of a disabled endpoint":          {schedule{Disposition: "hold"}, []result{later}, in(0), false},
		"a success that ends a block":             {schedule{NextDue: hour, health: blocked}, []result{well}, in(0), false},
		"a retry while blocked":                   {schedule{NextDue: soon, health: blocked}, []result{later}, hour, false},
		"a retry while blocked, and a test waits": {schedule{NextDue: soon, Urgent: true, health: blocked}, []result{later}, soon, false},
		"held though it is enabled":               {schedule{}, []result{held}, nil, true},
		"held":                                    {schedule{Disposition: "hold"}, []result{held}, nil, false},
		"of another endpoint":                     {schedule{EndpointID: "e"}, []result{later}, nil, false},
	} {
		c.is.Now, c.is.Disposition = now, cmp.Or(c.is.Disposition, "send")
		got := c.is.learn(c.results)
		if !reflect.DeepEqual(got.NextDue, c.due) || got.Releasing != c.releasing {
			t.Errorf("%s: due %v, want %v; released %t, want %t", name, got.NextDue, c.due, got.Releasing, c.releasing)
		}
	}
}

// An order says which deliveries of an endpoint a claim may take.
func TestAnOrderSaysWhatMayBeTaken(t *testing.T) {
	t.Parallel()
	now := time.Now()
	later := now.Add(time.Hour)
	for name, c := range map[string]struct {
		recovered, passes, urgent, waits bool
		mode                             string
		take                             int
	}{
		"nothing special":                          {mode: takeAll, take: 5},
		"a test waits":                             {urgent: true, mode: takeUrgent, take: 5},
		"blocked":                                  {waits: true, mode: takeAll, take: 0},
		"blocked, and a test waits":                {urgent: true, waits: true, mode: takeUrgent, take: 5},
		"recovered":                                {recovered: true, mode: takeTurns, take: 5},
		"recovered, and a test waits":              {recovered: true, urgent: true, mode: takeUrgent, take: 5},
		"recovered, blocked":                       {recovered: true, waits: true, mode: takeAll, take: 0},
		"recovered, passing":                       {recovered: true, passes: true, mode: takeTurns, take: 5},
		"recovered, passing, and a test waits":     {recovered: true, passes: true, urgent: true, mode: takeTurns, take: 5},
		"recovered, passing a block":               {recovered: true, passes: true, waits: true, mode: takePassed, take: 5},
		"none recovered, but they would pass":      {passes: true, mode: takeAll, take: 5},
		"blocked, none recovered that would pass":  {passes: true, waits: true, mode: takeAll, take: 0},
		"recovered, blocked, and a test waits":     {recovered: true, urgent: true, waits: true, mode: takeUrgent, take: 5},
		"recovered, passing a block, a test waits": {recovered: true, passes: true, urgent: true, waits: true, mode: takePassed, take: 5},
	} {
		s := schedule{Disposition: "send", Urgent: c.urgent, Passes: c.passes, Now: now}
		if c.recovered {
			s.RecoveredAt = &now
		}
		if c.waits {
			s.QuietUntil = &later
		}
		if o := s.order(5); o.Mode != c.mode || o.Take != c.take || (o.NotBefore != nil) != c.waits {
			t.Errorf("%s: takes %d of %q, want %d of %q; not before %v", name, o.Take, o.Mode, c.take, c.mode, o.NotBefore)
		}
	}
}

// If an endpoint was granted no slot although its delivery should be sent at once, the next claim
// polls the endpoint again.
func TestWhoWasLeftOutIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	d, now := newDeliveryDB(t).deliverer(), time.Now()
	var waiting []*candidate
	want := map[string]bool{"urgent": true, "woken": true}
	for guild, c := range map[string]struct {
		candidate
		busy, hung bool
	}{
		"urgent":         {candidate: candidate{Known: true, Lane: laneUrgent}, hung: true},
		"urgent, served": {candidate: candidate{Known: true, Lane: laneUrgent, take: 1}},
		"closed":         {candidate: candidate{Known: true, Lane: laneClosed, Woken: true}},
		"woken":          {candidate: candidate{Known: true, Lane: laneFailing, Woken: true}},
		"woken, busy":    {candidate: candidate{Known: true, Lane: laneFailing, Woken: true}, busy: true},
		"woken, hung":    {candidate: candidate{Known: true, Lane: laneFailing, Woken: true}, hung: true},
		"not woken":      {candidate: candidate{Known: true, Lane: laneFailing}},
	} {
		c.GuildID, c.EndpointID = guild, "e"
		sent := &sends{failing: c.hung, hung: c.hung, succeeded: now}
		if c.busy {
			sent.begun = map[string]time.Time{"d": now}
		}
		d.limiter.endpoints[c.id()] = sent
		waiting = append(waiting, &c.candidate)
	}
	got := make(map[string]bool)
	for _, guild := range d.leftOut(waiting, now) {
		got[guild] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v are looked at again, want %v", got, want)
	}
}

// While guilds are woken all the time, every second poll is of everything.
func TestALookAtEverythingTakesItsTurn(t *testing.T) {
	t.Parallel()
	d := newDeliveryDB(t).deliverer()
	for i, want := range []struct{ named, all bool }{{true, false}, {true, true}, {true, false}, {false, true}} {
		if want.named {
			d.wakeups.add("1")
		}
		d.wakeups.addAll()
		if guilds, all := d.callers(); len(guilds) > 0 != want.named || all != want.all {
			t.Errorf("%d: looks at %v, at everything %t", i, guilds, all)
		}
	}
}
