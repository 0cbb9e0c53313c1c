package delivery

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/event"
)

// addPull registers a pull endpoint that subscribes to all events.
func (w *deliveryDB) addPull(guild string) endpoint {
	w.t.Helper()
	e := endpoint{GuildID: guild, ID: db.NewID()}
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `
			INSERT INTO webhook_endpoints (guild_id, id, delivery, url, events, secret, secret_preview)
			VALUES ($1, $2, 'pull', '', $3, '', '')`, guild, e.ID, db.Array(event.Types))
		if err != nil {
			return err
		}
		return Register(ctx, tx, guild, e.ID, true, true)
	})
	return e
}

// Whatever is done with a pull endpoint, no poll and no claim finds its waiting deliveries, and
// nothing makes the endpoint due. RELIABILITY.md, Events.
func TestNobodySendsWhatIsKeptForAPullEndpoint(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e := w.addPull(w.guild)
	d := w.deliverer()
	start := func(c claimed, begun func(), _ <-chan struct{}) {
		t.Errorf("%s was claimed", c.ID)
		begun()
	}
	unseen := func(when string) {
		t.Helper()
		d.wakeups.addAll()
		d.wakeups.add(w.guild)
		for range 2 { // one poll of the guild, one of everything
			if _, err := d.claim(t.Context(), start); err != nil {
				t.Fatal(err)
			}
			d.wakeups.addAll()
		}
		if stranded, err := FindStranded(t.Context(), w.DB.Reader(), 1); err != nil || len(stranded) != 0 {
			t.Errorf("%s the endpoint counts as stranded: %v, %v", when, stranded, err)
		}
		if n := w.count(`SELECT count(*) FROM webhook_schedule
			WHERE disposition = 'pull' AND (next_due IS NOT NULL OR urgent OR lane < 4)`); n != 0 {
			t.Errorf("%s the endpoint is due", when)
		}
		if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE fresh OR urgent OR lease_until IS NOT NULL`); n != 0 {
			t.Errorf("%s, %d deliveries are the engine's", when, n)
		}
		if due, err := OldestDue(t.Context(), w.DB); err != nil || due != 0 {
			t.Errorf("%s the oldest delivery has been due for %s, %v", when, due, err)
		}
	}
	w.record(w.guild, 3)
	unseen("with events")
	var got Fetched
	w.unit(func(ctx context.Context, tx *db.Tx) (err error) {
		got, err = Fetch(ctx, tx, w.guild, e.ID, "somebody", 2, time.Millisecond)
		return err
	})
	if len(got.Events) != 2 || !got.More {
		t.Fatalf("fetched %d, more: %v", len(got.Events), got.More)
	}
	unseen("after a lease")
	by := event.System(w.guild)
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		_, err := Ping(ctx, tx, by, e.ID)
		return err
	})
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		_, err := Recover(ctx, tx, w.guild, e.ID, time.Now().Add(-time.Hour), 10)
		return err
	})
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		_, err := Redeliver(ctx, tx, w.guild, e.ID, dbtest.Value[string](t, w.DB, `SELECT min(id) FROM webhook_deliveries`))
		return err
	})
	unseen("after a test and a redelivery")
	w.enable(e, false)
	w.follows(d)
	if n := w.inState(StateHeld); n != 5 {
		t.Errorf("%d deliveries are held, want 5", n)
	}
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		_, err := Ping(ctx, tx, by, e.ID)
		return err
	})
	unseen("disabled")
	w.enable(e, true)
	w.unit(func(ctx context.Context, tx *db.Tx) error { return ResetHealth(ctx, tx, w.guild, e.ID) })
	w.follows(d)
	unseen("enabled")
	if n := w.inState(StatePending); n != 6 {
		t.Errorf("%d deliveries can be fetched, want 6", n)
	}
	w.remove(e)
	w.follows(d)
	if w.inState(StateFailed) != 6 || w.count(`SELECT count(*) FROM webhook_schedule`) != 0 {
		t.Errorf("after its end: %s", w.states())
	}
}

// A pull endpoint is complete since the commit of its registration, not since the start of the
// registration: an event in between is not stored for the endpoint. The same is true when the
// endpoint is enabled again, or subscribes to more types of events.
func TestAPullEndpointIsCompleteSinceACommit(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	d := w.deliverer()
	e := w.addPull(w.guild)
	w.exec(`DELETE FROM webhook_schedule`)
	for name, change := range map[string]func(ctx context.Context, tx *db.Tx) error{
		"registered": func(ctx context.Context, tx *db.Tx) error { return Register(ctx, tx, w.guild, e.ID, true, true) },
		"enabled":    func(ctx context.Context, tx *db.Tx) error { return Enable(ctx, tx, w.guild, e.ID) },
		"widened":    func(ctx context.Context, tx *db.Tx) error { return Widen(ctx, tx, w.guild, e.ID) },
	} {
		var missed time.Time
		w.unit(func(ctx context.Context, tx *db.Tx) error {
			w.exec(`DELETE FROM webhook_schedule`)
			if name != "registered" {
				w.unit(func(ctx context.Context, tx *db.Tx) error { return Register(ctx, tx, w.guild, e.ID, true, true) })
				w.follows(d)
			}
			if err := change(ctx, tx); err != nil {
				return err
			}
			missed = dbtest.Value[time.Time](t, w.DB, `SELECT clock_timestamp()`)
			return nil
		})
		var before, after Fetched
		w.unit(func(ctx context.Context, tx *db.Tx) (err error) {
			before, err = Fetch(ctx, tx, w.guild, e.ID, "somebody", 1, time.Minute)
			return err
		})
		w.follows(d)
		w.unit(func(ctx context.Context, tx *db.Tx) (err error) {
			after, err = Fetch(ctx, tx, w.guild, e.ID, "somebody", 1, time.Minute)
			return err
		})
		if !before.Complete.After(missed) || !after.Complete.Equal(before.Complete) {
			t.Errorf("%s: an event of %s was not kept, and the endpoint is complete since %s, and since %s later",
				name, missed, before.Complete, after.Complete)
		}
	}
}

// A pull endpoint that nobody fetches from for 7 days is disabled, with a reason. An endpoint with
// a later fetch is not disabled, nor is an endpoint that events are sent to.
func TestAPullEndpointThatNobodyFetchesFromIsDisabled(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	off := w.addPull(w.guild)
	w.enable(off, false)
	unread, read := w.addPull(w.guild), w.addPull(w.guild)
	pushed, _ := w.add(w.guild, w.receive(nil).URL)
	w.exec(`UPDATE webhook_schedule SET fetched_at = now() - make_interval(days => 7, mins => CASE WHEN endpoint_id = $1 THEN 1 ELSE -1 END)`,
		unread.ID)
	w.exec(`UPDATE webhook_schedule SET fetched_at = now() - interval '8 days' WHERE endpoint_id = $1`, pushed.ID)
	d := w.deliverer()
	err := d.disableUnfetched(t.Context())
	for _, e := range []endpoint{read, pushed} { // as if a fetch came between the search and the lock
		err = errors.Join(err, d.disableIfUnfetched(t.Context(), backlog{GuildID: e.GuildID, EndpointID: e.ID}))
	}
	if err != nil {
		t.Fatal(err)
	}
	is := func(e endpoint) string {
		return dbtest.Value[string](t, w.DB, `SELECT format('%s %s', enabled, disabled_reason) FROM webhook_endpoints WHERE id = $1`, e.ID)
	}
	if is(unread) != "f not_fetched" || is(read) != "t " || is(pushed) != "t " {
		t.Errorf("the endpoints are %q, %q and %q", is(unread), is(read), is(pushed))
	}
	if n := w.count(`SELECT count(*) FROM audit_log WHERE action = 'webhook.disabled' AND target_id = $1`, unread.ID); n != 1 {
		t.Errorf("%d lines tell of it", n)
	}
}

// kept is the model of one event that is stored for a pull endpoint.
type kept struct {
	at      time.Time // when the event happened
	fetched bool      // some fetch has returned the event
	leased  time.Time // end of its lease
	settled bool
	expired bool // failed because it was not fetched within 30 days
}

// pullModel is a minimal model of a pull endpoint.
type pullModel struct {
	rt      *rapid.T
	w       *deliveryDB
	e       endpoint
	now     time.Time
	events  map[string]*kept
	enabled bool
	since   time.Time // when the endpoint was last enabled
	asked   time.Time // when the endpoint was last fetched from or enabled
	foreign string    // an event that this endpoint does not have
}

// fetchable returns the ids of exactly the events that a fetch may return.
func (m *pullModel) fetchable() (ids []string) {
	for id, k := range m.events {
		if m.enabled && !k.settled && !k.expired && !k.leased.After(m.now) && m.now.Sub(k.at) <= keep {
			ids = append(ids, id)
		}
	}
	return ids
}

func (m *pullModel) do(work func(ctx context.Context, tx *db.Tx) error) {
	if err := m.w.DB.Do(context.Background(), work); err != nil && !errors.Is(err, errCrash) {
		m.rt.Fatal(err)
	}
}

// errCrash rolls a unit of work back, as a crash of its node does.
var errCrash = errors.New("the node has crashed")

func (m *pullModel) record() {
	n := rapid.IntRange(1, 4).Draw(m.rt, "events")
	before := m.ids()
	m.do(func(ctx context.Context, tx *db.Tx) error {
		for range n {
			if err := event.Record(ctx, tx, event.System(m.w.guild).On(m.now), event.CaseCreated, 1); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, `UPDATE webhook_deliveries SET due_at = $2
			WHERE guild_id = $1 AND due_at > $2 AND lease_gen = 0`, m.w.guild, m.now)
		return err
	})
	for _, id := range m.ids() {
		if !slices.Contains(before, id) && m.enabled {
			m.events[id] = &kept{at: m.now}
		}
	}
}

// ids returns the ids of the endpoint's events.
func (m *pullModel) ids() (ids []string) {
	err := m.w.DB.Reader().SelectContext(context.Background(), &ids,
		`SELECT event_id FROM webhook_deliveries WHERE guild_id = $1 AND endpoint_id = $2`, m.w.guild, m.e.ID)
	if err != nil {
		m.rt.Fatal(err)
	}
	return ids
}

// fetch fetches events. The caller may disappear before the response, and the node may crash before
// the commit.
func (m *pullModel) fetch() {
	limit := rapid.IntRange(1, 6).Draw(m.rt, "limit")
	lease := time.Duration(rapid.SampledFrom([]int{10, 60, 600}).Draw(m.rt, "lease")) * time.Second
	crash := rapid.IntRange(0, 9).Draw(m.rt, "crash") == 0
	may := m.fetchable()
	var got Fetched
	m.do(func(ctx context.Context, tx *db.Tx) (err error) {
		if got, err = fetch(ctx, tx, &m.now, m.w.guild, m.e.ID, "caller", limit, lease); err == nil && crash {
			got, err = Fetched{}, errCrash
		}
		return err
	})
	if crash {
		return
	}
	if m.enabled {
		m.asked = m.now
	}
	if want := later(m.since, m.now.Add(-keep)); !got.Complete.Equal(want) {
		m.rt.Fatalf("complete since %s, want %s", got.Complete, want)
	}
	for _, payload := range got.Events {
		id := idOf(m.rt, payload)
		if !slices.Contains(may, id) {
			m.rt.Fatalf("%s was fetched: %+v at %s", id, m.events[id], m.now)
		}
		m.events[id].fetched, m.events[id].leased = true, m.now.Add(lease)
	}
	expired := false
	for id, k := range m.events {
		if m.now.Sub(k.at) > keep && !k.settled {
			expired, k.expired = true, m.givenUp(id)
		}
	}
	if left := len(m.fetchable()); len(got.Events) < min(limit, len(may)) && !got.More || got.More != (left > 0) && !expired {
		m.rt.Fatalf("fetched %d of %d, more: %v, left: %d", len(got.Events), len(may), got.More, left)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (m *pullModel) givenUp(id string) bool {
	return m.w.count(`SELECT count(*) FROM webhook_deliveries WHERE guild_id = $1 AND event_id = $2 AND endpoint_id = $3 AND state = 'failed'`,
		m.w.guild, id, m.e.ID) == 1
}

func idOf(rt *rapid.T, payload []byte) string {
	const head = `{"id":"`
	if len(payload) < len(head)+36 {
		rt.Fatalf("this is no event: %s", payload)
	}
	return string(payload[len(head) : len(head)+36])
}

// acknowledge names events of the endpoint and other events, once or twice.
func (m *pullModel) acknowledge() {
	draw := func(what string) []string {
		all := append(slices.Sorted(maps.Keys(m.events)), m.foreign, "garbage", "ünï")
		return rapid.SliceOfNDistinct(rapid.SampledFrom(all), 0, min(8, len(all)), rapid.ID[string]).Draw(m.rt, what)
	}
	settle, back := draw("settle"), draw("give back")
	crash := rapid.IntRange(0, 9).Draw(m.rt, "crash") == 0
	settled, returned := 0, 0
	m.do(func(ctx context.Context, tx *db.Tx) (err error) {
		settled, returned, err = acknowledge(ctx, tx, &m.now, m.w.guild, m.e.ID, slices.Clone(settle), slices.Clone(back))
		if err == nil && crash {
			err = errCrash
		}
		return err
	})
	if crash {
		return
	}
	for _, id := range settle {
		if k := m.events[id]; k != nil && k.fetched && !k.settled && !k.expired {
			k.settled = true
			settled--
		}
	}
	for _, id := range back {
		if k := m.events[id]; k != nil && m.enabled && k.fetched && !k.settled && k.leased.After(m.now) {
			k.leased = m.now
			returned--
		}
	}
	if settled != 0 || returned != 0 {
		m.rt.Fatalf("%d too many count as settled, %d as given back", settled, returned)
	}
}

// toggle disables or enables the endpoint, and updates its waiting deliveries.
func (m *pullModel) toggle(d *Deliverer) {
	m.enabled = !m.enabled
	m.do(func(ctx context.Context, tx *db.Tx) error {
		if m.enabled {
			return Enable(ctx, tx, m.w.guild, m.e.ID)
		}
		return Disable(ctx, tx, m.w.guild, m.e.ID, "")
	})
	// Copy the instants that the database has set into the model.
	if m.enabled {
		m.set()
	}
	m.follow(d)
}

// follow updates the waiting deliveries of the endpoint.
func (m *pullModel) follow(d *Deliverer) {
	m.w.exec(`UPDATE webhook_schedule SET next_due = $1 WHERE next_due > $1`, m.now)
	if err := d.follow(context.Background()); err != nil {
		m.rt.Fatal(err)
	}
	for _, k := range m.events {
		if !m.enabled {
			k.leased = time.Time{} // a held delivery has no lease
		}
	}
}

// set stores in the model the instant since which the endpoint is enabled.
func (m *pullModel) set() {
	m.since, m.asked = m.now, m.now
	m.w.exec(`UPDATE webhook_schedule SET fetched_at = $2, complete_since = $2 WHERE endpoint_id = $1`, m.e.ID, m.now)
}

// tidy deletes old events and disables an endpoint without fetches.
func (m *pullModel) tidy(d *Deliverer) {
	if err := errors.Join(d.prune(context.Background()), d.disableUnfetched(context.Background())); err != nil {
		m.rt.Fatal(err)
	}
	if off := m.w.count(`SELECT count(*) FROM webhook_endpoints WHERE id = $1 AND NOT enabled`, m.e.ID) == 1; off && m.enabled {
		if m.now.Sub(m.asked) < unfetchedFor {
			m.rt.Fatalf("the endpoint was disabled %s after a fetch", m.now.Sub(m.asked))
		}
		m.enabled = false
		m.follow(d)
	} else if m.enabled && m.now.Sub(m.asked) > unfetchedFor+fetchNoted {
		m.rt.Fatalf("the endpoint is enabled %s after a fetch", m.now.Sub(m.asked))
	}
	there := m.ids()
	for id, k := range m.events {
		switch {
		case !slices.Contains(there, id):
			if !k.settled && m.now.Sub(k.at) <= keep {
				m.rt.Fatalf("%s was lost after %s", id, m.now.Sub(k.at))
			}
			delete(m.events, id)
		case !k.settled && m.givenUp(id):
			if m.now.Sub(k.at) <= keep {
				m.rt.Fatalf("%s was given up after %s", id, m.now.Sub(k.at))
			}
			k.expired = true
		}
	}
}

// Whatever callers and nodes do, a stored event can be fetched again until it is acknowledged,
// never by two callers at a time and never after its acknowledgement, and no event is lost within
// 30 days. RELIABILITY.md, Events.
func TestWhatIsKeptIsFetchedUntilItIsAcknowledged(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	start := time.Now().Truncate(time.Millisecond)
	rapid.Check(t, func(rt *rapid.T) {
		w.exec(`DELETE FROM webhook_endpoints WHERE guild_id = $1`, w.guild)
		w.exec(`DELETE FROM webhook_schedule WHERE guild_id = $1`, w.guild)
		w.exec(`DELETE FROM webhook_deliveries WHERE guild_id = $1`, w.guild)
		other := w.addPull(w.guild)
		w.record(w.guild, 1)
		foreign := dbtest.Value[string](t, w.DB, `SELECT event_id FROM webhook_deliveries WHERE guild_id = $1`, w.guild)
		w.enable(other, false)
		m := &pullModel{rt: rt, w: w, e: w.addPull(w.guild), now: start, events: make(map[string]*kept), enabled: true, foreign: foreign}
		m.set()
		cfg := w.cfg
		cfg.Clock = func() time.Time { return m.now }
		d, err := New(cfg)
		if err != nil {
			rt.Fatal(err)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"record":      func(*rapid.T) { m.record() },
			"fetch":       func(*rapid.T) { m.fetch() },
			"fetch again": func(*rapid.T) { m.fetch() },
			"acknowledge": func(*rapid.T) { m.acknowledge() },
			"toggle":      func(*rapid.T) { m.toggle(d) },
			"tidy":        func(*rapid.T) { m.tidy(d) },
			"time goes by": func(rt *rapid.T) {
				seconds := rapid.SampledFrom([]int{1, 10, 60, 600, 86_400, 6 * 86_400, 31 * 86_400}).Draw(rt, "seconds")
				m.now = m.now.Add(time.Duration(seconds) * time.Second)
			},
		})
	})
}

// Statements that run often read an index, however many deliveries wait elsewhere.
func TestFetchingReadsAnIndex(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e := w.addPull(w.guild)
	now := time.Now()
	w.exec(`
		INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, fresh, state)
		SELECT $1, CASE WHEN i % 3 = 0 THEN $2 ELSE 'other' END, 'v' || i, false, CASE WHEN i % 2 = 0 THEN 'pending' ELSE 'delivered' END
		FROM generate_series(1, 5000) AS i`, w.guild, e.ID)
	w.exec(`ANALYZE webhook_deliveries`)
	if plan := dbtest.Plan(t, w.DB, findWaiting, w.guild, e.ID, now, 100, now); !strings.Contains(plan, "webhook_deliveries_pending") {
		t.Errorf("what can be fetched is not found by its index:\n%s", plan)
	}
	if !w.DB.Distributed() {
		dbtest.WantIndex(t, w.DB, "webhook_deliveries_pending", findFetchable, dbArray([]string{w.guild}), dbArray([]string{e.ID}))
	}
	dbtest.WantIndex(t, w.DB, "webhook_deliveries_event", settleFetched, w.guild, e.ID, dbArray([]string{"x"}), now)
	dbtest.WantIndex(t, w.DB, "webhook_deliveries_event", returnFetched, w.guild, e.ID, dbArray([]string{"x"}), now)
	dbtest.WantIndex(t, w.DB, "webhook_schedule_fetched", findUnfetched, nil, unfetchedFor.Seconds(), chunk)
}

// A poll wakes the callers whose endpoints have due deliveries, and no others.
func TestALookForWaitersFindsWhatIsDue(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	due, leased, ended := w.addPull(w.guild), w.addPull(w.guild), w.addPull(w.guild)
	w.addPull(w.guild) // one that no caller waits for
	w.record(w.guild, 2)
	w.exec(`UPDATE webhook_deliveries SET due_at = now() + interval '1 minute' WHERE endpoint_id = $1`, leased.ID)
	w.exec(`UPDATE webhook_deliveries SET state = 'delivered', completed_at = now() WHERE endpoint_id = $1`, ended.ID)
	endpoints := []string{due.ID, leased.ID, ended.ID, w.addPull(w.guild).ID}
	for _, statement := range []string{findFetchable, findFetchableAcross} {
		if w.DB.Distributed() && statement == findFetchable {
			continue
		}
		found, err := db.Select[backlog](t.Context(), w.DB.Reader(), statement,
			db.Array(slices.Repeat([]string{w.guild}, len(endpoints))), db.Array(endpoints))
		if err != nil || len(found) != 1 || found[0].EndpointID != due.ID {
			t.Errorf("found are %v, %v, want %s", found, err, due.ID)
		}
	}
}

// A response holds at most a megabyte of events, but always one event, however large.
func TestAnAnswerHoldsAMegabyte(t *testing.T) {
	t.Parallel()
	of := func(sizes ...int) (found []waiting) {
		for _, n := range sizes {
			found = append(found, waiting{ID: "x", Bytes: n})
		}
		return found
	}
	for _, c := range []struct {
		found []waiting
		take  int
		more  bool
	}{
		{of(), 0, false},
		{of(10, 10), 2, false},
		{of(10, 10, 10, 10), 3, true},
		{of(pullBytes), 1, false},
		{of(pullBytes*2, 1), 1, true},
		{of(1<<20-1000, 100), 2, false},
		{of(1<<20-100, 100), 1, true},
		{of(pullBytes-10, 8), 2, false},
		{of(pullBytes-10, 9), 1, true},
	} {
		ids, _, more := choose(c.found, 3)
		if len(ids) != c.take || more != c.more {
			t.Errorf("of %v: %d, more: %v", c.found, len(ids), more)
		}
	}
	ids, expired, more := choose([]waiting{{ID: "old", Expired: true}, {ID: "new", Bytes: 1}}, 3)
	if len(ids) != 1 || len(expired) != 1 || expired[0] != "old" || more {
		t.Errorf("%v, %v, %v", ids, expired, more)
	}
}

// Fetching, acknowledging and returning events of one endpoint changes nothing of another endpoint
// that has fetched the same events.
func TestAFetchIsOfOneEndpoint(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, other := w.addPull(w.guild), w.addPull(w.guild)
	w.record(w.guild, 3)
	fetch := func(of endpoint) {
		t.Helper()
		w.unit(func(ctx context.Context, tx *db.Tx) error {
			got, err := Fetch(ctx, tx, w.guild, of.ID, "somebody", 10, time.Minute)
			if err != nil || len(got.Events) != 3 || got.More {
				t.Errorf("fetched %d, more: %v, %v", len(got.Events), got.More, err)
			}
			return err
		})
	}
	fetch(other)
	w.exec(`UPDATE webhook_schedule SET fetched_at = now() - interval '1 hour'`)
	was := w.stored(other)
	fetch(e)
	if is := w.stored(other); is != was {
		t.Errorf("by a fetch of another endpoint\n%s\nhas become\n%s", was, is)
	}
	events := strings.Split(dbtest.Value[string](t, w.DB, `SELECT string_agg(id, ' ') FROM webhook_events`), " ")
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		settled, returned, err := Acknowledge(ctx, tx, w.guild, e.ID, events[:2], events[2:])
		if err != nil || settled != 2 || returned != 1 {
			t.Errorf("%d are acknowledged and %d given back, %v", settled, returned, err)
		}
		return err
	})
	if is := w.stored(other); is != was {
		t.Errorf("by an acknowledgement of another endpoint\n%s\nhas become\n%s", was, is)
	}
}
