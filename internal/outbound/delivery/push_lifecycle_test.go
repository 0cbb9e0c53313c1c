package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"
	stripe "github.com/stripe/stripe-go/v84/webhook"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/event"
)

// A change, its event and its deliveries are stored together or not at all, wherever the
// transaction fails. RELIABILITY.md, Events.
func TestAnEventIsAsRealAsItsChange(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	for range 3 {
		w.add(w.guild, w.receive(nil).URL)
	}
	w.exec(`CREATE TABLE changes (id text PRIMARY KEY)`)
	// The points of failure: before and after each INSERT that records the event, in the middle of
	// the rows for the endpoints, and at the commit of the transaction.
	w.exec(`CREATE TABLE failpoint (name text)`)
	w.exec(`
		CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF EXISTS (SELECT FROM failpoint WHERE name = TG_NAME) AND (TG_NAME <> 'middle'
				OR (SELECT count(*) FROM webhook_deliveries WHERE event_id = to_jsonb(NEW) ->> 'event_id') = 1) THEN
				RAISE EXCEPTION 'failpoint %', TG_NAME;
			END IF;
			RETURN NEW;
		END $$`)
	for name, on := range map[string]string{
		"before_event": "BEFORE INSERT ON webhook_events FOR EACH ROW", "after_event": "AFTER INSERT ON webhook_events FOR EACH ROW",
		"before_fanout": "BEFORE INSERT ON webhook_deliveries FOR EACH STATEMENT", "middle": "BEFORE INSERT ON webhook_deliveries FOR EACH ROW",
		"after_fanout": "AFTER INSERT ON webhook_deliveries FOR EACH STATEMENT",
	} {
		w.exec(`CREATE TRIGGER ` + name + ` ` + on + ` EXECUTE FUNCTION fail()`)
	}
	w.exec(`CREATE CONSTRAINT TRIGGER commit_event AFTER INSERT ON webhook_events DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
		EXECUTE FUNCTION fail()`)
	w.exec(`CREATE CONSTRAINT TRIGGER commit_delivery AFTER INSERT ON webhook_deliveries DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
		EXECUTE FUNCTION fail()`)

	kill := func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`)
		return err
	}
	stop := func(context.Context, *db.Tx) error { return errors.New("stopped") }
	steps := []struct {
		name string
		at   int
		do   func(context.Context, *db.Tx) error
	}{
		{"nothing", -1, nil},
		{"stopped first", 0, stop},
		{"killed first", 0, kill},
		{"stopped after the change", 1, stop},
		{"killed after the change", 1, kill},
		{"stopped before commit", 2, stop},
		{"killed before commit", 2, kill},
		{"before_event", -1, nil},
		{"after_event", -1, nil},
		{"before_fanout", -1, nil},
		{"middle", -1, nil},
		{"after_fanout", -1, nil},
		{"commit_event", -1, nil},
		{"commit_delivery", -1, nil},
	}
	committed := 0
	for i, step := range slices.Concat(steps, steps, steps) {
		w.exec(`DELETE FROM failpoint`)
		w.exec(`INSERT INTO failpoint VALUES ($1)`, step.name)
		err := w.DB.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			at := func(n int) error {
				if step.at == n {
					return step.do(ctx, tx)
				}
				return nil
			}
			if err := at(0); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO changes VALUES ($1)`, fmt.Sprint(i)); err != nil {
				return err
			}
			if err := at(1); err != nil {
				return err
			}
			if err := event.Record(ctx, tx, event.System(w.guild).On(time.Now()), event.CaseCreated,
				map[string]any{"id": fmt.Sprint(i)}); err != nil {
				return err
			}
			return at(2)
		})
		if (err == nil) != (step.name == "nothing") {
			t.Fatalf("%s: %v", step.name, err)
		}
		if err == nil {
			committed++
		}
	}
	if n := w.count(`SELECT count(*) FROM changes`); n != committed {
		t.Errorf("%d changes, %d committed", n, committed)
	}
	for what, n := range map[string]int{
		"changes without their event": w.count(`SELECT count(*) FROM changes c WHERE NOT EXISTS (
			SELECT FROM webhook_events e WHERE convert_from(e.payload, 'UTF8')::jsonb -> 'data' ->> 'id' = c.id)`),
		"events without their change": w.count(`SELECT count(*) FROM webhook_events e WHERE NOT EXISTS (
			SELECT FROM changes c WHERE c.id = convert_from(e.payload, 'UTF8')::jsonb -> 'data' ->> 'id')`),
		"events without their fan-out": w.count(`SELECT count(*) FROM webhook_events e
			WHERE (SELECT count(*) FROM webhook_deliveries d WHERE d.event_id = e.id) <> 3`),
		"deliveries without their event": w.count(`SELECT count(*) FROM webhook_deliveries d WHERE NOT EXISTS (
			SELECT FROM webhook_events e WHERE e.id = d.event_id)`),
	} {
		if n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
}

// Workers killed in the middle of sends lose no delivery; their claimed deliveries are sent again,
// the same bytes with the same id. RELIABILITY.md, Events.
func TestKilledWorkersLoseNothing(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	r := w.receiveHTTP(func(http.ResponseWriter, *http.Request) { time.Sleep(30 * time.Millisecond) })
	const guilds, each = 10, 20
	for i := range guilds {
		guild := fmt.Sprint(500 + i)
		dbtest.AddGuilds(w.t, w.DB, guild)
		w.add(guild, r.URL)
		w.record(guild, each)
	}
	kills := 0
	for len(r.got()) < guilds*each/2 && kills < 4 {
		before := len(r.got())
		worker := exec.CommandContext(t.Context(), os.Args[0])
		worker.Env = append(os.Environ(), workerVariable+"="+w.URL)
		worker.Stderr = os.Stderr
		if err := worker.Start(); err != nil {
			t.Fatal(err)
		}
		w.until("the worker sends", func() bool { return len(r.got()) > before+3 })
		if err := worker.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = worker.Wait()
		kills++
	}
	if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE lease_until IS NOT NULL`); n == 0 {
		t.Fatal("the kills hit nobody in the middle of a send")
	}
	d := w.deliverer()
	d.lease = time.Second
	w.run(d)
	w.allArrive(r, guilds*each, kills*defaultSlots)
}

// The database goes down in the middle of deliveries and comes up again: the deliverer continues
// without a restart, no delivery is lost, and deliveries whose result was not recorded are sent
// again, the same bytes with the same id. RELIABILITY.md, Events.
func TestDeliveriesOutliveAnOutageOfTheDatabase(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	r := w.receiveHTTP(func(http.ResponseWriter, *http.Request) { time.Sleep(20 * time.Millisecond) })
	const events, outages = 400, 3
	w.add(w.guild, r.URL)
	w.record(w.guild, events)
	d := w.deliverer()
	d.lease = 2 * time.Second
	w.run(d)
	for range outages {
		before := len(r.got())
		w.until("deliveries go on", func() bool { return len(r.got()) > before+20 })
		w.outage(time.Second)
	}
	w.allArrive(r, events, outages*claimSize)
}

// allArrive waits until no delivery is pending. Then every event must have arrived and be marked as
// delivered, with at most most repetitions, which must have the same bytes.
func (w *deliveryDB) allArrive(r *receiver, events, most int) {
	t := w.t
	t.Helper()
	w.drain()
	if n := w.inState(StateDelivered); n != events {
		t.Errorf("%d of %d delivered", n, events)
	}
	bodies := make(map[string]string)
	for _, c := range r.got() {
		id := c.Header.Get(headerStandardID)
		if was, ok := bodies[id]; ok && was != string(c.Body) {
			t.Errorf("event %s came with two bodies", id)
		}
		bodies[id] = string(c.Body)
	}
	if len(bodies) != events {
		t.Errorf("%d of %d events arrived", len(bodies), events)
	}
	if double := len(r.got()) - len(bodies); double > most {
		t.Errorf("%d duplicates, want at most %d", double, most)
	}
}

// outage makes the database refuse all connections for a while.
func (w *deliveryDB) outage(length time.Duration) {
	w.t.Helper()
	u, err := url.Parse(w.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	u.Path = "/postgres"
	admin, err := db.OpenSQL(u.String(), "outage", 1)
	if err != nil {
		w.t.Fatal(err)
	}
	defer admin.Close()
	for _, statement := range []string{
		`ALTER DATABASE "` + name + `" ALLOW_CONNECTIONS false`,
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '` + name + `'`,
		fmt.Sprintf(`SELECT pg_sleep(%v)`, length.Seconds()),
		`ALTER DATABASE "` + name + `" ALLOW_CONNECTIONS true`,
	} {
		if _, err := admin.ExecContext(w.t.Context(), statement); err != nil {
			w.t.Fatal(err)
		}
	}
}

// Held deliveries are not dropped: when the endpoint is enabled again, all are sent in order.
// RELIABILITY.md, Events.
func TestHeldDeliveriesGoOutWhenTheEndpointIsEnabled(t *testing.T) {
	t.Parallel()
	backlogged := func(t *testing.T, off func(w *deliveryDB, e endpoint, r *receiver), cfg func(*Config)) {
		t.Helper()
		w := newDeliveryDB(t)
		r := w.receive(nil)
		e, _ := w.add(w.guild, r.URL)
		const backlog = 100
		for range backlog {
			w.record(w.guild, 1)
		}
		if cfg != nil {
			cfg(&w.cfg)
		}
		off(w, e, r)
		w.until("everything is held", func() bool { return w.inState(StateHeld) == backlog })
		if n := w.count(`SELECT count(*) FROM webhook_endpoints WHERE enabled`); n != 0 {
			t.Fatal("the endpoint is enabled")
		}
		before := len(r.got())
		r.respondWith(nil)
		w.enable(e, true)
		w.until("all are delivered", func() bool { return w.inState(StateDelivered) == backlog })
		// Up to sixteen sends run at a time, so an event may overtake up to fifteen earlier ones.
		var order []string
		if err := w.DB.Reader().SelectContext(t.Context(), &order, `SELECT event_id FROM webhook_deliveries ORDER BY id`); err != nil {
			t.Fatal(err)
		}
		for i, c := range r.got()[before:] {
			if at := slices.Index(order, c.Header.Get(headerStandardID)); at > i+2*quickSlots || at < i-2*quickSlots {
				t.Errorf("the %d-th to arrive is the %d-th in order", i, at)
			}
		}
	}
	t.Run("410", func(t *testing.T) {
		t.Parallel()
		backlogged(t, func(w *deliveryDB, _ endpoint, r *receiver) {
			r.respondWith(status(410))
			w.start(w.cfg)
		}, nil)
	})
	t.Run("by hand", func(t *testing.T) {
		t.Parallel()
		backlogged(t, func(w *deliveryDB, e endpoint, _ *receiver) {
			w.enable(e, false)
			w.start(w.cfg)
		}, nil)
	})
	t.Run("five days of failures", func(t *testing.T) {
		t.Parallel()
		c := &clock{t: time.Now().Add(time.Minute)}
		backlogged(t, func(w *deliveryDB, _ endpoint, r *receiver) {
			r.respondWith(status(500))
			w.start(w.cfg)
			failing := func() bool {
				return w.count(`SELECT count(*) FROM webhook_schedule WHERE failing_since IS NOT NULL`) == 1
			}
			w.until("the first failure", failing)
			for day := range 20 {
				if w.inState(StateHeld) > 0 {
					if day < 10 {
						w.t.Errorf("disabled after %d half days of failures", day)
					}
					break
				}
				made := w.count(`SELECT count(*) FROM webhook_attempts`)
				w.until("nothing is under way", func() bool {
					return w.count(`SELECT count(*) FROM webhook_deliveries WHERE lease_until IS NOT NULL`) == 0
				})
				c.advance(12 * time.Hour)
				w.until("another attempt", func() bool {
					return w.count(`SELECT count(*) FROM webhook_attempts`) > made || w.inState(StateHeld) > 0
				})
			}
			reason := ""
			if err := w.DB.Reader().GetContext(w.t.Context(), &reason,
				`SELECT coalesce(disabled_reason, '') FROM webhook_endpoints`); err != nil || reason != reasonFailing {
				w.t.Errorf("disabled because of %q, %v", reason, err)
			}
		}, func(cfg *Config) { cfg.Clock = c.now; cfg.Schedule = slices.Repeat(Schedule{time.Hour}, 90) })
	})
}

// While a secret is rotated again and again, a receiver with one of the last three secrets of the
// day can verify every event recorded since the receiver got the secret. RELIABILITY.md, Events.
func TestRotationNeverBreaksVerification(t *testing.T) {
	t.Parallel()
	const rotations = 30
	w := newDeliveryDB(t)
	var mu sync.Mutex
	var known []string
	var broken atomic.Int64
	r := w.receive(nil)
	r.respondWith(func(rw http.ResponseWriter, req *http.Request) {
		rw.WriteHeader(http.StatusNoContent)
		payload, err := io.ReadAll(req.Body)
		var body struct {
			Data struct{ Known int }
		}
		if err != nil || json.Unmarshal(payload, &body) != nil {
			broken.Add(1)
		}
		mu.Lock()
		secret := known[max(body.Data.Known-1-rand.IntN(2), 0)] // the secret at the time of the event, or the one before
		mu.Unlock()
		verifier, err := standard.NewWebhook(secret)
		if err != nil || verifier.Verify(payload, req.Header) != nil ||
			stripe.ValidatePayload(payload, req.Header.Get("Service-Signature"), secret) != nil {
			broken.Add(1)
		}
	})
	e, secret := w.add(w.guild, r.URL)
	known = []string{secret}
	d, _ := w.start(w.cfg)
	for range rotations {
		w.unit(func(ctx context.Context, tx *db.Tx) error {
			for range 2 {
				if err := event.Record(ctx, tx, event.System(w.guild).On(time.Now()), event.CaseCreated,
					map[string]int{"known": len(known)}); err != nil {
					return err
				}
			}
			return nil
		})
		d.wakeAll()
		secret = w.rotate(e)
		mu.Lock()
		known = append(known, secret)
		mu.Unlock()
		w.drain() // at most one rotation between an event and its sends
	}
	if n := len(r.got()); n != 2*rotations || broken.Load() != 0 {
		t.Errorf("%d of %d deliveries could not be verified, want 0 of %d", broken.Load(), n, 2*rotations)
	}

	var row struct {
		Secret     []byte `db:"secret"`
		OldSecrets []byte `db:"old_secrets"`
	}
	if err := w.DB.Reader().GetContext(t.Context(), &row, `SELECT secret, old_secrets FROM webhook_endpoints`); err != nil {
		t.Fatal(err)
	}
	for after, want := range map[time.Duration]int{0: 1 + MaxOldSecrets, 24*time.Hour + time.Minute: 1} {
		active, err := OpenSecrets(w.cfg.Box, w.guild, e.ID, row.Secret, row.OldSecrets, time.Now().Add(after))
		if err != nil || len(active) != want || active[0] != secret {
			t.Errorf("%s later %d secrets sign, want %d; %v", after, len(active), want, err)
		}
	}
}

// Each redelivery has its own attempts with the same event id; the retry schedule of the first
// delivery does not change. RELIABILITY.md, Events.
func TestEveryRedeliveryMakesOneChain(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	// Nine failed attempts block the endpoint, and a blocked endpoint waits long for its next
	// attempt. The test's clock is therefore advanced in steps.
	c := &clock{t: time.Now().Add(time.Minute)}
	w.cfg.Clock, w.cfg.Schedule = c.now, Schedule{time.Minute, time.Minute}
	r := w.receive(status(500))
	e, _ := w.add(w.guild, r.URL)
	d, _ := w.start(w.cfg)
	w.record(w.guild, 1)
	d.wakeAll()
	var first string
	w.until("the first attempt", func() bool { return w.count(`SELECT count(*) FROM webhook_attempts`) == 1 })
	if err := w.DB.Reader().GetContext(t.Context(), &first, `SELECT id FROM webhook_deliveries`); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second request is not ignored
		w.unit(func(ctx context.Context, tx *db.Tx) error {
			_, err := Redeliver(ctx, tx, w.guild, e.ID, first)
			return err
		})
	}
	w.until("all three gave up", func() bool { w.advanceIdle(c, 5*time.Second); return w.inState(StateFailed) == 3 })
	if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE attempts = 3`); n != 3 {
		t.Errorf("%d of 3 chains have three attempts", n)
	}
	if n := len(r.got()); n != 9 || r.distinct() != 1 {
		t.Errorf("%d requests with %d event ids, want 9 with 1", n, r.distinct())
	}

	// No redelivery is made to a deleted endpoint.
	w.remove(e)
	err := w.DB.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := Redeliver(ctx, tx, w.guild, e.ID, first)
		return err
	})
	if !errors.Is(err, error(noSuchEndpoint)) {
		t.Errorf("got %v, want not found", err)
	}
}

// If the attempt log cannot be written, results are still recorded, and the log gets the missing
// rows later. RELIABILITY.md, Events.
func TestTheLogCatchesUpAfterItFailed(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	r := w.receive(nil)
	w.add(w.guild, r.URL)
	w.exec(`ALTER TABLE webhook_attempts ADD CONSTRAINT broken CHECK (number < 0) NOT VALID`)
	d, _ := w.start(w.cfg)
	w.record(w.guild, 50)
	d.wakeAll()
	w.drain()
	if n := w.inState(StateDelivered); n != 50 || len(r.got()) != 50 {
		t.Errorf("%d delivered with %d requests, want 50 with 50", n, len(r.got()))
	}
	if n := w.count(`SELECT count(*) FROM webhook_attempts`); n != 0 {
		t.Fatalf("%d attempts were logged: the log did not fail", n)
	}
	w.exec(`ALTER TABLE webhook_attempts DROP CONSTRAINT broken`)
	w.until("the log is complete", func() bool {
		return w.count(`SELECT count(*) FROM webhook_attempts WHERE outcome = 'delivered' AND status = 204`) == 50
	})
	if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE unlogged IS NOT NULL`); n != 0 {
		t.Errorf("%d deliveries keep attempts put aside", n)
	}
}

// A delivery that cannot be sent fails soon with a reason, and the deliveries around it arrive. A
// secret that cannot be decrypted is different: its deliveries wait. RELIABILITY.md, Events.
func TestPoisonRowsEndAndHurtNobody(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	c := &clock{t: time.Now().Add(time.Minute)}
	w.cfg.Clock, w.cfg.Schedule = c.now, slices.Repeat(Schedule{20 * time.Millisecond}, 10)
	r := w.receive(nil)
	neighbour, _ := w.add(w.guild, r.URL)
	locked, _ := w.add(w.guild, r.URL)
	deleted, _ := w.add(w.guild, r.URL)
	w.record(w.guild, 3)
	sealed := dbtest.Value[[]byte](t, w.DB, `SELECT secret FROM webhook_endpoints WHERE id = $1`, locked.ID)
	w.exec(`UPDATE webhook_endpoints SET secret = '\x00', events = '{}' WHERE id = $1`, locked.ID)
	w.exec(`DELETE FROM webhook_endpoints WHERE id = $1`, deleted.ID) // as if its deliveries were recorded during its deletion
	w.record(w.guild, 2)
	w.exec(`UPDATE webhook_events SET payload = '{"id": broken' WHERE id = (SELECT max(id) FROM webhook_events)`)
	w.exec(`DELETE FROM webhook_events WHERE id = (SELECT id FROM webhook_events ORDER BY id DESC OFFSET 1 LIMIT 1)`)

	d, _ := w.start(w.cfg)
	w.until("the others are settled", func() bool { return w.inState(StatePending) == 3 })
	for range 5 {
		before := testutil.Sample(t, d.metrics.unreadable)
		w.until("the secret is tried again", func() bool {
			w.advanceIdle(c, unreadablePause+time.Second)
			return testutil.Sample(t, d.metrics.unreadable) > before
		})
	}
	if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = $1 AND state = 'pending' AND attempts = 0`,
		locked.ID); n != 3 {
		t.Errorf("%d of 3 wait for the secret without an attempt counted", n)
	}
	if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = $1 AND state = 'failed' AND error <> ''`,
		deleted.ID); n != 3 {
		t.Errorf("%d of the deleted endpoint's 3 failed with a reason", n)
	}
	if n := w.count(`
		SELECT count(*) FROM webhook_deliveries d
		JOIN webhook_attempts a ON a.guild_id = d.guild_id AND a.delivery_id = d.id
		WHERE d.endpoint_id = $1 AND d.state = 'failed' AND d.attempts = 1 AND a.outcome = 'invalid_payload'
		AND a.error <> ''`, neighbour.ID); n != 2 {
		t.Errorf("%d events that cannot be read, or are gone, failed with a reason, want 2", n)
	}
	if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = $1 AND state = 'delivered'`, neighbour.ID); n != 3 {
		t.Errorf("%d of the neighbour's 3 arrived", n)
	}
	if n := w.count(`SELECT count(*) FROM webhook_schedule WHERE failures > 0 OR failing_since IS NOT NULL`); n != 0 {
		t.Errorf("%d endpoints count as failing because of us", n)
	}
	w.exec(`UPDATE webhook_endpoints SET secret = $2 WHERE id = $1`, locked.ID, sealed)
	w.until("what waited arrives", func() bool {
		w.advanceIdle(c, unreadablePause+time.Second)
		return w.count(`SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = $1 AND state = 'delivered'`, locked.ID) == 3
	})
}
