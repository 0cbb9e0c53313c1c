package delivery

import (
	"context"
	"slices"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/outbound/egress"
	"guildhall/internal/outbound/event"
)

// deliverer returns a Deliverer that does not run: the test calls its steps.
func (w *deliveryDB) deliverer() *Deliverer {
	w.t.Helper()
	d, err := New(w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// follows updates the waiting deliveries after commands, and checks that this ends.
func (w *deliveryDB) follows(d *Deliverer) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if err := d.follow(ctx); err != nil || ctx.Err() != nil {
		w.t.Fatal(err, ctx.Err())
	}
}

// retryLater makes the waiting deliveries of an endpoint wait for an attempt an hour from now.
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

// A delivery that waits for a retry is sent when its endpoint is enabled, with a new retry
// schedule, even if the endpoint was enabled before the delivery was held. RELIABILITY.md, Events.
func TestEnablingSendsWhatWasNotYetHeld(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	other, _ := w.add(w.guild, w.receive(nil).URL) // its deliveries continue to wait
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
		w.exec(`UPDATE webhook_schedule SET next_due = now() + interval '1 hour'`) // a claim came in between
		w.follows(d)
		if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE state = 'pending' AND step = 0 AND due_at <= now()`); n != 3 {
			t.Errorf("%s: %d of 3 are due, with the whole schedule before them", about, n)
		}
		if n := w.count(`SELECT count(*) FROM webhook_schedule WHERE NOT releasing AND next_due <= now()`); n != 1 {
			t.Errorf("%s: the endpoint is not due", about)
		}
	}
}

// A delivery that is already due when its endpoint is enabled keeps its due time and its place in
// the retry schedule.
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

// After an endpoint is enabled, its whole backlog becomes due, one chunk at a time.
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

// A claim between a command and the update of the deliveries undoes nothing of the command: waiting
// deliveries are held or dropped, and a deleted endpoint has no schedule left. RELIABILITY.md,
// Events.
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

// Waiting deliveries of a deleted endpoint are dropped without a claim, even if the endpoint had an
// urgent test.
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

// A test whose attempt was not made, or whose worker died, is sent to a disabled endpoint after
// all.
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
	frozen := newResult(rows[0], decision{State: StatePending}, egress.Response{}, time.Now(), 0)
	if err := d.record(t.Context(), []result{frozen}); err != nil {
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

// FindStranded finds an endpoint without a schedule that has queued or held deliveries; a disabled
// endpoint that is due too late; the rest of a deleted endpoint; and an endpoint whose oldest
// delivery is due before its schedule. RELIABILITY.md, Operation.
func TestEndpointsWhoseDeliveriesNoWorkerFindsAreNamed(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	r := w.receive(nil)
	queued, _ := w.add(w.guild, r.URL)
	held, _ := w.add(w.guild, r.URL)
	late, _ := w.add(w.guild, r.URL)
	gone, _ := w.add(w.guild, r.URL)
	orphan, _ := w.add(w.guild, r.URL)
	early, _ := w.add(w.guild, r.URL)
	w.record(w.guild, 2)
	w.exec(`UPDATE webhook_deliveries SET fresh = false`)
	w.exec(`UPDATE webhook_schedule SET next_due = now() + interval '1 hour'`)
	w.exec(`UPDATE webhook_deliveries SET state = 'held' WHERE endpoint_id IN ($1, $2, $3)`, held.ID, gone.ID, orphan.ID)
	w.exec(`DELETE FROM webhook_schedule WHERE endpoint_id IN ($1, $2)`, queued.ID, held.ID)
	w.exec(`UPDATE webhook_endpoints SET enabled = false WHERE id = $1`, late.ID)
	w.exec(`UPDATE webhook_deliveries SET due_at = now() + interval '1 hour' WHERE endpoint_id = $1`, late.ID)
	w.exec(`UPDATE webhook_schedule SET disposition = 'hold' WHERE endpoint_id = $1`, late.ID)
	w.exec(`DELETE FROM webhook_endpoints WHERE id IN ($1, $2)`, gone.ID, orphan.ID)
	w.exec(`UPDATE webhook_schedule SET disposition = 'hold', next_due = NULL WHERE endpoint_id = $1`, orphan.ID)
	w.exec(`UPDATE webhook_schedule SET disposition = 'drop', urgent = true, next_due = NULL WHERE endpoint_id = $1`, gone.ID)
	found, err := FindStranded(t.Context(), w.DB.Reader(), 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []endpoint{queued, held, late, gone, orphan, early} {
		if !slices.Contains(found, Stranded{e.GuildID, e.ID}) {
			t.Errorf("endpoint %s is not named", e.ID)
		}
	}
	if few, err := FindStranded(t.Context(), w.DB.Reader(), 5); err != nil || len(few) != 5 || len(found) != 6 {
		t.Errorf("%d of %d are named, want 5 of 6; %v", len(few), len(found), err)
	}
}

// FindStranded does not report an endpoint that waits for its time or has a backlog; whose
// deliveries are fresh, being sent or complete; or that is disabled with nothing to hold or with
// all deliveries held.
func TestEndpointsWhoseDeliveriesAWorkerFindsAreNotNamed(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	r := w.receive(nil)
	waiting, _ := w.add(w.guild, r.URL)
	fresh, _ := w.add(w.guild, r.URL)
	leased, _ := w.add(w.guild, r.URL)
	ended, _ := w.add(w.guild, r.URL)
	off, _ := w.add(w.guild, r.URL)
	holding, _ := w.add(w.guild, r.URL)
	backlog, _ := w.add(w.guild, r.URL)
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
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		if n := len(w.claim(ctx, tx, backlog, 1)); n != 1 {
			t.Errorf("claimed %d", n)
		}
		return nil
	})
	if found, err := FindStranded(t.Context(), w.DB.Reader(), 100); err != nil || len(found) != 0 {
		t.Errorf("%v are named, %v", found, err)
	}
}
