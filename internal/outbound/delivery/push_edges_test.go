package delivery

import (
	"context"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/egress"
)

// A result of an endpoint's old URL does not disable the endpoint.
func TestAnAnswerOfAnotherURLSwitchesNothingOff(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	d := w.deliverer()
	w.add(w.guild, "https://before.test/") // another endpoint with the same URL
	for url, want := range map[string]bool{"https://before.test/": false, e.URL: true} {
		off, err := d.disable(t.Context(), endpointID{e.GuildID, e.ID}, reasonFailing, url)
		if err != nil || off != want || w.count(`SELECT count(*) FROM webhook_endpoints WHERE enabled`) == 2 == want {
			t.Errorf("after failures of %s the endpoint is off: %v, %v", url, off, err)
		}
		w.enable(e, true)
	}
}

// If a delivery is recorded as held for an endpoint that was enabled meanwhile, the delivery is
// sent after all.
func TestWhatIsHeldTooLateIsReleased(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	d := w.deliverer()
	w.record(w.guild, 1)
	rows := w.takes(d, e, 1)
	w.enable(e, false)
	w.enable(e, true)
	w.follows(d)
	held := newResult(rows[0], decision{State: StateHeld}, egress.Response{}, time.Now(), 0)
	if err := d.record(t.Context(), []result{held}); err != nil {
		t.Fatal(err)
	}
	w.follows(d)
	if n := len(w.takes(d, e, 1)); n != 1 {
		t.Errorf("%d are sent, want 1: %s", n, w.states())
	}
}

// Sends start before their claim commits. If the commit fails, the sends are made again, and the
// log of a delivery has the attempt that led to its state. RELIABILITY.md, Events.
func TestAnAttemptOfAClaimThatDidNotCommitIsNotLogged(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	d := w.deliverer()
	w.record(w.guild, 1)
	uncommitted := w.takes(d, e, 1)
	w.exec(`UPDATE webhook_deliveries SET lease_gen = lease_gen - 1, lease_until = NULL`)
	w.recordOutcome(d, uncommitted, serverError, 0)
	w.recordOutcome(d, w.takes(d, e, 1), delivered, 0)
	w.recordOutcome(d, uncommitted, serverError, 0) // as late as possible
	const log = `SELECT string_agg(d.state || ' ' || attempts || ' ' || outcome, ', ')
		FROM webhook_attempts a JOIN webhook_deliveries d ON d.guild_id = a.guild_id AND d.id = a.delivery_id`
	if got := dbtest.Value[string](t, w.DB, log); got != "delivered 1 delivered" {
		t.Errorf("the state, its attempts and their log: %s", got)
	}
}

// If the answer to a commit is lost, the batch is written again, and its failures count only once.
// RELIABILITY.md, Events.
func TestWhatIsSettledAgainTeachesNothing(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	d := w.deliverer()
	w.record(w.guild, 1)
	rows := w.takes(d, e, 1)
	for range 3 {
		w.recordOutcome(d, rows, serverError, 0)
	}
	if n := w.count(`SELECT failures FROM webhook_schedule WHERE endpoint_id = $1`, e.ID); n != 1 {
		t.Errorf("one failure counts as %d", n)
	}
}

// An endpoint whose failures are reset is due at once.
func TestForgettingFailuresMakesAnEndpointDue(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	w.record(w.guild, 1)
	w.exec(`UPDATE webhook_deliveries SET fresh = false`)
	w.exec(`UPDATE webhook_schedule SET failures = 9, blocks = 5, failing_since = now(), blocked_until = now() + interval '10 minutes',
		next_due = now() + interval '10 minutes'`)
	w.unit(func(ctx context.Context, tx *db.Tx) error { return ResetHealth(ctx, tx, e.GuildID, e.ID) })
	found, err := pollAll(t.Context(), w.DB.Reader(), nil, endpointID{}, nil)
	if w.cfg.OneGuild {
		found, err = pollDistributed(t.Context(), w.DB.Reader(), nil, endpointID{}, nil)
	}
	if err != nil || len(found) != 1 {
		t.Errorf("a look finds %d endpoints, %v", len(found), err)
	}
}

// A success makes an endpoint healthy even if the endpoint was found failing after the claim.
func TestASuccessEndsAFailureThatCameMeanwhile(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	d := w.deliverer()
	w.record(w.guild, 2)
	rows := w.takes(d, e, 2)
	if len(rows) != 2 {
		t.Fatalf("claimed %d", len(rows))
	}
	w.recordOutcome(d, rows[:1], serverError, 0)
	if n := w.count(`SELECT count(*) FROM webhook_schedule WHERE failing_since IS NOT NULL`); n != 1 {
		t.Fatal("the endpoint does not fail")
	}
	w.recordOutcome(d, rows[1:], delivered, 0)
	if n := w.count(`SELECT count(*) FROM webhook_schedule WHERE failing_since IS NULL AND failures = 0`); n != 1 {
		t.Error("the endpoint fails after a success")
	}
}

// A process that was frozen between a claim and its sends makes no send, because the endpoint may
// be deleted by then. The delivery keeps its place, and no attempt is counted.
func TestAFrozenProcessSendsNothing(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	d := w.deliverer()
	w.record(w.guild, 1)
	for late, want := range map[time.Duration]bool{0: false, beginWithin + time.Second: true} {
		c := w.takes(d, e, 1)[0]
		c.Locked = c.Locked.Add(-late)
		v, unsent := d.unsent(c)
		if unsent != want || unsent && v != (decision{State: StatePending, Step: c.Step}) {
			t.Errorf("%s after its claim a delivery is not sent: %v, %+v", late, unsent, v)
		}
		w.exec(`UPDATE webhook_deliveries SET lease_until = NULL`)
	}
	idle := w.count(`SELECT setting::int FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'`)
	if idle > 0 && time.Duration(idle)*time.Millisecond < beginWithin+time.Second {
		t.Errorf("a claim's locks may be gone after %d ms, and its sends begin within %s", idle, beginWithin)
	}
}

// A result without an attempt changes nothing of its delivery; a failed attempt makes the delivery
// wait for its next attempt; and only a result of the last lease counts.
func TestWhatAResultMakesOfItsDelivery(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	w.cfg.Schedule = Schedule{time.Hour, time.Hour} // longer than the test runs
	e, _ := w.add(w.guild, w.receive(nil).URL)
	d := w.deliverer()
	w.record(w.guild, 1)
	take := func() (claimed, result) {
		t.Helper()
		w.exec(`UPDATE webhook_deliveries SET due_at = now() - interval '1 minute'`)
		rows := w.takes(d, e, 1)
		if len(rows) != 1 {
			t.Fatalf("%d are claimed: %s", len(rows), w.states())
		}
		w.exec(`UPDATE webhook_deliveries SET urgent = true`)
		c := rows[0]
		return c, newResult(c, decision{State: StatePending, Step: c.Step, Pause: time.Hour}, egress.Response{}, time.Now(), 0)
	}
	settle := func(r result, putAside bool) {
		t.Helper()
		if err := d.write(t.Context(), []result{r}, putAside); err != nil {
			t.Fatal(err)
		}
	}
	wants := func(about, condition string, args ...any) {
		t.Helper()
		if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE `+condition, args...); n != 1 {
			t.Errorf("%s: %s", about, dbtest.Value[string](t, w.DB, `SELECT to_jsonb(d)::text FROM webhook_deliveries d`))
		}
	}
	for _, putAside := range []bool{false, true} {
		c, notMade := take()
		settle(notMade, putAside)
		wants("an attempt that was not made", `state = 'pending' AND urgent AND due_at < now() AND lease_until IS NULL AND attempts = 0
			AND lease_gen = $1 AND unlogged IS NULL`, c.LeaseGen-1)
	}
	if n := w.count(`SELECT count(*) FROM webhook_attempts`); n != 0 {
		t.Errorf("%d attempts are logged that were not made", n)
	}

	c, late := take()
	late.LeaseGen, late.State, late.Logged = c.LeaseGen-1, StateDelivered, true
	settle(late, false)
	wants("a result that comes too late", `state = 'pending' AND lease_until > now() AND attempts = 0 AND completed_at IS NULL`)
	late.LeaseGen = c.LeaseGen
	// Changed by another worker: log stored in the row, or held.
	for _, since := range []string{`lease_until = NULL`, `state = 'held', lease_until = NULL`} {
		w.exec(`UPDATE webhook_deliveries SET ` + since)
		settle(late, false)
		wants("a result that comes too late, "+since, `state <> 'delivered' AND attempts = 0 AND completed_at IS NULL`)
	}
	w.exec(`UPDATE webhook_deliveries SET state = 'pending', lease_until = now() + interval '1 minute'`)
	w.recordOutcome(d, []claimed{c}, serverError, time.Hour)
	wants("an attempt that failed", `state = 'pending' AND NOT urgent AND due_at > now() AND attempts = 1 AND lease_gen = $1
		AND completed_at IS NULL AND unlogged IS NULL`, c.LeaseGen)

	c, arrived := take()
	arrived.State, arrived.Logged = StateDelivered, true
	settle(arrived, true)
	wants("what has arrived", `state = 'delivered' AND attempts = 2 AND lease_gen = $1 AND completed_at IS NOT NULL
		AND due_at < now() AND jsonb_array_length(unlogged) = 1`, c.LeaseGen)
	if n := w.count(`SELECT sum(deliveries) FROM webhook_hours WHERE outcome = 'delivered'`); n != 1 {
		t.Errorf("%d deliveries are counted, want 1", n)
	}
}

// A result changes the schedule of its own endpoint, and of no other endpoint of the guild.
func TestAResultChangesItsOwnEndpoint(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	other, _ := w.add(w.guild, w.receive(nil).URL)
	d := w.deliverer()
	w.record(w.guild, 2)
	rows := w.takes(d, e, 2)
	w.takes(d, other, 1)
	w.exec(`UPDATE webhook_schedule SET disposition = 'hold', next_due = now() + interval '1 hour', failures = 3, failing_since = now()
		WHERE endpoint_id = $1`, other.ID)
	was := w.stored(other)
	for i, o := range []outcome{serverError, delivered} {
		w.recordOutcome(d, rows[i:i+1], o, time.Hour)
		if is := w.stored(other); is != was {
			t.Errorf("by a result of another endpoint\n%s\nhas become\n%s", was, is)
		}
	}
}

// While a claim waits for the lock of a delivery with an expired lease, the late result of the
// delivery's worker is recorded. The claim then does not take the delivery.
func TestAClaimTakesNothingThatIsSettledMeanwhile(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	d := w.deliverer()
	w.record(w.guild, 1)
	if n := len(w.takes(d, e, 1)); n != 1 {
		t.Fatalf("%d are claimed", n)
	}
	w.exec(`UPDATE webhook_deliveries SET lease_until = now() - interval '1 minute'`)
	var taken int
	w.waitsFor(func(context.Context) error {
		taken = len(w.takes(d, e, 1))
		return nil
	}, `UPDATE webhook_deliveries SET state = 'delivered', lease_until = NULL, completed_at = now()`)
	if taken != 0 {
		t.Errorf("%d are claimed that are settled: %s", taken, w.states())
	}
}
