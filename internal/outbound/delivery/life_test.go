package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/event"
)

// life is the model of an endpoint: its state after the commands so far. The model also says what
// may become of each delivery: a delivered or failed delivery never changes; a waiting delivery is
// held while the endpoint is disabled, and is sent while the endpoint is enabled, unless an answer
// of the receiver makes it wait for a later time. When the endpoint is deleted, its waiting
// deliveries fail.
type life struct {
	on, gone bool
	moves    int // how many times its URL has changed
}

// command is a command that changes the endpoint.
type command struct {
	*dbtest.Command
	effect func(life) life // nil means no effect
	maybe  bool            // the effect is not certain
	check  func()          // called after the command has succeeded with no other command running
	node   *node
}

// after adds to found the possible states of the endpoint after the commands, in any order.
func (s life) after(commands []*command, found map[life]bool) {
	if len(commands) == 0 {
		found[s] = true
	}
	for i, c := range commands {
		others := slices.Delete(slices.Clone(commands), i, i+1)
		if c.effect == nil || c.maybe || c.Err != nil {
			s.after(others, found)
		}
		if c.effect != nil {
			c.effect(s).after(others, found)
		}
	}
}

// lifeTest tests one endpoint. Commands run one at a time, or up to three at once: then each except
// the last stops between two of its statements until the next command has ended, has itself
// stopped, or waits for a lock; and a worker may die there.
type lifeTest struct {
	*deliveryDB
	life
	rt    *rapid.T
	nodes []*node
	e     endpoint
	now   time.Time
	since time.Time

	final   map[string]string // by delivery: delivered or failed
	told    int               // number of times that webhook.failing was emitted
	events  int               // number of events that must have a delivery
	closed  atomic.Bool       // the endpoint is disabled, and no running command may enable it
	opening bool              // a running command may enable it
	secrets struct {
		current string
		news    []string
	}
	mu     sync.Mutex
	broken []error // broken promises seen inside a command
}

// breaks records a broken promise.
func (l *lifeTest) breaks(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = append(l.broken, fmt.Errorf(format, args...))
}

// round runs commands at once and compares the result with the model.
func (l *lifeTest) round(commands []*command) {
	l.opening = slices.ContainsFunc(commands, func(c *command) bool { return c.Name == "enable" })
	if l.opening {
		l.closed.Store(false)
	}
	gated := make([]*dbtest.Command, len(commands))
	for i, c := range commands {
		gated[i] = c.Command
	}
	dbtest.Interleave(l.rt, l.DB, gated...)
	ran := slices.DeleteFunc(commands, func(c *command) bool { return !c.Ran() })
	for _, c := range ran {
		if c.Died {
			l.restart(c.node)
		}
	}
	l.compare(ran)
	if len(ran) == 1 && ran[0].Err == nil && ran[0].check != nil {
		ran[0].check()
	}
	l.holds()
}

// compare compares the endpoint with the states that the commands may have led to.
func (l *lifeTest) compare(ran []*command) {
	for _, c := range ran {
		if c.Err != nil && !c.Died && !errors.Is(c.Err, noSuchEndpoint) && !errors.Is(c.Err, noSuchDelivery) {
			l.rt.Fatalf("%s: %v", c.Name, c.Err)
		}
	}
	for _, err := range l.broken {
		l.rt.Fatal(err)
	}
	found, now := make(map[life]bool), life{gone: true}
	l.after(ran, found)
	var row struct {
		On    bool `db:"enabled"`
		Moves int  `db:"moves"`
	}
	err := l.DB.Reader().GetContext(l.rt.Context(), &row, `SELECT enabled, length(url) - $1 AS moves FROM webhook_endpoints`, len(l.e.URL))
	switch {
	case err == nil:
		now = life{on: row.On, moves: row.Moves}
	case db.Missing(err):
		now.moves = l.moves
		for s := range found { // a deleted endpoint does not show how many times its URL has changed
			if s.gone {
				now.moves = s.moves
			}
		}
	default:
		l.rt.Fatal(err)
	}
	if !found[now] {
		l.rt.Fatalf("the endpoint is %+v, was %+v, and may be %v", now, l.life, found)
	}
	l.life = now
	l.secrets.news = nil
	if !l.gone {
		if err := l.openable(); err != nil {
			l.rt.Fatal(err)
		}
	}
}

// openable decrypts the endpoint's current secret.
func (l *lifeTest) openable() error {
	sealed := dbtest.Value[[]byte](l.rt, l.DB, `SELECT secret FROM webhook_endpoints`)
	plain, err := l.cfg.Box.Open(sealed, BoundTo(l.guild, l.e.ID))
	l.secrets.current = string(plain)
	return err
}

// holds compares the database with the model after a command.
func (l *lifeTest) holds() {
	var rows []struct {
		ID    string `db:"id"`
		State string `db:"state"`
		Cause string `db:"cause"`
	}
	if err := l.DB.Reader().SelectContext(l.rt.Context(), &rows, `SELECT id, state, cause FROM webhook_deliveries`); err != nil {
		l.rt.Fatal(err)
	}
	events := 0
	for _, r := range rows {
		if was, ok := l.final[r.ID]; ok && was != r.State {
			l.rt.Fatalf("%s was %s and is %s", r.ID, was, r.State)
		}
		if r.State == StateDelivered || r.State == StateFailed {
			l.final[r.ID] = r.State
		}
		if r.Cause == "event" {
			events++
		}
	}
	if len(l.final) > len(rows) || events < l.events {
		l.rt.Fatalf("%d are settled, %d are there; %d events were recorded, %d have a delivery", len(l.final), len(rows), l.events, events)
	}
	if n := l.count(untrue, l.now); n > 0 {
		l.rt.Fatalf("the schedule is not true: %s", l.schedules())
	}
	l.reports()
}

// reports holds the events about the endpoint against what is promised: the endpoint gets none
// of them, a failure is told at most once an hour, a recovery only after a failure and once,
// and each time that the service has disabled the endpoint once.
func (l *lifeTest) reports() {
	var told []struct {
		Type string    `db:"type"`
		At   time.Time `db:"occurred_at"`
	}
	err := l.DB.Reader().SelectContext(l.rt.Context(), &told, `
		SELECT e.type, e.occurred_at
		FROM webhook_events e
		JOIN stream_deliveries d ON d.guild_id = e.guild_id AND d.event_id = e.id
		WHERE starts_with(e.type, 'webhook.')
		ORDER BY e.occurred_at, e.type`)
	if err != nil {
		l.rt.Fatal(err)
	}
	if n := l.count(`SELECT count(*) FROM webhook_deliveries WHERE starts_with(event_type, 'webhook.')`); n > 0 {
		l.rt.Fatalf("%d events about the endpoint are sent to it", n)
	}
	failing, recovered, disabled := []time.Time{}, 0, 0
	for _, e := range told {
		switch e.Type {
		case event.WebhookFailing:
			failing = append(failing, e.At)
		case event.WebhookRecovered:
			recovered++
		case event.WebhookDisabled:
			disabled++
		}
		if recovered > len(failing) {
			l.rt.Fatalf("a recovery is told without a failure before it: %v", told)
		}
	}
	for i := 1; i < len(failing); i++ {
		if failing[i].Sub(failing[i-1]) < time.Hour {
			l.rt.Fatalf("a failure is told twice within an hour: %v", told)
		}
	}
	if n := l.count(`SELECT count(*) FROM audit_log WHERE action = 'webhook.disabled' AND target_id = $1`, l.e.ID); n != disabled {
		l.rt.Fatalf("the service has disabled the endpoint %d times, and that is told %d times", n, disabled)
	}
	l.told = len(failing)
}

// untrue counts the deliveries that no worker would find at the instant $1, or would find too late:
// queued deliveries of an enabled endpoint whose schedule is due too late, and waiting deliveries
// of a disabled or deleted endpoint that will not be updated.
const untrue = `
	SELECT count(*)
	FROM webhook_deliveries w
	LEFT JOIN webhook_schedule s ON s.guild_id = w.guild_id AND s.endpoint_id = w.endpoint_id
	WHERE w.state = 'pending' AND w.lease_until IS NULL AND NOT w.fresh
	  AND (s.lane IS NULL OR coalesce(s.next_due, 'infinity') > CASE
	      WHEN s.disposition = 'send' AND NOT s.urgent THEN greatest(w.due_at, s.not_before, $1)
	      ELSE $1::timestamptz + interval '1 s'
	  END)
	   OR w.state = 'held' AND (s.lane IS NULL OR s.disposition = 'send' AND NOT s.releasing
	      OR s.disposition = 'drop' AND coalesce(s.next_due, 'infinity') > $1::timestamptz + interval '1 s')`

func (l *lifeTest) schedules() string {
	return dbtest.Value[string](l.t, l.DB, `SELECT coalesce(jsonb_agg(to_jsonb(s)), '[]')::text FROM webhook_schedule s`)
}

// ends lets time pass without further commands, with all workers dead, until nothing changes any
// more, and compares the database with the model: if the endpoint is deleted, no schedule and no
// waiting delivery is left; if it is disabled, every waiting delivery is held; if it is enabled,
// every delivery is complete. Meanwhile, FindStranded finds nothing.
func (l *lifeTest) ends() {
	last := l.nodes[0].d
	for round := range 60 {
		l.now = l.now.Add(time.Hour)
		l.follow(last)
		found, err := pollAll(l.rt.Context(), l.DB.Reader(), &l.now, endpointID{}, nil)
		if l.cfg.OneGuild {
			found, err = pollDistributed(l.rt.Context(), l.DB.Reader(), &l.now, endpointID{}, nil)
		}
		if err != nil {
			l.rt.Fatal(err)
		}
		for _, c := range found {
			take := 0
			if c.sendable() {
				take = 16
			}
			rows := l.takes(last, l.e, take)
			l.recordOutcome(last, rows, delivered, 0)
		}
		l.holds()
		pending, held := l.inState(StatePending), l.inState(StateHeld)
		if pending == 0 && (held == 0 || !l.on && !l.gone) && (!l.gone || l.count(`SELECT count(*) FROM webhook_schedule`) == 0) {
			break
		}
		if round == 59 {
			l.rt.Fatalf("on %v, gone %v: in the end there are %s; the schedule is %s", l.on, l.gone, l.states(), l.schedules())
		}
	}
	l.follow(last)
	if n := l.count(`SELECT count(*) FROM webhook_deliveries d
		WHERE attempts > (SELECT count(*) FROM webhook_attempts a WHERE a.guild_id = d.guild_id AND a.delivery_id = d.id)`); n > 0 {
		l.rt.Fatalf("of %d deliveries more attempts are counted than logged", n)
	}
	counted := l.count(`SELECT coalesce(sum(deliveries), 0) FROM webhook_hours WHERE outcome = 'delivered'`)
	if n := l.inState(StateDelivered); counted != n {
		l.rt.Fatalf("%d deliveries are counted by the hour, %d are delivered", counted, n)
	}
	if l.gone {
		return
	}
	want := map[bool]string{true: "send", false: "hold"}[l.on]
	if n := l.count(`SELECT count(*) FROM webhook_schedule
		WHERE disposition = $1 AND NOT urgent AND NOT releasing AND NOT recovered_passes`, want); n != 1 {
		l.rt.Fatalf("on %v: the schedule is %s", l.on, l.schedules())
	}
}

func (l *lifeTest) follow(d *Deliverer) {
	if err := d.follow(l.rt.Context()); err != nil {
		l.rt.Fatal(err)
	}
}

// The whole life of an endpoint, with commands in any order, commands between the statements of
// others, and workers that die there: in the end every delivery is complete or waits as the
// commands say, and no row is left over. RELIABILITY.md, Events.
func TestAnEndpointsLifeFollowsTheModel(t *testing.T) {
	t.Parallel()
	for _, oneGuild := range []bool{false, true} {
		t.Run(fmt.Sprintf("one guild a statement: %v", oneGuild), func(t *testing.T) {
			t.Parallel()
			lives(t, oneGuild)
		})
	}
}

// lives tries random sequences of commands. The flag -rapid.checks sets their number.
func lives(t *testing.T, oneGuild bool) {
	t.Helper()
	w := newDeliveryDB(t)
	w.cfg.OneGuild = w.cfg.OneGuild || oneGuild
	w.cfg.Show = func(_ context.Context, _ *db.Tx, _, endpoint string) (any, error) {
		return map[string]string{"webhook_id": endpoint}, nil
	}
	w.exec(`INSERT INTO bot_streams (id, name, events, echo) VALUES ('s', 's', $1, true)`, db.Array(event.Types))
	w.exec(`INSERT INTO stream_listeners (guild_id, stream_id, events, echo)
		VALUES ($1, 's', '{webhook.failing,webhook.recovered,webhook.disabled}', true)`, w.guild)
	reports := 0
	nodes := []*node{newNode(t, w.URL), newNode(t, w.URL), newNode(t, w.URL)}
	life := func(rt *rapid.T) {
		for _, table := range []string{
			"stream_deliveries", "webhook_attempts", "webhook_deliveries", "webhook_events", "webhook_schedule", "webhook_hours",
			"webhook_endpoints",
		} {
			w.exec(`DELETE FROM ` + table)
		}
		l := &lifeTest{deliveryDB: w, rt: rt, nodes: nodes, now: time.Now().Add(time.Hour), since: time.Now().Add(-time.Hour)}
		l.on, l.final = true, make(map[string]string)
		l.e, l.secrets.current = w.add(w.guild, "https://receiver.test/")
		if failing := rapid.SampledFrom([]time.Duration{0, 10 * time.Minute, time.Hour}).Draw(rt, "has failed for"); failing > 0 {
			w.exec(`UPDATE webhook_schedule SET failures = 4, failed_attempts = 4, failing_since = $1`, l.now.Add(-failing))
		}
		for _, n := range nodes {
			l.restart(n)
		}
		for range rapid.IntRange(1, 20).Draw(rt, "rounds") {
			l.round(l.draw())
		}
		l.ends()
		reports += l.told
	}
	for tries := 0; reports == 0; tries++ { // few lives have an endpoint that is told to fail
		if tries == 5 {
			t.Fatal("no endpoint was ever told to fail")
		}
		rapid.Check(t, life)
	}
}

func (l *lifeTest) restart(n *node) {
	cfg := l.cfg
	cfg.Clock, cfg.Schedule = func() time.Time { return l.now }, DefaultSchedule()[:5]
	if err := n.restart(cfg); err != nil {
		l.rt.Fatal(err)
	}
}

// unit returns a command in the unit of work of a request, which locks the endpoint's row before
// its schedule.
func (l *lifeTest) unit(n *node, work func(ctx context.Context, tx *db.Tx) error) func(context.Context) error {
	return func(ctx context.Context) error {
		return n.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			var one int
			err := tx.GetContext(ctx, &one, `SELECT 1 FROM webhook_endpoints WHERE guild_id = $1 AND id = $2 FOR NO KEY UPDATE`, l.guild, l.e.ID)
			if db.Missing(err) {
				return noSuchEndpoint
			}
			if err != nil {
				return err
			}
			return work(ctx, tx)
		})
	}
}

// engineUnit returns a command in a unit of work that does not lock the endpoint's row.
func (l *lifeTest) engineUnit(n *node, work func(ctx context.Context, tx *db.Tx) error) func(context.Context) error {
	return func(ctx context.Context) error { return n.db.Do(ctx, work) }
}

// event records some events, which are fresh for the endpoint if it is enabled.
func (l *lifeTest) event(n *node) *command {
	count := rapid.IntRange(1, 3).Draw(l.rt, "events")
	on := l.on
	c := called("event", nil)
	c.Run = l.engineUnit(n, func(ctx context.Context, tx *db.Tx) error {
		for i := range count {
			if err := event.Record(ctx, tx, event.System(l.guild).On(time.Now()), event.BalanceChanged, map[string]any{"delta": i}); err != nil {
				return err
			}
		}
		return nil
	})
	c.check = func() {
		if on {
			l.events += count
		}
	}
	return c
}
