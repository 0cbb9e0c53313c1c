package delivery

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/egress"
)

// recovers makes n events of an endpoint fail and recovers them.
func (w *deliveryDB) recovers(e endpoint, n int) {
	w.t.Helper()
	w.record(w.guild, n)
	w.exec(`UPDATE webhook_deliveries SET state = 'failed', completed_at = now(), fresh = false
		WHERE endpoint_id = $1 AND state = 'pending'`, e.ID)
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		got, err := Recover(ctx, tx, e.GuildID, e.ID, time.Now().Add(-time.Hour), n)
		if err == nil && got != n {
			err = fmt.Errorf("%d of %d are recovered", got, n)
		}
		return err
	})
}

// takes claims up to n deliveries of an endpoint, as a claim of d does.
func (w *deliveryDB) takes(d *Deliverer, e endpoint, n int) (rows []claimed) {
	w.t.Helper()
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		chosen := []*candidate{{GuildID: e.GuildID, EndpointID: e.ID, Known: true, take: n}}
		locked, err := lockIdle(ctx, tx, w.cfg.OneGuild, d.now(), chosen)
		if err != nil || len(locked) == 0 {
			return err
		}
		rows, err = d.takeLocked(ctx, tx, chosen, locked, time.Now())
		return err
	})
	for _, c := range rows {
		d.limiter.begin(c, time.Now())
	}
	return rows
}

// recordOutcome records the same outcome for each claimed delivery.
func (w *deliveryDB) recordOutcome(d *Deliverer, rows []claimed, o outcome, pause time.Duration) {
	w.t.Helper()
	var batch []result
	for _, c := range rows {
		v := d.schedule.judge(c.Step, o, pause, 0.5)
		d.limiter.end(c, v, time.Now())
		batch = append(batch, newResult(c, v, egress.Response{}, time.Now(), 0))
	}
	if err := d.record(w.t.Context(), batch); err != nil {
		w.t.Fatal(err)
	}
	d.limiter.recorded(batch)
}

// causes returns the kind of each delivery: a test, a redelivery, recovered, or an event.
func causes(rows []claimed) (list []string) {
	for _, c := range rows {
		switch {
		case c.Recovered:
			list = append(list, "recovered")
		default:
			list = append(list, c.Cause)
		}
	}
	slices.Sort(list)
	return list
}

// A test is sent first, then a redelivery; recovered and other deliveries alternate, however many
// were recovered. RELIABILITY.md, Events.
func TestWhatIsRecoveredTakesTurns(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	d := w.deliverer()
	w.recovers(e, 20)
	failed := dbtest.Value[string](t, w.DB, `SELECT min(id) FROM webhook_deliveries WHERE state = 'failed'`)
	w.exec(`UPDATE webhook_deliveries SET due_at = now() - interval '1 hour' WHERE id = $1`, failed)
	w.record(w.guild, 6)
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		_, err := Redeliver(ctx, tx, w.guild, e.ID, failed)
		return err
	})
	w.ping(e)

	order := make([][]string, 0, 8)
	for range 8 {
		rows := w.takes(d, e, 1)
		w.recordOutcome(d, rows, delivered, 0)
		order = append(order, causes(rows))
	}
	if got := fmt.Sprint(order[:2]); got != "[[test] [redelivery]]" {
		t.Errorf("first come %s", got)
	}
	recovered := 0
	for _, one := range order[2:] {
		if one[0] == "recovered" {
			recovered++
		}
	}
	if recovered != 3 {
		t.Errorf("of six sends %d are of what was recovered: %v", recovered, order[2:])
	}
	if got := fmt.Sprint(causes(w.takes(d, e, 4))); got != "[event event recovered recovered]" {
		t.Errorf("four at once are %s", got)
	}
	w.takes(d, e, 100)
	if n := w.count(`SELECT count(*) FROM webhook_schedule WHERE recovered_at IS NULL AND NOT recovered_passes AND NOT urgent`); n != 1 {
		t.Error("the endpoint still has something recovered when all of it is under way")
	}
}

// A recovered delivery ignores a block and a pause until a recovered delivery fails: a receiver
// that asks for a pause gets the pause. A test still ignores the pause, and so does the next
// recovery. RELIABILITY.md, Events.
func TestARecoveryObeysAfterItsFirstFailure(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	d := w.deliverer()
	w.exec(`UPDATE webhook_schedule SET failures = 9, blocks = 5, failing_since = now(), blocked_until = now() + interval '10 minutes'`)
	w.record(w.guild, 2)
	w.recovers(e, 8)
	w.record(w.guild, 2)
	rows := w.takes(d, e, 3)
	if got := fmt.Sprint(causes(rows)); got != "[recovered recovered recovered]" {
		t.Fatalf("past a block go %s", got)
	}
	w.recordOutcome(d, rows[:1], throttled, time.Hour)
	w.recordOutcome(d, rows[1:], throttled, time.Hour)
	for range 3 {
		if rows = w.takes(d, e, 3); len(rows) != 0 {
			t.Errorf("%v go while the receiver has asked for quiet", causes(rows))
		}
	}
	if n := w.count(`SELECT count(*) FROM webhook_schedule WHERE next_due > now() + interval '50 minutes' AND NOT urgent`); n != 1 {
		t.Error("the endpoint is not left alone")
	}
	w.ping(e)
	if got := fmt.Sprint(causes(w.takes(d, e, 3))); got != "[test]" {
		t.Errorf("past a quiet time go %s, want a test", got)
	}
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		_, err := Recover(ctx, tx, w.guild, e.ID, time.Now().Add(-time.Hour), 10)
		return err
	})
	rows = w.takes(d, e, 2)
	if got := fmt.Sprint(causes(rows)); got != "[recovered recovered]" {
		t.Errorf("after a second recovery go %s", got)
	}
}

// A claim of other deliveries does not read the 10,000 recovered deliveries before them: a claim
// reads only what it takes.
func TestAClaimReadsNoMoreOfARecoveryThanItTakes(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	w.recovers(e, 1)
	w.exec(`
		INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, cause, fresh, due_at)
		SELECT d.guild_id, d.endpoint_id, d.event_id, 'redelivery', false, d.due_at
		FROM webhook_deliveries d, generate_series(1, 10000)
		WHERE d.state = 'pending'`)
	w.record(w.guild, 5)
	w.exec(`ANALYZE`)
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		locked, err := lockIdle(ctx, tx, w.cfg.OneGuild, nil, []*candidate{{GuildID: e.GuildID, EndpointID: e.ID, Known: true}})
		if err != nil {
			return err
		}
		reading(ctx, t, tx, "taking four of them", 60, func() error {
			rows, err := take(ctx, tx, w.cfg.OneGuild, locked[0].Now, lease, []order{locked[0].order(4)})
			if got := fmt.Sprint(causes(rows)); got != "[event event recovered recovered]" {
				t.Errorf("claimed %s", got)
			}
			return err
		})
		return nil
	})
}

// For each endpoint, only its own newest delivery of an event decides whether the event is
// recovered; deliveries to other endpoints do not matter.
func TestAnotherEndpointsDeliveryRecoversNothing(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	r := w.receive(nil)
	lost, _ := w.add(w.guild, r.URL)
	got, _ := w.add(w.guild, r.URL)
	w.record(w.guild, 1)
	w.exec(`UPDATE webhook_deliveries SET state = 'failed', fresh = false, completed_at = now() WHERE endpoint_id = $1`, lost.ID)
	w.exec(`UPDATE webhook_deliveries SET state = 'delivered', fresh = false, completed_at = now(), created_at = now()
		WHERE endpoint_id = $1`, got.ID)
	since := time.Now().Add(-time.Hour)
	if n, err := CountLost(t.Context(), w.DB.Reader(), w.guild, lost.ID, since, 10); n != 1 || err != nil {
		t.Errorf("%d are lost, %v, want 1", n, err)
	}
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		n, err := Recover(ctx, tx, w.guild, lost.ID, since, 10)
		if n != 1 {
			t.Errorf("%d are recovered, want 1", n)
		}
		return err
	})
}
