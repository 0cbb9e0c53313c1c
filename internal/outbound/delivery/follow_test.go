package delivery

import (
	"context"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
)

// The steps after a command change nothing of another endpoint of the guild, and the waiting
// deliveries of the other endpoint cause no further steps.
func TestWhatFollowsIsOfOneEndpoint(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	r := w.receive(nil)
	e, _ := w.add(w.guild, r.URL)
	other, _ := w.add(w.guild, r.URL)
	w.record(w.guild, 2)
	w.retryLater(e)
	w.retryLater(other)
	w.ping(other)
	before := w.stored(other)
	w.enable(e, false)
	w.follows(w.deliverer())
	if n := w.inState(StateHeld); n != 2 {
		t.Errorf("%d are held, want 2", n)
	}
	if n := w.count(`SELECT count(*) FROM webhook_schedule WHERE endpoint_id = $1 AND next_due IS NULL AND NOT urgent`, e.ID); n != 1 {
		t.Error("an endpoint with nothing left to hold is looked at again")
	}
	if after := w.stored(other); after != before {
		t.Errorf("the other endpoint is\n%s, was\n%s", after, before)
	}
	w.remove(e)
	w.follows(w.deliverer())
	const given = `SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = $1 AND state = 'failed' AND completed_at IS NOT NULL`
	if n := w.count(given, e.ID); n != 2 {
		t.Errorf("%d of 2 have failed at some instant", n)
	}
	if n := w.count(`SELECT count(*) FROM webhook_schedule WHERE endpoint_id = $1`, e.ID); n != 0 {
		t.Error("the schedule of a deleted endpoint is left")
	}
}

// Even if a whole chunk of deliveries is complete, the waiting deliveries behind them are found.
func TestWhatHasEndedHidesNothingThatWaits(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	w.record(w.guild, 1)
	w.retryLater(e)
	w.exec(`
		INSERT INTO webhook_deliveries (guild_id, endpoint_id, id, event_id, state, fresh, completed_at, created_at, due_at)
		SELECT d.guild_id, d.endpoint_id, '0' || i, d.event_id, 'delivered', false, now(),
		       d.created_at - interval '1 hour', now() + interval '30 minutes'
		FROM webhook_deliveries d, generate_series(1, $1) AS i`, chunk)
	d := w.deliverer()
	w.enable(e, false)
	w.enable(e, true)
	w.follows(d)
	if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE state = 'pending' AND due_at <= now()`); n != 1 {
		t.Error("it is not due though its endpoint was enabled")
	}
	w.enable(e, false)
	w.follows(d)
	if n := w.inState(StateHeld); n != 1 {
		t.Error("it is not held")
	}
	w.enable(e, true)
	w.follows(d)
	if n := w.inState(StatePending); n != 1 {
		t.Error("it is held though its endpoint was enabled")
	}
	w.enable(e, false)
	w.follows(d)
	w.remove(e)
	w.follows(d)
	if n := w.inState(StateFailed); n != 1 {
		t.Error("it is not given up though its endpoint was deleted")
	}
	if n := w.inState(StateDelivered); n != chunk {
		t.Errorf("%d of %d have arrived still", n, chunk)
	}
}

// A delivery that a worker is sending is held only after its lease has expired, because the result
// of the attempt would otherwise be lost. An urgent delivery that is no test is held at once.
func TestWhatIsBeingSentIsHeldAfterItsLease(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	w.record(w.guild, 3)
	for n, set := range []string{`urgent = true`, `lease_until = now() - interval '1 second'`, `lease_until = now() + interval '1 hour'`} {
		w.exec(`
			UPDATE webhook_deliveries
			SET fresh = false, `+set+`
			WHERE guild_id = $1 AND id = (SELECT id FROM webhook_deliveries WHERE guild_id = $1 ORDER BY id OFFSET $2 LIMIT 1)`, w.guild, n)
	}
	w.enable(e, false)
	d := w.deliverer()
	w.follows(d)
	if held, pending := w.inState(StateHeld), w.inState(StatePending); held != 2 || pending != 1 {
		t.Errorf("%d are held and %d pending, want the one that is being sent", held, pending)
	}
	w.exec(`UPDATE webhook_deliveries SET lease_until = now() WHERE lease_until IS NOT NULL`)
	w.exec(`UPDATE webhook_schedule SET next_due = now()`)
	w.follows(d)
	if n := w.inState(StateHeld); n != 3 {
		t.Errorf("%d are held after the lease, want 3", n)
	}
}

// waitsFor runs a statement in a unit of work and ends the unit of work when step waits for its
// lock; then step continues.
func (w *deliveryDB) waitsFor(step func(context.Context) error, statement string, args ...any) {
	w.t.Helper()
	ended := make(chan error, 1)
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, statement, args...); err != nil {
			return err
		}
		go func() { ended <- step(w.t.Context()) }()
		testutil.Eventually(w.t, "the step waits for the unit", func() bool { return dbtest.Waiting(w.t, w.DB) == 1 })
		return nil
	})
	if err := <-ended; err != nil {
		w.t.Fatal(err)
	}
}

// If a result is recorded between the search for waiting deliveries and their update, the delivery
// keeps the state of the result.
func TestAResultBetweenLookAndChangeStays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state string
		do    func(*deliveryDB, endpoint)
	}{
		"pending, disabled": {StatePending, func(w *deliveryDB, e endpoint) { w.enable(e, false) }},
		"pending, enabled":  {StatePending, func(w *deliveryDB, e endpoint) { w.enable(e, true) }},
		"pending, deleted":  {StatePending, (*deliveryDB).remove},
		"held, enabled":     {StateHeld, func(w *deliveryDB, e endpoint) { w.enable(e, true) }},
		"held, deleted":     {StateHeld, (*deliveryDB).remove},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newDeliveryDB(t)
			e, _ := w.add(w.guild, w.receive(nil).URL)
			w.record(w.guild, 1)
			w.retryLater(e)
			w.exec(`UPDATE webhook_deliveries SET state = $1`, c.state)
			c.do(w, e)
			w.waitsFor(w.deliverer().follow, `UPDATE webhook_deliveries SET state = 'delivered', step = 7, completed_at = now()`)
			if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE state = 'delivered' AND step = 7`); n != 1 {
				t.Errorf("what has arrived is %s", w.states())
			}
		})
	}
}

// An attempt that is stored in its delivery's own row while other attempts are moved to the log is
// moved after them.
func TestALineThatIsPutAsideMeanwhileIsMovedToo(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	w.add(w.guild, w.receive(nil).URL)
	w.record(w.guild, 1)
	const aside = `
		UPDATE webhook_deliveries
		SET unlogged = coalesce(unlogged, '[]') || ('{"guild_id": "' || guild_id || '", "id": "' || id || '", "lease_gen": ' || $1::text ||
		    ', "started_at": "2026-03-01T12:00:00Z", "duration_ms": 1, "outcome": "response", "status": 500}')::jsonb`
	w.exec(aside, "1")
	d := w.deliverer()
	w.waitsFor(d.moveLog, aside, "2")
	if err := d.moveLog(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.count(`SELECT count(*) FROM webhook_attempts`); n != 2 {
		t.Errorf("%d of 2 lines are in the log", n)
	}
	if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE unlogged IS NOT NULL`); n != 0 {
		t.Error("a line is left aside")
	}
}
