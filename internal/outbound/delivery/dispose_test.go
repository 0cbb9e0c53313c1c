package delivery

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/event"
)

// Disabling, enabling and deleting an endpoint change no delivery in the unit of work of the
// request, however many deliveries are waiting; all deliveries follow later. RELIABILITY.md,
// Events.
func TestABacklogOfAnySizeIsDisposedOfAtOnce(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	const waiting = 3000
	r := w.receive(nil)
	e, _ := w.add(w.guild, r.URL)
	w.record(w.guild, 1)
	w.exec(`
		INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, fresh, due_at)
		SELECT d.guild_id, d.endpoint_id, d.event_id, false, now() + interval '1 hour'
		FROM webhook_deliveries d, generate_series(1, $1)`, waiting-1)
	w.exec(`UPDATE webhook_schedule SET next_due = now()`)
	touched := func(do func(ctx context.Context, tx *db.Tx) error) {
		t.Helper()
		w.unit(func(ctx context.Context, tx *db.Tx) error {
			seen := func() (n int) {
				err := tx.GetContext(ctx, &n, `
					SELECT coalesce(sum(n_tup_upd + n_tup_del + idx_tup_fetch), 0)
					FROM pg_stat_xact_user_tables
					WHERE relname = 'webhook_deliveries'`)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			before := seen()
			err := do(ctx, tx)
			if n := seen() - before; n > 0 {
				t.Errorf("the unit touches %d deliveries", n)
			}
			return err
		})
	}
	w.start(w.cfg)
	w.until("the fresh one is delivered", func() bool { return w.inState(StateDelivered) == 1 })
	touched(func(ctx context.Context, tx *db.Tx) error { return Disable(ctx, tx, w.guild, e.ID, "") })
	w.until("all are held", func() bool { return w.inState(StateHeld) == waiting-1 })
	touched(func(ctx context.Context, tx *db.Tx) error { return Enable(ctx, tx, w.guild, e.ID) })
	w.until("some are released", func() bool { return w.inState(StateDelivered) > 1 })
	touched(func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM webhook_endpoints WHERE guild_id = $1 AND id = $2`, w.guild, e.ID); err != nil {
			return err
		}
		return Forget(ctx, tx, w.guild, e.ID)
	})
	w.until("the rest is given up", func() bool { return w.inState(StatePending)+w.inState(StateHeld) == 0 })
	w.until("nothing is left of the schedule", func() bool { return w.count(`SELECT count(*) FROM webhook_schedule`) == 0 })
	if n := w.inState(StateDelivered) + w.inState(StateFailed); n != waiting {
		t.Errorf("%d of %d deliveries are accounted for", n, waiting)
	}
}

// After a unit of work that disables an endpoint has committed, no node starts a send to the
// endpoint. RELIABILITY.md, Events.
func TestNoSendBeginsAfterTheAnswer(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	r := w.receive(func(http.ResponseWriter, *http.Request) {})
	e, _ := w.add(w.guild, r.URL)
	w.start(w.cfg)
	other, _ := w.start(w.cfg)
	for range 20 {
		w.record(w.guild, 30)
		other.Wake(w.guild)
		before := len(r.got())
		w.until("sends are under way", func() bool { return len(r.got()) > before })
		w.enable(e, false)
		answered := time.Now()
		w.until("what waits is held", func() bool { return w.inState(StatePending) == 0 })
		if n := w.count(`SELECT count(*) FROM webhook_attempts WHERE started_at > $1`, answered); n != 0 {
			t.Errorf("%d attempts began after the endpoint was disabled", n)
		}
		w.enable(e, true)
		w.until("everything arrives", func() bool { return w.inState(StateHeld)+w.inState(StatePending) == 0 })
	}
}

// Tests and redeliveries ignore a block and the order of the queue, and their success makes the
// endpoint healthy. For a disabled endpoint, a test is sent and a redelivery is held.
// RELIABILITY.md, Events.
func TestUrgentDeliveriesGoOutNow(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	r := w.receive(nil)
	e, _ := w.add(w.guild, r.URL)
	d, _ := w.start(w.cfg)
	w.record(w.guild, 1)
	w.until("the first is delivered", func() bool { return w.inState(StateDelivered) == 1 })
	first := dbtest.Value[string](t, w.DB, `SELECT id FROM webhook_deliveries`)
	block := func() {
		w.exec(`UPDATE webhook_schedule SET failures = 9, blocks = 5, failing_since = now(), blocked_until = now() + interval '10 minutes',
			quiet_until = now() + interval '1 day'`)
	}
	well := func() bool {
		return w.count(`SELECT count(*) FROM webhook_schedule WHERE failures = 0 AND failing_since IS NULL AND not_before IS NULL`) == 1
	}
	block()
	w.record(w.guild, 200)
	d.wakeAll()
	w.until("the others are queued", func() bool { return w.count(`SELECT count(*) FROM webhook_deliveries WHERE fresh`) == 0 })
	var again string
	w.unit(func(ctx context.Context, tx *db.Tx) (err error) {
		again, err = Redeliver(ctx, tx, w.guild, e.ID, first)
		return err
	})
	w.until("the redelivery is the first to arrive", func() bool {
		return w.count(`SELECT count(*) FROM webhook_deliveries WHERE id = $1 AND state = 'delivered'`, again) == 1
	})
	w.until("the endpoint is well", well)
	w.until("the others arrive", func() bool { return w.inState(StateDelivered) == 202 })

	w.enable(e, false)
	w.unit(func(ctx context.Context, tx *db.Tx) (err error) {
		again, err = Redeliver(ctx, tx, w.guild, e.ID, first)
		return err
	})
	var ping string
	w.unit(func(ctx context.Context, tx *db.Tx) (err error) {
		ping, err = Ping(ctx, tx, event.System(w.guild), e.ID)
		return err
	})
	w.until("the test arrives", func() bool {
		return w.count(`SELECT count(*) FROM webhook_deliveries WHERE id = $1 AND state = 'delivered'`, ping) == 1
	})
	if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE id = $1 AND state = 'held'`, again); n != 1 {
		t.Error("the redelivery to a disabled endpoint is not held")
	}
}

// No further delivery is stored for an event that is about to be deleted, because the delivery
// would remain without its event.
func TestNothingIsRedeliveredOfWhatIsAboutToGo(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, "https://receiver.test/")
	w.record(w.guild, 1)
	first := dbtest.Value[string](t, w.DB, `SELECT id FROM webhook_deliveries`)
	for age, want := range map[time.Duration]error{
		keep - lastCall - time.Minute: nil,
		keep - lastCall + time.Minute: noSuchDelivery,
	} {
		w.exec(`UPDATE webhook_events SET occurred_at = now() - $1 * interval '1 second'`, age.Seconds())
		err := w.DB.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, err := Redeliver(ctx, tx, w.guild, e.ID, first)
			return err
		})
		if !errors.Is(err, want) {
			t.Errorf("of an event %s old: %v, want %v", age, err, want)
		}
	}
}

// Recover does not queue an event whose retention has ended.
func TestNothingIsRecoveredOfWhatIsOver(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, "https://receiver.test/")
	w.record(w.guild, 2)
	w.exec(`UPDATE webhook_deliveries SET fresh = false, state = 'failed', completed_at = now()`)
	w.exec(`UPDATE webhook_events SET occurred_at = now() - $1 * interval '1 second'`, (keep - time.Minute).Seconds())
	w.exec(`UPDATE webhook_events SET occurred_at = now() - $1 * interval '1 second' WHERE id = (SELECT min(id) FROM webhook_events)`,
		(keep + time.Minute).Seconds())
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		n, err := Recover(ctx, tx, w.guild, e.ID, time.Now().Add(-time.Hour), 10)
		if n != 1 {
			t.Errorf("%d are recovered, want that of the younger event", n)
		}
		return err
	})
}

// Recover queues each event once if the newest delivery of the event has failed. RELIABILITY.md,
// Events.
func TestRecoverQueuesWhatHasFailed(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	r := w.receive(nil)
	e, _ := w.add(w.guild, r.URL)
	w.record(w.guild, 3)
	w.exec(`UPDATE webhook_deliveries SET state = 'failed', completed_at = now(), fresh = false`)
	since := time.Now().Add(-time.Hour)
	recovered := func() (n int) {
		w.unit(func(ctx context.Context, tx *db.Tx) (err error) {
			n, err = Recover(ctx, tx, w.guild, e.ID, since, 2)
			return err
		})
		return n
	}
	if a, b, c := recovered(), recovered(), recovered(); a != 2 || b != 1 || c != 0 {
		t.Errorf("recovered %d, %d, %d of three, two at a time", a, b, c)
	}
	w.start(w.cfg)
	w.until("all arrive", func() bool { return r.distinct() == 3 && w.inState(StateDelivered) == 3 })
	if n := recovered(); n != 0 {
		t.Errorf("recovered %d that have arrived", n)
	}
}
