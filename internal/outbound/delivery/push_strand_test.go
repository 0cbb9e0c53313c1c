package delivery

import (
	"context"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/event"
)

// deliverer is one that nobody runs: the test calls its steps.
func (w *deliveryDB) deliverer() *Deliverer {
	w.t.Helper()
	d, err := New(w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// follows lets the states of what waits follow what was decided about it, which comes to
// an end.
func (w *deliveryDB) follows(d *Deliverer) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if err := d.follow(ctx); err != nil || ctx.Err() != nil {
		w.t.Fatal(err, ctx.Err())
	}
}

// retryLater makes what waits of an endpoint wait for an attempt an hour from now.
func (w *deliveryDB) retryLater(e endpoint) {
	w.t.Helper()
	w.exec(`UPDATE webhook_deliveries SET fresh = false, step = 5, attempts = 5, due_at = now() + interval '1 hour'
		WHERE endpoint_id = $1 AND state = 'pending'`, e.ID)
	w.exec(`UPDATE webhook_schedule SET next_due = now() + interval '1 hour' WHERE endpoint_id = $1`, e.ID)
}

func (w *deliveryDB) ping(e endpoint) {
	w.t.Helper()
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		_, err := Ping(ctx, tx, event.System(e.GuildID), e.ID)
		return err
	})
}

// A delivery that waits for a retry goes out when its endpoint is enabled, with the
// whole schedule before it, though the endpoint was enabled before it was held.
// RELIABILITY.md, Events.
func TestEnablingSendsWhatWasNotYetHeld(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	other, _ := w.add(w.guild, w.receive(nil).URL) // whose deliveries wait on
	d := w.deliverer()
	for about, held := range map[string]bool{"nothing was held yet": false, "a part was held": true} {
		w.exec(`DELETE FROM webhook_deliveries`)
		w.record(w.guild, 3)
		w.retryLater(e)
		w.retryLater(other)
		w.enable(e, false)
		if held {
			w.exec(`UPDATE webhook_deliveries SET state = 'held' WHERE id IN (SELECT min(id) FROM webhook_deliveries GROUP BY endpoint_id)`)
		}
		w.enable(e, true)
		w.exec(`UPDATE webhook_schedule SET next_due = now() + interval '1 hour'`) // a claim came between
		w.follows(d)
		if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE state = 'pending' AND step = 0 AND due_at <= now()`); n != 3 {
			t.Errorf("%s: %d of 3 are due, with the whole schedule before them", about, n)
		}
		if n := w.count(`SELECT count(*) FROM webhook_schedule WHERE NOT releasing AND next_due <= now()`); n != 1 {
			t.Errorf("%s: the endpoint is not due", about)
		}
	}
}

// A delivery that is due already when its endpoint is enabled keeps its instant and its
// place in the schedule.
func TestEnablingLeavesWhatIsDue(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	w.record(w.guild, 1)
	w.exec(`UPDATE webhook_deliveries SET fresh = false, step = 5, attempts = 5, due_at = now() - interval '1 hour'`)
	w.enable(e, false)
	w.enable(e, true)
	w.follows(w.deliverer())
	if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE step = 5 AND due_at < now() - interval '50 minutes'`); n != 1 {
		t.Error("what was due for an hour begins anew")
	}
}

// A chunk at a time, all of a backlog is due once its endpoint is enabled.
func TestEnablingSendsABacklogThatWasHalfHeld(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	const waiting = 2*chunk + 100
	w.record(w.guild, 1)
	w.exec(`
		INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, state)
		SELECT d.guild_id, d.endpoint_id, d.event_id, CASE WHEN i % 2 = 0 THEN 'held' ELSE 'pending' END
		FROM webhook_deliveries d, generate_series(1, $1) AS i`, waiting-1)
	w.retryLater(e)
	w.enable(e, true)
	w.follows(w.deliverer())
	if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE state = 'pending' AND due_at <= now()`); n != waiting {
		t.Errorf("%d of %d are due", n, waiting)
	}
}

// A claim that comes between a command and what follows from it undoes nothing of
// it: what waits is held or given up, and no schedule is left of a deleted endpoint.
// RELIABILITY.md, Events.
func TestAClaimUndoesNoCommand(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	claim := func(e endpoint) {
		w.unit(func(ctx context.Context, tx *db.Tx) error {
			w.claim(ctx, tx, e, 1)
			return nil
		})
	}
	d := w.deliverer()

	e, _ := w.add(w.guild, w.receive(nil).URL)
	w.record(w.guild, 1)
	w.retryLater(e)
	w.enable(e, false)
	w.ping(e)
	claim(e)
	w.follows(d)
	if n := w.inState(StateHeld); n != 1 {
		t.Errorf("%d of the deliveries of a disabled endpoint are held, want 1", n)
	}

	w.ping(e)
	w.remove(e)
	claim(e)
	w.exec(`UPDATE webhook_deliveries SET lease_until = now() WHERE lease_until IS NOT NULL`)
	claim(e)
	w.follows(d)
	if pending, held := w.inState(StatePending), w.inState(StateHeld); pending+held > 0 {
		t.Errorf("of a deleted endpoint %d are pending, %d held", pending, held)
	}
	if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE completed_at IS NULL OR error IS NULL`); n != 0 {
		t.Errorf("%d of a deleted endpoint do not say when and why they were given up", n)
	}
	if n := w.count(`SELECT count(*) FROM webhook_schedule`); n != 0 {
		t.Errorf("%d schedules are left of a deleted endpoint", n)
	}
}

// Deliveries that wait for a deleted endpoint are given up without a claim, though a test
// of it was to go out now.
func TestATestKeepsNothingOfADeletedEndpoint(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	w.record(w.guild, 1)
	w.ping(e)
	w.remove(e)
	w.follows(w.deliverer())
	if failed, schedules := w.inState(StateFailed), w.count(`SELECT count(*) FROM webhook_schedule`); failed != 2 || schedules != 0 {
		t.Errorf("%d of 2 deliveries are given up, and %d schedules are left", failed, schedules)
	}
}

// A test whose attempt was not made, or whose worker died, goes to a disabled
// endpoint after all.
func TestATestThatWasNotMadeIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	w.enable(e, false)
	w.ping(e)
	d := w.deliverer()
	var rows []claimed
	take := func() []claimed {
		w.unit(func(ctx context.Context, tx *db.Tx) error {
			rows = w.claim(ctx, tx, e, 1)
			return nil
		})
		return rows
	}
	if len(take()) != 1 {
		t.Fatalf("%d tests are claimed", len(rows))
	}
	c := rows[0]
	frozen := result{
		GuildID: c.GuildID, ID: c.ID, EndpointID: c.EndpointID, LeaseGen: c.LeaseGen, State: StatePending,
		decision: decision{State: StatePending},
	}
	if err := d.settles(t.Context(), []result{frozen}); err != nil {
		t.Fatal(err)
	}
	w.follows(d)
	if len(take()) != 1 {
		t.Error("a test that was not made waits for ever")
	}
	w.exec(`UPDATE webhook_schedule SET next_due = now()`)
	w.follows(d)
	if n := w.count(`SELECT count(*) FROM webhook_schedule WHERE urgent`); n != 0 {
		t.Error("a test that is being made is asked for at once")
	}
	w.exec(`UPDATE webhook_deliveries SET lease_until = now() - interval '1 s'`)
	w.follows(d)
	if take(); len(rows) == 0 {
		take()
	}
	if len(rows) != 1 {
		t.Error("a test whose worker died waits for ever")
	}
}

// The repair finds what no look finds: an endpoint without a schedule for which
// something is queued or held, one that is closed and due too late, and what is left
// of one that was deleted.
// RELIABILITY.md, Operation.
func TestTheRepairFindsWhatNothingLeadsTo(t *testing.T) {
	t.Parallel()
	for form, oneGuild := range map[string]bool{"plain": false, "a guild at a time": true} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			w := newDeliveryDB(t)
			w.cfg.OneGuild = oneGuild
			w.repairsWhatNothingLeadsTo()
		})
	}
}

func (w *deliveryDB) repairsWhatNothingLeadsTo() {
	r := w.receive(nil)
	queued, _ := w.add(w.guild, r.URL)
	held, _ := w.add(w.guild, r.URL)
	late, _ := w.add(w.guild, r.URL)
	gone, _ := w.add(w.guild, r.URL)
	orphan, _ := w.add(w.guild, r.URL)
	w.record(w.guild, 2)
	w.exec(`UPDATE webhook_deliveries SET fresh = false`)
	w.exec(`UPDATE webhook_deliveries SET state = 'held' WHERE endpoint_id IN ($1, $2, $3)`, held.ID, gone.ID, orphan.ID)
	w.exec(`DELETE FROM webhook_schedule WHERE endpoint_id IN ($1, $2)`, queued.ID, held.ID)
	w.exec(`UPDATE webhook_endpoints SET enabled = false WHERE id = $1`, late.ID)
	w.exec(`UPDATE webhook_deliveries SET due_at = now() + interval '1 hour' WHERE endpoint_id = $1`, late.ID)
	w.exec(`UPDATE webhook_schedule SET disposition = 'hold', next_due = now() + interval '1 hour' WHERE endpoint_id = $1`, late.ID)
	w.exec(`DELETE FROM webhook_endpoints WHERE id IN ($1, $2)`, gone.ID, orphan.ID)
	w.exec(`UPDATE webhook_schedule SET disposition = 'hold', next_due = NULL WHERE endpoint_id = $1`, orphan.ID)
	w.exec(`UPDATE webhook_schedule SET disposition = 'drop', urgent = true, next_due = NULL WHERE endpoint_id = $1`, gone.ID)
	w.start(w.cfg)
	of := func(e endpoint, state string) int {
		return w.count(`SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = $1 AND state = $2`, e.ID, state)
	}
	w.until("all follow", func() bool {
		return of(queued, StateDelivered) == 2 && of(held, StateDelivered) == 2 && of(late, StateHeld) == 2 &&
			of(gone, StateFailed) == 2 && of(orphan, StateFailed) == 2
	})
	w.until("nothing is left of the deleted endpoints", func() bool {
		return w.count(`SELECT count(*) FROM webhook_schedule WHERE endpoint_id IN ($1, $2)`, gone.ID, orphan.ID) == 0
	})
}

// The repair makes due what is due too late, and brings no attempt forward.
func TestTheRepairBringsNoAttemptForward(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	w.record(w.guild, 2)
	w.retryLater(e)
	w.exec(`UPDATE webhook_deliveries SET due_at = now() - interval '1 minute' WHERE id = (SELECT min(id) FROM webhook_deliveries)`)
	d := w.deliverer()
	if err := d.repair(t.Context(), &repairWalk{}); err != nil {
		t.Fatal(err)
	}
	w.follows(d)
	if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE due_at > now() + interval '50 minutes' AND step = 5`); n != 1 {
		t.Error("the repair brings an attempt forward that waits for its time")
	}
	if n := w.count(`SELECT count(*) FROM webhook_schedule WHERE next_due <= now() + interval '1 s'`); n != 1 {
		t.Error("the endpoint is not due")
	}
}

// The repair leaves alone what is true: an endpoint that waits for its time, whose
// deliveries are fresh, are being sent or have ended, or that is off with nothing to hold
// or with all held.
func TestTheRepairLeavesAloneWhatIsTrue(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	r := w.receive(nil)
	waiting, _ := w.add(w.guild, r.URL)
	fresh, _ := w.add(w.guild, r.URL)
	leased, _ := w.add(w.guild, r.URL)
	ended, _ := w.add(w.guild, r.URL)
	off, _ := w.add(w.guild, r.URL)
	holding, _ := w.add(w.guild, r.URL)
	w.enable(off, false)
	w.addPull(w.guild)
	w.record(w.guild, 2)
	w.enable(holding, false)
	w.exec(`UPDATE webhook_deliveries SET state = 'held', fresh = false WHERE endpoint_id = $1`, holding.ID)
	w.retryLater(waiting)
	w.exec(`UPDATE webhook_schedule SET next_due = (SELECT min(due_at) FROM webhook_deliveries WHERE endpoint_id = $1)
		WHERE endpoint_id = $1`, waiting.ID)
	w.exec(`UPDATE webhook_deliveries SET fresh = false, lease_until = now() + interval '10 s' WHERE endpoint_id = $1`, leased.ID)
	w.exec(`UPDATE webhook_deliveries SET fresh = false, state = 'delivered', completed_at = now() WHERE endpoint_id = $1`, ended.ID)
	w.exec(`UPDATE webhook_schedule SET next_due = NULL WHERE endpoint_id = ANY ($1)`,
		dbArray([]string{fresh.ID, leased.ID, ended.ID, off.ID, holding.ID}))
	schedules := func() string {
		return dbtest.Value[string](t, w.DB, `SELECT jsonb_agg(to_jsonb(s) ORDER BY endpoint_id)::text FROM webhook_schedule s`)
	}
	before := schedules()
	if err := w.deliverer().repair(t.Context(), &repairWalk{}); err != nil {
		t.Fatal(err)
	}
	if after := schedules(); after != before {
		t.Errorf("the repair changes\n%s into\n%s", before, after)
	}
}

// The repair goes on behind the endpoints that it has compared, however many there are.
func TestTheRepairWalksAllEndpoints(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	w.exec(`
		INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
		SELECT $1, '00' || i, 'https://receiver.test/', '{}', '', '' FROM generate_series(1, $2) AS i`, w.guild, chunk)
	w.exec(`INSERT INTO webhook_schedule (guild_id, endpoint_id) SELECT guild_id, id FROM webhook_endpoints`)
	last, _ := w.add(w.guild, w.receive(nil).URL)
	w.record(w.guild, 1)
	w.exec(`UPDATE webhook_deliveries SET fresh = false`)
	w.exec(`UPDATE webhook_schedule SET next_due = NULL`)
	d, walk := w.deliverer(), &repairWalk{}
	for range 2 {
		if err := d.repair(t.Context(), walk); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.count(`SELECT count(*) FROM webhook_schedule WHERE endpoint_id = $1 AND next_due <= now()`, last.ID); n != 1 {
		t.Error("the last endpoint is not reached")
	}
}

// A schedule is made for each endpoint without one for which something waits, behind however
// many others, and for none whose deliveries have all ended.
func TestStraysAreFoundBehindAnyNumberOfOthers(t *testing.T) {
	t.Parallel()
	for _, oneGuild := range []bool{false, true} {
		w := newDeliveryDB(t)
		w.cfg.OneGuild = oneGuild
		w.exec(`
			INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, fresh, state)
			SELECT $1, '00' || i, 'v', false, 'pending' FROM generate_series(1, $2) AS i`, w.guild, chunk)
		w.exec(`INSERT INTO webhook_schedule (guild_id, endpoint_id) SELECT guild_id, endpoint_id FROM webhook_deliveries`)
		ended, _ := w.add(w.guild, w.receive(nil).URL)
		waits, _ := w.add(w.guild, w.receive(nil).URL)
		w.record(w.guild, 1)
		w.exec(`UPDATE webhook_deliveries SET state = 'delivered', completed_at = now(), fresh = false WHERE endpoint_id = $1`, ended.ID)
		w.exec(`DELETE FROM webhook_schedule WHERE endpoint_id IN ($1, $2)`, ended.ID, waits.ID)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.deliverer().findStrays(ctx); err != nil {
			t.Error(err)
		}
		made := dbtest.Value[string](t, w.DB, `SELECT string_agg(endpoint_id, ' ') FROM webhook_schedule WHERE endpoint_id IN ($1, $2)`,
			ended.ID, waits.ID)
		if made != waits.ID {
			t.Errorf("a guild at a time: %v: schedules were made for %q, want %q", oneGuild, made, waits.ID)
		}
	}
}

// Looking for endpoints without a schedule reads an index entry or two of each, not
// its backlog.
func TestStraysAreFoundByAnIndex(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	for state, index := range map[string]string{StatePending: "webhook_deliveries_pending", StateHeld: "webhook_deliveries_held"} {
		plan := dbtest.Plan(t, w.DB, nextWaiting(state), "", "", chunk)
		if !strings.Contains(plan, index) || strings.Contains(plan, "Seq Scan") {
			t.Errorf("what is %s is not found by %s:\n%s", state, index, plan)
		}
	}
}

// A delivery that waits for a block or a quiet time to end goes out at once when the
// endpoint's address has changed.
func TestAChangedAddressIsCalledNow(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	w.record(w.guild, 1)
	w.exec(`UPDATE webhook_deliveries SET fresh = false`)
	w.exec(`UPDATE webhook_schedule SET quiet_until = now() + interval '1 hour', next_due = now() + interval '1 hour'`)
	w.unit(func(ctx context.Context, tx *db.Tx) error { return ResetHealth(ctx, tx, e.GuildID, e.ID) })
	if n := w.count(`SELECT count(*) FROM webhook_schedule WHERE next_due <= now() AND not_before IS NULL`); n != 1 {
		t.Error("the endpoint waits on")
	}
}

// An endpoint's updated_at only rises, also when the service switches it off.
func TestSwitchingAnEndpointOffAndOnRaisesItsInstant(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	r := w.receive(nil)
	twin, _ := w.add(w.guild, r.URL) // of the same address, and off already
	w.enable(twin, false)
	e, _ := w.add(w.guild, r.URL)
	d := w.deliverer()
	w.exec(`UPDATE webhook_endpoints SET updated_at = now() + interval '1 hour'`)
	instant := func() time.Time {
		return dbtest.Value[time.Time](t, w.DB, `SELECT updated_at FROM webhook_endpoints WHERE id = $1`, e.ID)
	}
	for last, i := instant(), 0; i < 2; i++ {
		if i == 0 {
			if off, err := d.disable(t.Context(), endpointID{e.GuildID, e.ID}, reasonFailing, e.URL); err != nil || !off {
				t.Fatalf("switched off: %v, %v", off, err)
			}
		} else {
			w.enable(e, true)
		}
		now := instant()
		if now.Sub(last) < time.Millisecond {
			t.Errorf("its instant goes from %s to %s", last, now)
		}
		last = now
	}
}
