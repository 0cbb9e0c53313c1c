package delivery

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/gen"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/db/embedded"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/egress"
)

// After five failures in a row an endpoint is blocked, each time for twice as long, up to a
// maximum; then one attempt decides, and a success ends the block. RELIABILITY.md, Events.
func TestAFailingEndpointIsBlockedForLongerEachTime(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
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
		if err := w.DB.Reader().GetContext(t.Context(), &h, `SELECT failures, blocks, blocked_until FROM webhook_schedule`); err != nil {
			t.Fatal(err)
		}
		return h
	}
	for i, want := range []time.Duration{
		30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute,
		15 * time.Minute, 15 * time.Minute,
	} {
		w.until("the block", func() bool {
			if i == 0 {
				w.advanceIdle(c, 10*time.Millisecond) // after the pauses, but before the end of any block
			}
			return read().Blocks == i+1
		})
		h := read()
		if got := h.Until.Sub(c.now()); got > want+time.Millisecond || got < want-5*time.Second {
			t.Errorf("block %d lasts %s, want %s", i+1, got, want)
		}
		made := len(r.got())
		c.advance(want - 10*time.Second)
		time.Sleep(pollInterval + pollInterval/4) // a poll happens, and must not send
		if n := len(r.got()); n != made {
			t.Errorf("%d attempts while blocked", n-made)
		}
		c.advance(11 * time.Second)
	}
	r.respondWith(nil)
	w.until("all delivered", func() bool { w.advanceIdle(c, time.Hour); return w.inState(StateDelivered) == 3 })
	w.until("the endpoint is forgiven", func() bool { h := read(); return h.Failures == 0 && h.Blocks == 0 && h.Until == nil })
}

// An event is deleted after 30 days, even if its endpoint is disabled and its deliveries are
// therefore held. The held deliveries fail then, and are deleted a day later.
func TestAllOfAnEventGoesAtItsAge(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	r := w.receive(nil)
	e, _ := w.add(w.guild, r.URL)
	off, _ := w.add(w.guild, r.URL)
	_, stop := w.start(w.cfg)
	w.record(w.guild, 20)
	w.drain()
	stop()
	w.exec(`UPDATE webhook_deliveries SET state = 'held', completed_at = NULL WHERE endpoint_id = $1`, off.ID)
	w.enable(off, false)
	w.unit(func(ctx context.Context, tx *db.Tx) error { // deliveries sent or held meanwhile stay unchanged
		all, err := db.Select[string](ctx, tx, `SELECT id FROM webhook_deliveries WHERE guild_id = $1`, w.guild)
		return errors.Join(err, expire(ctx, tx, w.guild, all, StatePending, nil))
	})

	prune := func(after time.Duration) string {
		cfg := w.cfg
		cfg.Clock = (&clock{t: time.Now().Add(after)}).now
		d, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%d attempts, %d events, %s", w.count(`SELECT count(*) FROM webhook_attempts`),
			w.count(`SELECT count(*) FROM webhook_events`), w.states())
	}
	if got := prune(keep - time.Hour); got != "40 attempts, 20 events, [{delivered 20} {held 20}]" {
		t.Errorf("an hour too early there are %s", got)
	}
	if got := prune(keep + time.Hour); got != "0 attempts, 0 events, [{delivered 20} {failed 20}]" {
		t.Errorf("after 30 days there are %s", got)
	}
	if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = $1 AND error = 'expired'
		AND completed_at IS NOT NULL`, off.ID); n != 20 {
		t.Errorf("%d of 20 say that they have expired", n)
	}
	if got := prune(keep + expiredFor + time.Hour); got != "0 attempts, 0 events, []" {
		t.Errorf("a day later there are %s", got)
	}
	if n := w.count(`SELECT count(*) FROM webhook_endpoints WHERE id = $1`, e.ID); n != 1 {
		t.Error("the endpoint went with its log")
	}
}

// The OpenAPI document says for how many days an event is retried and kept.
func TestTheDocumentSaysHowLongEventsAreKept(t *testing.T) {
	t.Parallel()
	for what, kept := range map[string]time.Duration{
		`still waiting %d days after its event becomes ` + "`failed`": keep,
		`deliveries of an event are deleted %d days after the event`:  keep + expiredFor,
	} {
		want := fmt.Sprintf(what, kept/(24*time.Hour))
		if document := strings.Join(strings.Fields(string(gen.OpenAPI)), " "); !strings.Contains(document, want) {
			t.Errorf("the document does not say %q", want)
		}
	}
}

// The database's clock decides which events are too old: a node whose clock is 40 days ahead
// deletes nothing. RELIABILITY.md, Operation.
func TestPruningGoesByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	w.add(w.guild, w.receive(nil).URL)
	w.record(w.guild, 1)
	w.exec(`UPDATE webhook_events SET occurred_at = now() - interval '35 days'`)
	w.exec(`UPDATE webhook_deliveries SET event_at = now() - interval '35 days', state = 'delivered', fresh = false`)
	left := func() int {
		return w.count(`SELECT (SELECT count(*) FROM webhook_deliveries) + (SELECT count(*) FROM webhook_events)`)
	}
	w.exec(`CREATE SCHEMA behind`)
	w.exec(`CREATE FUNCTION behind.now() RETURNS timestamptz LANGUAGE sql STABLE AS $$ SELECT pg_catalog.now() - interval '40 days' $$`)
	for _, c := range []struct {
		about, schemas string
		left           int
	}{
		{"a database 40 days behind", "behind, pg_catalog, public", 2},
		{"a database on time", "public", 0},
	} {
		u, err := url.Parse(w.URL)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set("search_path", c.schemas)
		u.RawQuery = q.Encode()
		pool, err := db.Open(db.Config{URL: u.String(), Writers: 1, Name: "skewed", Distributed: w.DB.Distributed()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = pool.Close() })
		cfg := w.cfg
		cfg.DB = pool
		d, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := left(); n != c.left {
			t.Errorf("%s: %d rows are left, want %d", c.about, n, c.left)
		}
	}
}

// A delivery that was claimed for an endpoint that was disabled meanwhile is held without an
// attempt.
func TestALateEventOfADisabledEndpointIsHeld(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	r := w.receive(nil)
	e, _ := w.add(w.guild, r.URL)
	w.record(w.guild, 1)
	w.exec(`UPDATE webhook_endpoints SET enabled = false`)
	d := w.deliverer()
	rows := w.takes(d, e, 1)
	v, unsent := d.unsent(rows[0])
	if !unsent {
		t.Error("it would be sent")
	}
	if err := d.record(t.Context(), []result{newResult(rows[0], v, egress.Response{}, time.Now(), 0)}); err != nil {
		t.Fatal(err)
	}
	if n := w.count(`SELECT attempts + lease_gen FROM webhook_deliveries WHERE state = 'held'`); n != 0 {
		t.Errorf("%d attempts or leases are counted", n)
	}
	w.start(w.cfg)
	w.enable(e, true)
	w.until("it is delivered", func() bool { return w.inState(StateDelivered) == 1 })
	if a := w.lastAttempt(e); a.Number != 1 {
		t.Errorf("the first attempt has number %d", a.Number)
	}
}

func TestMetricsShowTheBacklogByState(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	registry := prometheus.NewRegistry()
	w.cfg.Metrics = registry
	r := w.receive(nil)
	down := w.receive(status(500))
	w.add(w.guild, r.URL)
	for i, guild := range []string{"901", "902", "903"} {
		dbtest.AddGuilds(w.t, w.DB, guild)
		e, _ := w.add(guild, down.URL)
		w.record(guild, i+1)
		switch i {
		case 0:
			w.enable(e, false)
		case 1:
			w.exec(`UPDATE webhook_schedule SET failures = 5, failing_since = now(), blocked_until = now() + interval '1 hour'
				WHERE guild_id = $1`, guild)
		case 2:
			w.exec(`UPDATE webhook_deliveries SET due_at = now() + interval '1 hour' WHERE guild_id = $1`, guild)
		}
	}
	w.exec(`UPDATE webhook_deliveries SET due_at = now() - interval '90 seconds', event_at = now() - interval '90 seconds'
		WHERE guild_id <> '903'`)
	w.besidesTheBacklog(down.URL)
	d := w.deliverer()
	w.record(w.guild, 4)
	w.follows(d)
	if err := d.measure(t.Context()); err != nil {
		t.Fatal(err)
	}
	for state, want := range map[string]float64{gaugeDue: 5, gaugeHeld: 2, gaugeThrottled: 2, gaugeScheduled: 3} {
		if got := testutil.Sample(t, d.metrics.waiting.WithLabelValues(state)); got != want {
			t.Errorf("%v deliveries are %s, want %v", got, state, want)
		}
	}
	for state, least := range map[string]float64{gaugeHeld: 90, gaugeThrottled: 90} {
		if got := testutil.Sample(t, d.metrics.oldest.WithLabelValues(state)); got < least || got > 1000 {
			t.Errorf("the oldest %s is %v s old, want about %v", state, got, least)
		}
	}
	for state, want := range map[string]float64{"failing": 2, "blocked": 1, "disabled": 1} {
		if got := testutil.Sample(t, d.metrics.hosts.WithLabelValues(state)); got != want {
			t.Errorf("%v endpoints are %s, want %v", got, state, want)
		}
	}

	w.run(d)
	w.until("the due ones arrive", func() bool { return testutil.Sample(t, d.metrics.attempts.WithLabelValues(string(delivered))) == 4 })
	if err := d.overflowed(t.Context(), nil, full{GuildID: w.guild, ID: "e"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	for _, want := range []string{
		"attempts_total", "oldest_delivery_seconds", "deliveries_waiting", "endpoints", "lease_expiries_total",
		"slots_in_use", "overflow_timestamp_seconds",
	} {
		if !slices.Contains(names, "guildhall_webhook_"+want) {
			t.Errorf("there is no metric %s in %v", want, names)
		}
	}
}

// besidesTheBacklog adds deliveries that are half an hour old: due ones for a failing endpoint,
// ones in progress for an endpoint that was blocked since, ones for a pull endpoint, and ones not
// yet held for an endpoint that the service has disabled.
func (w *deliveryDB) besidesTheBacklog(down string) {
	w.t.Helper()
	dbtest.AddGuilds(w.t, w.DB, "904", "905")
	failing, _ := w.add("902", down)
	w.addPull("904")
	w.record("904", 1)
	w.record("902", 1)
	w.exec(`UPDATE webhook_schedule SET failing_since = now() WHERE endpoint_id = $1`, failing.ID)
	w.exec(`UPDATE webhook_deliveries SET state = 'delivered', completed_at = now()
		WHERE id = (SELECT max(id) FROM webhook_deliveries WHERE guild_id = '902' AND endpoint_id <> $1)`, failing.ID)
	w.exec(`UPDATE webhook_deliveries SET due_at = now() - interval '30 minutes', event_at = now() - interval '30 minutes'
		WHERE endpoint_id = $1 OR state = 'delivered'`, failing.ID)
	off, _ := w.add("905", down)
	w.record("905", 1)
	w.enable(off, false)
	w.exec(`UPDATE webhook_endpoints SET disabled_reason = 'failing' WHERE id = $1`, off.ID)
	w.exec(`UPDATE webhook_schedule SET failing_since = now(), next_due = now() + interval '1 hour' WHERE endpoint_id = $1`, off.ID)
}

// OldestDue finds a delivery that no worker takes although the delivery could be sent: a failing
// receiver does not make the result older, and many deliveries for one endpoint do not hide the
// others.
func TestTheOldestDueDeliveryIsOneThatCouldBeSent(t *testing.T) {
	t.Parallel()
	const (
		queued = `UPDATE webhook_deliveries SET fresh = false`
		due    = `UPDATE webhook_schedule SET next_due = now() - interval '2 minutes'`
		young  = `UPDATE webhook_deliveries SET due_at = now() WHERE id = (SELECT max(id) FROM webhook_deliveries)`
		older  = ` WHERE due_at < now() - interval '1 minute'`
	)
	for about, tt := range map[string]struct {
		arrange []string
		waits   bool
	}{
		"nobody has taken it":                      {nil, true},
		"nobody has taken it of any":               {[]string{`DELETE FROM webhook_schedule`}, true},
		"untaken, and another's retry comes later": {[]string{`UPDATE webhook_schedule SET next_due = now() + interval '1 hour'`}, true},
		"who had it in hand is dead": {[]string{
			queued, `UPDATE webhook_deliveries SET lease_until = now() - interval '2 minutes'`,
			`UPDATE webhook_schedule SET failing_since = now()`,
		}, true},
		"its retry is due":                    {[]string{queued, due}, true},
		"it is urgent, its endpoint disabled": {[]string{queued, due, `UPDATE webhook_schedule SET disposition = 'hold', urgent = true`}, true},
		"it is urgent, its endpoint blocked": {[]string{
			queued, due,
			`UPDATE webhook_schedule SET urgent = true, failing_since = now(), blocks = 1, blocked_until = now() + interval '1 hour'`,
		}, true},

		"a claim has looked since":         {[]string{`UPDATE webhook_schedule SET next_due = now()`}, false},
		"its retry comes later":            {[]string{queued, `UPDATE webhook_schedule SET next_due = now() + interval '2 minutes'`}, false},
		"its endpoint fails":               {[]string{queued, due, `UPDATE webhook_schedule SET failing_since = now(), failures = 1`}, false},
		"its endpoint fails, and it waits": {[]string{`UPDATE webhook_schedule SET failing_since = now(), failures = 1`}, false},
		"its endpoint is blocked":          {[]string{queued, due, `UPDATE webhook_schedule SET failing_since = now(), blocks = 1`}, false},
		"its endpoint is disabled":         {[]string{due, `UPDATE webhook_schedule SET disposition = 'hold'`}, false},
		"its endpoint asked to be left":    {[]string{queued, due, `UPDATE webhook_schedule SET quiet_until = now() + interval '1 hour'`}, false},
		"it asked, and it waits":           {[]string{`UPDATE webhook_schedule SET quiet_until = now() + interval '1 hour'`}, false},
		"it asked until now":               {[]string{queued, due, `UPDATE webhook_schedule SET quiet_until = now()`}, false},
		"what came before it has ended": {[]string{
			young, `UPDATE webhook_deliveries SET state = 'delivered', completed_at = now()` + older,
		}, false},
		"what came before it is queued": {[]string{
			young, queued + older, `UPDATE webhook_schedule SET next_due = now() + interval '2 minutes'`,
		}, false},
		"what came before it is for one that fails": {[]string{
			young, `UPDATE webhook_deliveries SET endpoint_id = 'another'` + older,
			`INSERT INTO webhook_schedule (guild_id, endpoint_id, failing_since, failures)
			SELECT guild_id, 'another', now(), 1 FROM webhook_schedule`,
		}, false},
		"it was taken": {[]string{queued, `UPDATE webhook_deliveries SET lease_until = now() + interval '9 s'`}, false},
	} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			w := newDeliveryDB(t)
			w.add(w.guild, w.receive(nil).URL)
			w.record(w.guild, 3)
			w.exec(`UPDATE webhook_deliveries SET due_at = now() - interval '2 minutes'`)
			if w.DB.Distributed() && about == "nobody has taken it of any" {
				return // the statement for a coordinator ignores endpoints without a schedule
			}
			for _, do := range tt.arrange {
				w.exec(do)
			}
			w.exec(`INSERT INTO webhook_schedule (guild_id, endpoint_id, next_due) VALUES ($1, '0', now()), ($1, 'x', now())`, w.guild)
			got, err := OldestDue(t.Context(), w.DB)
			if err != nil {
				t.Fatal(err)
			}
			if tt.waits != (got >= 2*time.Minute) || !tt.waits && got > 30*time.Second || got > time.Hour {
				t.Errorf("the oldest has been due for %s", got)
			}
		})
	}
}

// claim leases deliveries of an endpoint in the transaction tx.
func (w *deliveryDB) claim(ctx context.Context, tx *db.Tx, e endpoint, n int) []claimed {
	w.t.Helper()
	locked, err := lockIdle(ctx, tx, w.cfg.OneGuild, nil, []*candidate{{GuildID: e.GuildID, EndpointID: e.ID, Known: true}})
	if err != nil || len(locked) != 1 {
		w.t.Fatalf("locked %d schedules, %v", len(locked), err)
	}
	rows, err := take(ctx, tx, w.cfg.OneGuild, locked[0].Now, lease, []order{locked[0].order(n)})
	if err != nil {
		w.t.Fatal(err)
	}
	return rows
}

// Polls and claims use the indexes of waiting deliveries. They never read completed deliveries, nor
// more of a backlog than they lease, even before the database has statistics.
func TestAClaimReadsNoMoreThanItTakes(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	r := w.receive(nil)
	e, _ := w.add(w.guild, r.URL)
	w.record(w.guild, 1)
	w.exec(`
		INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, state, completed_at, fresh)
		SELECT d.guild_id, d.endpoint_id, d.event_id, CASE WHEN i % 2 = 0 THEN 'delivered' ELSE 'pending' END, now(), false
		FROM webhook_deliveries d, generate_series(1, 20000) AS i`)
	w.exec(`UPDATE webhook_schedule SET next_due = now()`)
	var rows []claimed
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		type reads struct {
			Scanned int `db:"seq_tup_read"`
			Fetched int `db:"idx_tup_fetch"`
		}
		count := func() (r reads) {
			if err := tx.GetContext(ctx, &r, `
				SELECT coalesce(sum(seq_tup_read), 0) AS seq_tup_read, coalesce(sum(idx_tup_fetch), 0) AS idx_tup_fetch
				FROM pg_stat_xact_user_tables
				WHERE relname = 'webhook_deliveries'`); err != nil {
				t.Fatal(err)
			}
			return r
		}
		before := count()
		found, err := pollAll(ctx, tx, nil, endpointID{}, nil)
		if err != nil || len(found) != 1 {
			t.Errorf("found %d endpoints, %v", len(found), err)
		}
		rows = w.claim(ctx, tx, e, healthySlots)
		after := count()
		if n := after.Scanned - before.Scanned; n > 0 {
			t.Errorf("the claim read %d rows of the whole table", n)
		}
		if n := after.Fetched - before.Fetched; n > 20*healthySlots {
			t.Errorf("the claim fetched %d rows to lease %d", n, len(rows))
		}
		return nil
	})
	if len(rows) != healthySlots || !rows[0].More {
		t.Errorf("claimed %d rows, more: %v", len(rows), len(rows) > 0 && rows[0].More)
	}
}

// The operator gets a warning about an endpoint that is about to be disabled, after half of the
// time and shortly before its end.
func TestWarningsComeBeforeAnEndpointIsDisabled(t *testing.T) {
	t.Parallel()
	var h health
	start, day := time.Now(), 24*time.Hour
	for _, c := range []struct {
		after  time.Duration
		warned int
		reason string
	}{
		{0, 0, ""},
		{5*day/2 - 1, 0, ""},
		{5 * day / 2, 50, ""},
		{5*day*9/10 - 1, 50, ""},
		{5 * day * 9 / 10, 90, ""},
		{5*day - 1, 90, ""},
		{5 * day, 90, reasonFailing},
	} {
		at := start.Add(c.after)
		h = h.after(decision{State: StatePending, Failing: true, Blocks: true}, at, nil)
		if h.Warned != c.warned || h.disable(at) != c.reason {
			t.Errorf("after %s: warned at %d, disabled for %q; want %d, %q", c.after, h.Warned, h.disable(at), c.warned, c.reason)
		}
	}
}

// The commit of a claim does not wait for the disk, but its changes are visible; the commit of
// results waits. The server of this test makes each synchronous commit wait for a standby that does
// not exist.
func TestAClaimsCommitDoesNotWaitForTheDisk(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(t.Context(), embedded.Config{Fast: true, Settings: []string{
		"wal_level=replica", "max_wal_senders=2", "synchronous_commit=on", "synchronous_standby_names=nobody",
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	unsafe := server.URL + "&synchronous_commit=off"
	if err := db.Migrate(t.Context(), unsafe); err != nil {
		t.Fatal(err)
	}
	pools := make(map[string]*db.DB)
	for name, u := range map[string]string{"setup": unsafe, "node": server.URL} {
		if pools[name], err = db.Open(db.Config{URL: u, Writers: 1, Name: name}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = pools[name].Close() })
	}
	w := deliveryDBIn(t, &dbtest.Database{DB: pools["setup"], URL: unsafe})
	w.add(w.guild, w.receive(nil).URL)
	w.record(w.guild, 1)

	cfg := w.cfg
	cfg.DB = pools["node"]
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var rows []claimed
	done := make(chan error, 1)
	d.wakeAll()
	go func() {
		_, err := d.claim(ctx, func(c claimed, begun func(), _ <-chan struct{}) { rows = append(rows, c); begun() })
		done <- err
	}()
	waits := func() bool {
		return w.count(`SELECT count(*) FROM pg_stat_activity WHERE application_name = 'node' AND wait_event = 'SyncRep'`) > 0
	}
	w.until("the claim has committed", func() bool {
		if waits() {
			t.Fatal("the claim's commit waits")
		}
		return w.count(`SELECT count(*) FROM webhook_deliveries WHERE lease_until IS NOT NULL`) == 1
	})
	if err := <-done; err != nil || len(rows) != 1 {
		t.Fatalf("claimed %d, %v", len(rows), err)
	}
	written := make(chan error, 1)
	go func() {
		v := d.schedule.judge(0, delivered, 0, 0)
		written <- d.record(ctx, []result{newResult(rows[0], v, egress.Response{Status: 204}, time.Now(), time.Millisecond)})
	}()
	w.until("the settling's commit waits", waits)
	w.exec(`SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'node' AND wait_event = 'SyncRep'`)
	if err := <-written; err != nil { // it has committed: only the wait for the standby was cancelled
		t.Error(err)
	}
}

// Endpoints of a guild that is being removed need no attention of the operator.
func TestEndpointsOfAGuildThatLeavesNeedNoLook(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	for _, reason := range []string{"", reasonGone, ReasonRemoved} {
		e, _ := w.add(w.guild, "https://shop.example/")
		w.unit(func(ctx context.Context, tx *db.Tx) error { return Disable(ctx, tx, e.GuildID, e.ID, reason) })
	}
	d := w.deliverer()
	if err := d.measure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := testutil.Sample(t, d.metrics.hosts.WithLabelValues("disabled")); n != 1 {
		t.Errorf("%v endpoints are disabled, want the one that is gone", n)
	}
}
