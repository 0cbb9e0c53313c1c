package delivery

import (
	"context"
	"errors"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/event"
)

// A command changes its own endpoint and schedule, and no other endpoint of the guild, whatever
// state they are in. A command that asks for the current state changes nothing.
func TestACommandIsOfOneEndpoint(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	ours, _ := w.add(w.guild, w.receive(nil).URL)
	on, _ := w.add(w.guild, w.receive(nil).URL)
	off, _ := w.add(w.guild, w.receive(nil).URL)
	pull := w.addPull(w.guild)
	w.record(w.guild, 1)
	w.exec(`UPDATE webhook_deliveries SET fresh = false, state = 'failed', completed_at = now()`)
	w.unit(func(ctx context.Context, tx *db.Tx) error { return Disable(ctx, tx, w.guild, off.ID, reasonFailing) })
	w.exec(`UPDATE webhook_schedule SET failures = 2, failing_since = now(), next_due = now() + interval '1 hour' WHERE disposition = 'send'`)
	state := func(condition string) string {
		return dbtest.Value[string](t, w.DB, `
			SELECT string_agg(to_jsonb(e)::text || to_jsonb(s)::text, ' ' ORDER BY e.id)
			FROM webhook_endpoints e
			JOIN webhook_schedule s ON s.guild_id = e.guild_id AND s.endpoint_id = e.id
			WHERE e.guild_id = $1 AND `+condition, w.guild, ours.ID)
	}
	rest := state(`e.id <> $2`)
	for _, command := range []struct {
		name string
		do   func(ctx context.Context, tx *db.Tx) error
	}{
		{"recover what is younger", func(ctx context.Context, tx *db.Tx) error {
			n, err := Recover(ctx, tx, w.guild, ours.ID, time.Now().Add(time.Hour), 10)
			if n != 0 {
				t.Errorf("%d are recovered that were made before", n)
			}
			return err
		}},
		{"reset", func(ctx context.Context, tx *db.Tx) error { return ResetHealth(ctx, tx, w.guild, ours.ID) }},
		{"ping", func(ctx context.Context, tx *db.Tx) error {
			_, err := Ping(ctx, tx, event.System(w.guild), ours.ID)
			return err
		}},
		{"recover", func(ctx context.Context, tx *db.Tx) error {
			n, err := Recover(ctx, tx, w.guild, ours.ID, time.Now().Add(-time.Hour), 10)
			if n != 1 {
				t.Errorf("%d are recovered, want that of the endpoint", n)
			}
			return err
		}},
		{"disable", func(ctx context.Context, tx *db.Tx) error { return Disable(ctx, tx, w.guild, ours.ID, reasonFailing) }},
		{"enable", func(ctx context.Context, tx *db.Tx) error { return Enable(ctx, tx, w.guild, ours.ID) }},
		{"forget", func(ctx context.Context, tx *db.Tx) error { return Forget(ctx, tx, w.guild, ours.ID) }},
	} {
		w.unit(command.do)
		if got := state(`e.id <> $2`); got != rest {
			t.Fatalf("%s changes another endpoint:\n%s\nwas\n%s", command.name, got, rest)
		}
	}
	endpointOf := func(id string) string {
		return dbtest.Value[string](t, w.DB, `SELECT to_jsonb(e)::text FROM webhook_endpoints e WHERE guild_id = $1 AND id = $2`, w.guild, id)
	}
	before := endpointOf(off.ID)
	w.unit(func(ctx context.Context, tx *db.Tx) error { return Disable(ctx, tx, w.guild, off.ID, "") })
	if got := endpointOf(off.ID); got != before {
		t.Errorf("what is off is disabled: %s, was %s", got, before)
	}
	for _, id := range []string{on.ID, pull.ID} {
		before := endpointOf(id)
		w.unit(func(ctx context.Context, tx *db.Tx) error { return Enable(ctx, tx, w.guild, id) })
		if got := endpointOf(id); got != before {
			t.Errorf("what is on is enabled: %s, was %s", got, before)
		}
	}
}

// A new schedule has the disposition that follows from its endpoint, whether a command or a claim
// creates the schedule; the schedule of a pull endpoint is never due.
func TestASchedulesBeginning(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	push, _ := w.add(w.guild, w.receive(nil).URL)
	off, _ := w.add(w.guild, w.receive(nil).URL)
	w.exec(`UPDATE webhook_endpoints SET enabled = false WHERE id = $1`, off.ID)
	pull := w.addPull(w.guild)
	due := func(evenDisabled bool) func(ctx context.Context, tx *db.Tx, id string) error {
		return func(ctx context.Context, tx *db.Tx, id string) error {
			_, err := makeDue(ctx, tx, w.guild, id, evenDisabled)
			return err
		}
	}
	schedule := func(id string) string {
		return dbtest.Value[string](t, w.DB, `
			SELECT concat_ws(' ', disposition, CASE WHEN next_due IS NOT NULL THEN 'due' END, CASE WHEN urgent THEN 'urgent' END,
			       CASE WHEN fetched_at IS NOT NULL THEN 'fetched' END, CASE WHEN complete_since IS NOT NULL THEN 'complete' END,
			       CASE WHEN recovered_at IS NOT NULL THEN 'recovers' END)
			FROM webhook_schedule WHERE guild_id = $1 AND endpoint_id = $2`, w.guild, id)
	}
	for _, c := range []struct {
		of     endpoint
		make   func(ctx context.Context, tx *db.Tx, id string) error
		before bool // the schedule exists already
		want   string
	}{
		{push, due(false), false, "send due urgent"},
		{push, func(ctx context.Context, tx *db.Tx, id string) error {
			return Register(ctx, tx, w.guild, id, true, false)
		}, false, "send"},
		{push, func(ctx context.Context, tx *db.Tx, id string) error {
			return Register(ctx, tx, w.guild, id, false, false)
		}, false, "hold"},
		{pull, func(ctx context.Context, tx *db.Tx, id string) error {
			return Register(ctx, tx, w.guild, id, true, true)
		}, false, "pull fetched"},
		{pull, func(ctx context.Context, tx *db.Tx, id string) error { return Enable(ctx, tx, w.guild, id) }, false, "pull fetched"},
		{pull, func(ctx context.Context, tx *db.Tx, id string) error { return ResetHealth(ctx, tx, w.guild, id) }, true, "pull fetched"},
		{pull, func(ctx context.Context, tx *db.Tx, id string) error {
			_, err := Recover(ctx, tx, w.guild, id, time.Now(), 1)
			return err
		}, true, "pull fetched"},
		{push, func(ctx context.Context, tx *db.Tx, id string) error { return Enable(ctx, tx, w.guild, id) }, false, "send due"},
		{push, func(ctx context.Context, tx *db.Tx, id string) error {
			if _, err := Ping(ctx, tx, event.System(w.guild), id); err != nil {
				return err
			}
			return Disable(ctx, tx, w.guild, id, "")
		}, true, "hold due urgent"},
		{push, func(ctx context.Context, tx *db.Tx, id string) error { return Forget(ctx, tx, w.guild, id) }, true, "drop due"},
		{pull, due(false), false, "pull"},
		{off, due(false), false, "hold due"},
		{off, due(false), true, "hold due"},
		{off, due(true), false, "hold due urgent"},
	} {
		if !c.before {
			w.exec(`DELETE FROM webhook_schedule WHERE guild_id = $1 AND endpoint_id = $2`, w.guild, c.of.ID)
		}
		w.unit(func(ctx context.Context, tx *db.Tx) error { return c.make(ctx, tx, c.of.ID) })
		if got := schedule(c.of.ID); got != c.want {
			t.Errorf("the schedule is %q, want %q", got, c.want)
		}
	}
}

// A redelivery goes to the endpoint of the delivery, and is urgent if the endpoint is enabled.
func TestADeliveryIsRedeliveredToItsEndpoint(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	push, _ := w.add(w.guild, w.receive(nil).URL)
	other, _ := w.add(w.guild, w.receive(nil).URL)
	pull := w.addPull(w.guild)
	w.record(w.guild, 1)
	of := func(e endpoint) string {
		return dbtest.Value[string](t, w.DB, `SELECT min(id) FROM webhook_deliveries WHERE guild_id = $1 AND endpoint_id = $2`, w.guild, e.ID)
	}
	for _, e := range []endpoint{push, pull} {
		w.unit(func(ctx context.Context, tx *db.Tx) error {
			_, err := Redeliver(ctx, tx, w.guild, e.ID, of(e))
			return err
		})
	}
	got := dbtest.Value[string](t, w.DB, `
		SELECT string_agg(endpoint_id || ' ' || urgent, ', ' ORDER BY urgent DESC) FROM webhook_deliveries WHERE cause = 'redelivery'`)
	if got != push.ID+" true, "+pull.ID+" false" {
		t.Errorf("redelivered are %s", got)
	}
	err := w.DB.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := Redeliver(ctx, tx, w.guild, push.ID, of(other))
		return err
	})
	if !errors.Is(err, noSuchDelivery) {
		t.Errorf("another endpoint's delivery: %v", err)
	}
}

// A test of a pull endpoint waits to be fetched, and is held while the endpoint is disabled.
func TestATestOfAPullEndpointIsKept(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	pull := w.addPull(w.guild)
	for _, want := range []string{StatePending, StateHeld} {
		var id string
		w.unit(func(ctx context.Context, tx *db.Tx) (err error) {
			id, err = Ping(ctx, tx, event.System(w.guild), pull.ID)
			return err
		})
		if got := dbtest.Value[string](t, w.DB, `SELECT state FROM webhook_deliveries WHERE id = $1`, id); got != want {
			t.Errorf("the test is %s, want %s", got, want)
		}
		w.enable(pull, false)
	}
}
