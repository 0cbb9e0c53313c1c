package delivery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
)

// crowd adds n guilds with one endpoint each.
func (w *deliveryDB) crowd(first, n int, url func(i int) string) []string {
	w.t.Helper()
	guilds := make([]string, n)
	for i := range n {
		guilds[i] = fmt.Sprint(first + i)
		dbtest.AddGuilds(w.t, w.DB, guilds[i])
		w.add(guilds[i], url(i))
	}
	return guilds
}

// An endpoint that answers slowly and has a long backlog takes its own few slots and no others.
// RELIABILITY.md, Neighbours.
func TestASlowEndpointHurtsNobodyElse(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	const backlog, healthy = 1000, 20
	leave := make(chan struct{})
	var under, most atomic.Int64
	slowpoke := w.receive(func(http.ResponseWriter, *http.Request) {
		if n := under.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer under.Add(-1)
		select {
		case <-leave:
		case <-time.After(time.Minute):
		}
	})
	quick := w.receive(nil)
	w.add(w.guild, slowpoke.URL)
	guilds := w.crowd(300, healthy, func(int) string { return quick.URL })
	w.record(w.guild, backlog)
	d, stop := w.start(w.cfg)
	w.until("the slow endpoint is busy", func() bool { return under.Load() > 0 })
	for range 5 {
		for _, g := range guilds {
			w.record(g, 1)
		}
		d.wakeAll()
	}
	w.until("all others have theirs", func() bool { return quick.distinct() == 5*healthy })
	if n := slowpoke.distinct(); n > backlog/4 {
		t.Errorf("the slow endpoint got %d already: the others had to wait for it", n)
	}
	close(leave)
	stop()
	if n := most.Load(); n > quickSlots {
		t.Errorf("%d sends at once to one endpoint, want at most %d", n, quickSlots)
	}
}

// Nine of ten endpoints never answer; the tenth is not delayed, because a quarter of the slots is
// left. RELIABILITY.md, Neighbours.
func TestBlackHolesHurtNobodyElse(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	const dark, healthy = 90, 10
	w.cfg.Slots = 64 // fewer slots than silent endpoints
	w.cfg.Schedule = slices.Repeat(Schedule{50 * time.Millisecond}, 20)
	hole := blackHole(t)
	quick := w.receive(nil)
	lost := w.crowd(1000, dark, func(int) string { return "https://" + hole.Addr().String() })
	found := w.crowd(2000, healthy, func(int) string { return quick.URL })

	d := w.deliverer()
	d.client.Timeout = 1500 * time.Millisecond // instead of 15 s
	for _, g := range found {
		w.record(g, 1)
	}
	w.run(d)
	w.until("the healthy are known", func() bool { return quick.distinct() == healthy })
	for _, g := range lost {
		w.record(g, 5)
	}
	d.wakeAll()
	w.until("the slots fill up", func() bool { return d.limiter.inUse() >= 10 })
	spare := func() int {
		d.limiter.mu.Lock()
		defer d.limiter.mu.Unlock()
		return d.limiter.budget(time.Now()).unproven
	}
	const rounds = 15
	least := spare()
	for range rounds {
		for _, g := range found {
			w.record(g, 1)
		}
		d.wakeAll()
		for range 20 { // load over two timeouts of an attempt
			time.Sleep(5 * time.Millisecond)
			least = min(least, spare())
		}
	}
	w.until("the healthy have theirs", func() bool { return quick.distinct() == (rounds+1)*healthy })
	if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE state = 'delivered' AND guild_id = ANY ($1)`, dbArray(lost)); n != 0 {
		t.Fatalf("%d deliveries left a black hole", n)
	}
	if least < 0 {
		t.Errorf("those that never answer had %d slots of the quarter that is not for them", -least)
	}
	// Failing endpoints take at most a quarter of the slots once the limiter knows that they fail.
	w.until("a quarter at most", func() bool { return d.limiter.inUse() <= w.cfg.Slots/4+healthy })
	if n := w.count(`SELECT count(*) FROM webhook_schedule WHERE failures > 0`); n < dark/2 {
		t.Errorf("%d endpoints are known to fail", n)
	}
}

// A send that hangs delays no other endpoint: while the sends to nine of ten endpoints are running
// and none ends, the tenth gets all of its events. RELIABILITY.md, Neighbours.
func TestNoSendWaitsForOneThatHangs(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	const dark, healthy, rounds = 90, 10, 15
	w.cfg.Slots = 64 // fewer slots than silent endpoints
	leave := make(chan struct{})
	var hanging, ended atomic.Int64
	hole := w.receive(func(http.ResponseWriter, *http.Request) {
		hanging.Add(1)
		<-leave
		ended.Add(1)
	})
	quick := w.receive(nil)
	lost := w.crowd(1000, dark, func(int) string { return hole.URL })
	found := w.crowd(2000, healthy, func(int) string { return quick.URL })
	d := w.deliverer()
	d.client.Timeout, d.lease = time.Hour, 2*time.Hour // no send ends before the test lets it end
	w.run(d)
	for _, g := range lost {
		w.record(g, 5)
	}
	d.wakeAll()
	w.until("all the dark hang", func() bool { return hanging.Load() == dark })
	for range rounds {
		for _, g := range found {
			w.record(g, 1)
		}
		d.wakeAll()
	}
	w.until("the healthy have theirs", func() bool { return quick.distinct() == rounds*healthy })
	attempts := w.count(`SELECT count(*) FROM webhook_attempts WHERE guild_id = ANY ($1)`, dbArray(lost))
	if ended.Load() != 0 || attempts != 0 || hanging.Load() != dark {
		t.Errorf("meanwhile %d of %d sends that hang have ended, %d are written", ended.Load(), hanging.Load(), attempts)
	}
	close(leave)
	w.drain()
}

// Many events of one guild wait without delaying other guilds, and none is lost. RELIABILITY.md,
// Neighbours.
func TestAFloodIsDrainedBesideTheOthers(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	const flood, healthy = 2000, 10
	flooded := w.receive(func(http.ResponseWriter, *http.Request) { time.Sleep(5 * time.Millisecond) })
	quick := w.receive(nil)
	w.add(w.guild, flooded.URL)
	guilds := w.crowd(300, healthy, func(int) string { return quick.URL })
	w.record(w.guild, flood)
	d, _ := w.start(w.cfg)
	d.wakeAll()
	w.until("the flood flows", func() bool { return flooded.distinct() > 10 })
	for _, g := range guilds {
		w.record(g, 1)
	}
	d.wakeAll()
	w.until("the others have theirs", func() bool { return quick.distinct() == healthy })
	if n := flooded.distinct(); n == flood {
		t.Error("the flood was over before the others had theirs")
	}
	w.until("the flood is drained", func() bool { return w.inState(StateDelivered) == flood+healthy })
	if n := flooded.distinct(); n != flood || len(flooded.got()) != flood {
		t.Errorf("%d events in %d requests, want %d", n, len(flooded.got()), flood)
	}
}

// Redelivering a whole log is a backlog of one endpoint like any other: each request makes one
// delivery, and other endpoints are not delayed. RELIABILITY.md, Neighbours.
func TestAMassReplayRunsBesideTheOthers(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	const replays, healthy = 1000, 10
	replayed := w.receive(func(http.ResponseWriter, *http.Request) { time.Sleep(5 * time.Millisecond) })
	quick := w.receive(nil)
	e, _ := w.add(w.guild, replayed.URL)
	guilds := w.crowd(300, healthy, func(int) string { return quick.URL })
	w.record(w.guild, 1)
	d, _ := w.start(w.cfg)
	d.wakeAll()
	w.drain()
	first := dbtest.Value[string](t, w.DB, `SELECT id FROM webhook_deliveries`)
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		for range replays {
			if _, err := Redeliver(ctx, tx, w.guild, e.ID, first); err != nil {
				return err
			}
		}
		return nil
	})
	d.wakeAll()
	w.until("the replay flows", func() bool { return len(replayed.got()) > 10 })
	for _, g := range guilds {
		w.record(g, 1)
	}
	d.wakeAll()
	w.until("the others have theirs", func() bool { return quick.distinct() == healthy })
	if len(replayed.got()) > replays {
		t.Error("the replay was over before the others had theirs")
	}
	w.until("the replay is over", func() bool { return w.inState(StateDelivered) == 1+replays+healthy })
	if n := len(replayed.got()); n != 1+replays || replayed.distinct() != 1 {
		t.Errorf("%d requests with %d event ids, want %d with 1", n, replayed.distinct(), 1+replays)
	}
}

// After an outage, the retries of a backlog are spread over time, and use no more than the
// endpoint's slots. RELIABILITY.md, Neighbours.
func TestRetriesAreSpreadOut(t *testing.T) {
	t.Parallel()
	t.Run("jitter", func(t *testing.T) {
		t.Parallel()
		const backlog = 20_000
		random := rand.New(rand.NewPCG(3, 4))
		for attempt := 4; attempt <= 12; attempt++ { // pauses of ten minutes and more, as after an outage of an hour
			buckets := make(map[int64]int)
			for range backlog {
				d, _ := DefaultSchedule().next(attempt, random.Float64())
				buckets[int64(d/time.Second)]++
			}
			for second, n := range buckets {
				if n > backlog/20 {
					t.Errorf("after attempt %d, %d of %d fall into second %d", attempt, n, backlog, second)
				}
			}
		}
	})
	t.Run("recovery", func(t *testing.T) {
		t.Parallel()
		w := newDeliveryDB(t)
		c := &clock{t: time.Now().Add(time.Minute)}
		w.cfg.Clock, w.cfg.Schedule = c.now, DefaultSchedule()
		var under, most atomic.Int64
		r := w.receive(status(500))
		const backlog = 300
		w.add(w.guild, r.URL)
		w.record(w.guild, backlog)
		w.start(w.cfg)
		for range 12 { // an hour of outage
			made := len(r.got())
			w.until("another attempt fails", func() bool { w.advanceIdle(c, time.Minute); return len(r.got()) > made })
			w.advanceIdle(c, 5*time.Minute)
		}
		if n := len(r.got()); n > backlog {
			t.Errorf("%d attempts burnt during the outage: the block did not hold", n)
		}
		w.until("the last failure is settled", func() bool { // a send starts before its lease is visible
			return w.count(`SELECT count(*) FROM webhook_attempts`) == len(r.got())
		})
		outage := len(r.got())
		r.respondWith(func(http.ResponseWriter, *http.Request) {
			if n := under.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(2 * time.Millisecond)
			under.Add(-1)
		})
		c.advance(24 * time.Hour) // every delivery is due, and the block has ended
		w.until("all delivered", func() bool { return w.inState(StateDelivered) == backlog })
		if n := len(r.got()) - outage; n != backlog {
			t.Errorf("%d sends delivered %d", n, backlog)
		}
		if n := most.Load(); n > quickSlots {
			t.Errorf("%d at once, want at most %d", n, quickSlots)
		}
	})
}

// Several nodes share the deliveries, and none is sent twice without a failure. RELIABILITY.md,
// Events.
func TestSeveralNodesShareTheWorkWithoutDoubleSends(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	const guilds, each, nodes = 20, 40, 3
	r := w.receive(func(http.ResponseWriter, *http.Request) { time.Sleep(2 * time.Millisecond) })
	names := w.crowd(300, guilds, func(int) string { return r.URL })
	var all []*Deliverer
	for range nodes {
		d, _ := w.start(w.cfg)
		all = append(all, d)
	}
	var wg sync.WaitGroup
	for i, g := range names {
		wg.Go(func() {
			for range each {
				w.record(g, 1)
				all[i%nodes].wakeAll()
			}
		})
	}
	wg.Wait()
	w.drain()
	if n := len(r.got()); n != guilds*each || r.distinct() != n {
		t.Errorf("%d requests with %d events, want %d", n, r.distinct(), guilds*each)
	}
	working := 0
	for _, d := range all {
		if testutil.Sample(t, d.metrics.attempts.WithLabelValues(string(delivered))) > 0 {
			working++
		}
	}
	if working != nodes {
		t.Errorf("%d of %d nodes did something", working, nodes)
	}
}

// Run waits for its current sends when it ends, and leaves no lease behind. RELIABILITY.md,
// Operation.
func TestRunEndsWithItsWorkSettled(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	var under atomic.Int64
	r := w.receive(func(http.ResponseWriter, *http.Request) {
		under.Add(1)
		time.Sleep(500 * time.Millisecond)
	})
	names := w.crowd(300, 10, func(int) string { return r.URL })
	for _, g := range names {
		w.record(g, 3)
	}
	_, stop := w.start(w.cfg)
	w.until("all are under way", func() bool { return under.Load() >= 10 })
	stop()
	if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE lease_until IS NOT NULL`); n != 0 {
		t.Errorf("%d leases are left behind", n)
	}
	if got, settled := len(r.got()), w.inState(StateDelivered); got != settled || got < 10 {
		t.Errorf("%d sent, %d settled", got, settled)
	}
}
