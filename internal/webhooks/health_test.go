package webhooks

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/db"
)

// After five failures in a row an endpoint is left alone, for twice as long each
// time up to a bound; one attempt decides, and a success ends it.
func TestAFailingEndpointIsBlockedForLongerEachTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := &clock{t: time.Now().Add(time.Minute)}
	w.cfg.Clock, w.cfg.Schedule = c.now, slices.Repeat(Schedule{time.Millisecond}, 50)
	r := w.receive(status(500))
	w.add(w.guild, r.URL)
	w.record(w.guild, 3)
	w.start(w.cfg)

	type row struct {
		Failures int        `db:"failures"`
		Blocks   int        `db:"blocks"`
		Until    *time.Time `db:"blocked_until"`
	}
	read := func() (h row) {
		if err := w.DB.Reader().GetContext(t.Context(), &h, `SELECT failures, blocks, blocked_until FROM webhook_health`); err != nil {
			t.Fatal(err)
		}
		return h
	}
	for i, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 15 * time.Minute, 15 * time.Minute} {
		w.until("the block", func() bool {
			if i == 0 {
				w.pass(c, 10*time.Millisecond) // past the pauses, before any block ends
			}
			return read().Blocks == i+1
		})
		h := read()
		if got := h.Until.Sub(c.now()); got > want+time.Millisecond || got < want-5*time.Second {
			t.Errorf("block %d lasts %s, want %s", i+1, got, want)
		}
		made := len(r.got())
		c.advance(want - 10*time.Second)
		time.Sleep(poll + poll/4) // a poll passes, and may not send
		if n := len(r.got()); n != made {
			t.Errorf("%d attempts while blocked", n-made)
		}
		c.advance(11 * time.Second)
	}
	r.say(nil)
	w.until("all delivered", func() bool { w.pass(c, time.Hour); return w.inState(stateDelivered) == 3 })
	w.until("the endpoint is forgiven", func() bool { h := read(); return h.Failures == 0 && h.Blocks == 0 && h.Until == nil })
}

func TestOldLogIsPrunedAndWhatWaitsStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.receive(nil)
	e, _ := w.add(w.guild, r.URL)
	_, stop := w.start(w.cfg)
	w.record(w.guild, 20)
	w.settled()
	stop()
	w.enable(e, false)
	w.exec(`UPDATE webhook_endpoints SET enabled = true`)
	w.record(w.guild, 2)
	w.exec(`UPDATE webhook_endpoints SET enabled = false`)
	w.unit(func(ctx context.Context, tx *db.Tx) error { return hold(ctx, tx, w.guild, e.ID) })

	prune := func(at time.Time) {
		cfg := w.cfg
		cfg.Clock = (&clock{t: at}).now
		d, err := NewDeliverer(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.prune(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	left := func() string {
		return fmt.Sprint(w.count(`SELECT count(*) FROM webhook_attempts`), w.count(`SELECT count(*) FROM webhook_deliveries`), w.count(`SELECT count(*) FROM webhook_events`))
	}
	prune(time.Now().Add(keep - time.Hour))
	if got := left(); got != "20 22 22" {
		t.Errorf("a day too early: %s are left, want 20 22 22", got)
	}
	prune(time.Now().Add(keep + time.Hour))
	if got := left(); got != "0 2 2" {
		t.Errorf("attempts, deliveries, events left: %s, want 0 2 2", got)
	}
	w.exec(`DELETE FROM webhook_endpoints`)
	prune(time.Now())
	if n := w.inState(stateFailed); n != 2 {
		t.Errorf("%d of 2 held deliveries of a deleted endpoint were given up", n)
	}
}

// A delivery that is held though its endpoint is enabled is found and sent.
func TestStragglersAreReleased(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.receive(nil)
	w.add(w.guild, r.URL)
	w.record(w.guild, 2)
	w.exec(`UPDATE webhook_deliveries SET state = 'held'`)
	w.start(w.cfg)
	w.until("both arrive", func() bool { return r.distinct() == 2 })
}

// A row that is claimed for an endpoint that was disabled meanwhile is held
// without an attempt.
func TestALateEventOfADisabledEndpointIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.receive(nil)
	e, _ := w.add(w.guild, r.URL)
	w.record(w.guild, 1)
	w.exec(`UPDATE webhook_endpoints SET enabled = false`)
	w.start(w.cfg)
	w.until("it is held", func() bool { return w.inState(stateHeld) == 1 })
	if n := w.count(`SELECT attempts + lease_gen FROM webhook_deliveries`); n != 0 || len(r.got()) != 0 {
		t.Errorf("%d attempts or leases are counted, %d requests arrived", n, len(r.got()))
	}
	w.enable(e, true)
	w.settled()
	if a := w.lastAttempt(e); a.Number != 1 {
		t.Errorf("the first attempt has number %d", a.Number)
	}
}

func TestMetricsShowTheBacklogByState(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	registry := prometheus.NewRegistry()
	w.cfg.Metrics = registry
	r := w.receive(nil)
	down := w.receive(status(500))
	w.add(w.guild, r.URL)
	for i, guild := range []string{"901", "902", "903"} {
		w.addGuild(guild)
		e, _ := w.add(guild, down.URL)
		w.record(guild, i+1)
		switch i {
		case 0:
			w.enable(e, false)
		case 1:
			w.exec(`UPDATE webhook_health SET failures = 5, failing_since = now(), blocked_until = now() + interval '1 hour' WHERE guild_id = $1`, guild)
		case 2:
			w.exec(`UPDATE webhook_deliveries SET due_at = now() + interval '1 hour' WHERE guild_id = $1`, guild)
		}
	}
	w.exec(`UPDATE webhook_deliveries SET due_at = now() - interval '90 seconds' WHERE guild_id <> '903'`)
	d, err := NewDeliverer(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.record(w.guild, 4)
	if err := d.measure(t.Context()); err != nil {
		t.Fatal(err)
	}
	for state, want := range map[string]float64{gaugeDue: 4, gaugeHeld: 1, gaugeThrottled: 2, gaugeScheduled: 3} {
		if got := metric(t, d.metrics.waiting.WithLabelValues(state)); got != want {
			t.Errorf("%v deliveries are %s, want %v", got, state, want)
		}
	}
	for state, least := range map[string]float64{gaugeHeld: 90, gaugeThrottled: 90} {
		if got := metric(t, d.metrics.oldest.WithLabelValues(state)); got < least || got > 1000 {
			t.Errorf("the oldest %s is %v s old, want about %v", state, got, least)
		}
	}
	if got := metric(t, d.metrics.hosts.WithLabelValues("blocked")); got != 1 {
		t.Errorf("%v endpoints are blocked, want 1", got)
	}

	w.run(d)
	w.until("the due ones arrive", func() bool { return metric(t, d.metrics.attempts.WithLabelValues(string(delivered))) == 4 })
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	for _, want := range []string{"attempts_total", "oldest_delivery_seconds", "deliveries_waiting", "endpoints", "lease_expiries_total", "slots_in_use"} {
		if !strings.Contains(strings.Join(names, " "), "guildhall_webhook_"+want) {
			t.Errorf("there is no metric %s in %v", want, names)
		}
	}
}

// Claiming takes the index of pending rows and never looks at settled ones,
// even before the database has statistics.
func TestAClaimDoesNotReadSettledRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.receive(nil)
	e, _ := w.add(w.guild, r.URL)
	w.record(w.guild, 1)
	w.exec(`
		INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, state, completed_at)
		SELECT d.guild_id, d.endpoint_id, d.event_id, 'delivered', now()
		FROM webhook_deliveries d, generate_series(1, 20000)`)
	w.exec(`UPDATE webhook_deliveries SET state = 'delivered' WHERE state = 'pending'`)
	w.record(w.guild, 10)
	var rows []claimed
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		type reads struct {
			Scanned int `db:"seq_tup_read"`
			Fetched int `db:"idx_tup_fetch"`
		}
		count := func() (r reads) {
			if err := tx.GetContext(ctx, &r, `
				SELECT coalesce(max(seq_tup_read), 0) AS seq_tup_read, coalesce(max(idx_tup_fetch), 0) AS idx_tup_fetch
				FROM pg_stat_xact_user_tables
				WHERE relname = 'webhook_deliveries'`); err != nil {
				t.Fatal(err)
			}
			return r
		}
		before := count()
		var err error
		rows, err = claim(ctx, tx, nil, lease, map[string]allowance{e.ID: {Most: healthySlots}}, claimLimit, 1)
		after := count()
		if n := after.Scanned - before.Scanned; n > 0 {
			t.Errorf("the claim read %d rows of the whole table", n)
		}
		if n := after.Fetched - before.Fetched; n > 20*healthySlots {
			t.Errorf("the claim fetched %d rows to lease %d", n, len(rows))
		}
		return err
	})
	if len(rows) != healthySlots || !rows[0].More {
		t.Errorf("claimed %d rows, more: %v", len(rows), len(rows) > 0 && rows[0].More)
	}
}

// Whoever runs the service hears of an endpoint that is on its way to being
// disabled, at half of the time and shortly before.
func TestWarningsComeBeforeAnEndpointIsDisabled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	start := time.Now()
	for _, c := range []struct {
		after        time.Duration
		warned, once int
		reason       string
	}{
		{0, 0, 0, ""},
		{disableAfter/2 - time.Minute, 0, 0, ""},
		{disableAfter/2 + time.Minute, 50, 0, ""},
		{disableAfter/2 + time.Hour, 50, 50, ""},
		{disableAfter*9/10 + time.Minute, 90, 50, ""},
		{disableAfter - time.Minute, 90, 90, ""},
		{disableAfter + time.Minute, 90, 90, reasonFailing},
	} {
		at := start.Add(c.after)
		w.unit(func(ctx context.Context, tx *db.Tx) error {
			ill, err := noteHealth(ctx, tx, &at, []health{{GuildID: w.guild, EndpointID: e.ID, Failed: 1, Blocking: 1}})
			if err != nil || len(ill) != 1 {
				t.Fatalf("%v, %v", ill, err)
			}
			if got := ill[0]; got.Warned != c.warned || got.WarnedBefore != c.once || got.disableReason() != c.reason {
				t.Errorf("after %s: %+v, disabled for %q; want warnings %d, before %d, %q", c.after, got, got.disableReason(), c.warned, c.once, c.reason)
			}
			return nil
		})
	}
}

// Only a claim's commit is in a hurry; the setting ends with its transaction.
func TestAClaimsCommitDoesNotWaitForTheDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.receive(nil)
	w.add(w.guild, r.URL)
	w.record(w.guild, 1)
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		before, after := "", ""
		if err := tx.GetContext(ctx, &before, `SELECT current_setting('synchronous_commit')`); err != nil {
			return err
		}
		if rows, err := claim(ctx, tx, nil, lease, map[string]allowance{}, claimLimit, 1); err != nil || len(rows) != 1 {
			t.Errorf("claimed %d rows, %v", len(rows), err)
		}
		if err := tx.GetContext(ctx, &after, `SELECT current_setting('synchronous_commit')`); err != nil {
			return err
		}
		if after != "off" {
			t.Errorf("the setting was %s and is %s", before, after)
		}
		return nil
	})
}
