package delivery

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/testutil"
)

// An error that lasts is logged only from time to time. The end of ctx during a step is not an
// error.
func TestTroubleThatLastsIsLoggedOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ well, fails, lines int }{
		"it lasts":            {well: 1, fails: 4, lines: 1},
		"the program is over": {well: 1, fails: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newDeliveryDB(t)
			log := w.log()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tries := 0
			w.deliverer().every(ctx, time.Millisecond, "do it", func(context.Context) error {
				if tries++; tries <= c.well {
					return nil
				}
				if tries == c.well+c.fails {
					cancel()
				}
				return errors.New("no room")
			})
			if n := strings.Count(log.String(), "\n"); n != c.lines || strings.Count(log.String(), "no room") != n {
				t.Errorf("logged %d lines, want %d:\n%s", n, c.lines, log.String())
			}
		})
	}
}

// waits creates deliveries of an endpoint, more of each state than the gauges count.
func (w *deliveryDB) waits(e endpoint, states ...string) (n int) {
	w.t.Helper()
	n = gaugeLimit + 2*chunk
	for _, state := range states {
		w.exec(`
			INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_type, fresh, state, due_at)
			SELECT $1, $2, $3 || i, 'case.created', false, $3, now()
			FROM generate_series(1, $4) AS i`, e.GuildID, e.ID, state, n)
	}
	return n
}

// A backlog of many chunks is updated in one go, and workers are woken; for an endpoint without
// waiting deliveries, no worker is woken.
func TestABacklogOfManyChunksIsFollowedAtOneGo(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, "https://shop.example/")
	d := w.deliverer()
	follow := func() (woken bool) {
		t.Helper()
		d.wakeups.take()
		w.follows(d)
		_, woken = d.wakeups.take()
		return woken
	}
	w.enable(e, false)
	if follow() {
		t.Error("workers are told of an endpoint for which nothing waits")
	}
	w.enable(e, true)
	follow()
	all := w.waits(e, StatePending)
	w.enable(e, false)
	if !follow() {
		t.Error("no worker is told of what was put by")
	}
	if n := w.inState(StateHeld); n != all {
		t.Errorf("%d of %d are held", n, all)
	}
}

// Beyond their bound, the gauges show the database's estimate, or the bound if the database has no
// estimate yet.
func TestGaugesBeyondTheirBoundShowTheEstimate(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	w.exec(`ALTER TABLE webhook_deliveries SET (autovacuum_enabled = false)`)
	e, _ := w.add(w.guild, "https://shop.example/")
	all := w.waits(e, StatePending, StateHeld)
	d := w.deliverer()
	for _, c := range []struct {
		statement   string
		least, most int
	}{
		{`SELECT 1`, gaugeLimit, gaugeLimit},
		{`ANALYZE webhook_deliveries`, all - chunk, all + chunk},
	} {
		w.exec(c.statement)
		if err := d.measure(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, state := range []string{gaugeDue, gaugeHeld} {
			if n := int(testutil.Sample(t, d.metrics.waiting.WithLabelValues(state))); n < c.least || n > c.most {
				t.Errorf("%d are %s after %s, want %d to %d", n, state, c.statement, c.least, c.most)
			}
		}
	}
}

// The delay from event to arrival is measured for first attempts only: the delay of a retry shows
// how long the receiver was down, and a redelivery repeats an old event.
func TestTheDelayIsOfFirstAttempts(t *testing.T) {
	t.Parallel()
	m := newDeliveryDB(t).deliverer().metrics
	for attempts := range 3 {
		m.attempted(claimed{Attempts: attempts}, decision{Logged: true, Outcome: delivered}, time.Second)
	}
	m.attempted(claimed{Cause: "redelivery"}, decision{Logged: true, Outcome: delivered}, time.Second)
	if n := testutil.Sample(t, m.delay); n != 1 {
		t.Errorf("%v delays are noted of one first attempt, two retries and a redelivery", n)
	}
}

// A claim that fails repeatedly is logged once, and a claim that succeeds is not logged. A claim
// that has taken all due deliveries causes no further claim at once.
func TestAClaimThatFailsIsLoggedOnce(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	log := w.log()
	w.add(w.guild, w.receive(nil).URL)
	w.record(w.guild, 1)
	d := w.deliverer()
	d.wakeups.addAll()
	taken := 0
	more, err := d.claim(t.Context(), func(_ claimed, begun func(), _ <-chan struct{}) { taken++; begun() })
	if more || err != nil || taken != 1 {
		t.Errorf("a claim has taken %d of 1, is to be followed by another: %t, %v", taken, more, err)
	}

	const says = `msg="claim webhook deliveries"`
	w.start(w.cfg)
	arrives := func(all int) {
		t.Helper()
		w.record(w.guild, 1)
		w.until("it arrives", func() bool { return w.inState(StateDelivered) == all })
	}
	arrives(1)
	w.logged(log, says, 0)
	w.exec(`ALTER TABLE webhook_schedule RENAME TO away`)
	w.until("the log tells of it", func() bool { return strings.Contains(log.String(), says) })
	w.exec(`ALTER TABLE away RENAME TO webhook_schedule`)
	arrives(2)
	w.logged(log, says, 1)
}

// A secret that cannot be decrypted is logged once for each endpoint, however many deliveries are
// waiting.
func TestASecretThatCannotBeReadIsLoggedOnce(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	log := w.log()
	d := w.deliverer()
	for _, endpoint := range []string{"one", "one", "two", "one"} {
		d.unreadable(claimed{EndpointID: endpoint}, errors.New("sealed with another key"))
	}
	w.logged(log, "endpoint=one", 1)
	w.logged(log, "endpoint=two", 1)
}
