package delivery

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/event"
)

// life is the model of an endpoint: what was decided about it, and what every
// delivery may still become. A delivery that has once been delivered or failed stays
// so; one that waits is held while the endpoint is off, and goes out while it is on,
// unless a receiver's answers have it wait for its time. With the endpoint everything
// that waits is given up.
type life struct {
	on, gone bool
	final    map[string]string // by delivery: delivered or failed
	hand     []claimed         // leases of workers that may still settle, or have died
}

// lifeTest drives one endpoint. Commands come one at a time, each in a transaction of
// its own, so that any of them may lie between two statements of another: between the
// claim of a delivery and its result, between a command and what follows from it.
type lifeTest struct {
	*deliveryDB
	life
	rt    *rapid.T
	d     *Deliverer
	e     endpoint
	now   time.Time
	since time.Time
}

func (l *lifeTest) unitOf(work func(ctx context.Context, tx *db.Tx) error) {
	if !l.gone {
		l.unit(work)
	}
}

// record tells of an event, which is fresh for the endpoint if it is on.
func (l *lifeTest) event() { l.record(l.guild, rapid.IntRange(1, 3).Draw(l.rt, "events")) }

func (l *lifeTest) claim() {
	rows := l.takes(l.d, l.e, rapid.IntRange(1, 4).Draw(l.rt, "slots"))
	for _, c := range rows {
		if state, ok := l.final[c.ID]; ok {
			l.rt.Fatalf("%s is sent though it is %s", c.ID, state)
		}
		if c.Cause != "test" && !l.on {
			l.rt.Fatalf("%s is sent to an endpoint that is off", c.ID)
		}
	}
	l.hand = append(l.hand, rows...)
}

// answer settles one delivery that is in hand; the worker may have lost its lease.
func (l *lifeTest) answer() {
	if len(l.hand) == 0 {
		return
	}
	i := rapid.IntRange(0, len(l.hand)-1).Draw(l.rt, "which")
	c := l.hand[i]
	l.hand = slices.Delete(l.hand, i, i+1)
	v, unsent := l.d.unsent(c)
	if !unsent {
		o := rapid.SampledFrom([]outcome{delivered, delivered, serverError, timedOut, throttled, badAddress, gone}).Draw(l.rt, "answer")
		pause := time.Duration(0)
		if o == throttled {
			pause = time.Duration(rapid.IntRange(0, 90).Draw(l.rt, "retry after")) * time.Second
		}
		v = l.d.schedule.judge(c.Step, o, pause, 0.5)
	}
	if rapid.IntRange(0, 9).Draw(l.rt, "frozen") == 0 {
		v = decision{State: StatePending, Step: c.Step}
	}
	l.d.limiter.end(c, v, time.Now())
	r := result{
		GuildID: c.GuildID, ID: c.ID, EndpointID: c.EndpointID, LeaseGen: c.LeaseGen, State: v.State, PauseMs: v.Pause.Milliseconds(),
		Step: v.Step, Logged: v.Logged, StartedAt: l.now, Outcome: v.Outcome, decision: v, quiet: c.Quiet, suspect: c.Suspect,
		recoveredAt: c.RecoveredAt,
	}
	if c.URL != nil {
		r.url = *c.URL
	}
	if v.Error != "" {
		r.Reason = &v.Error
	}
	if err := l.d.settleOnce(l.rt.Context(), []result{r}); err != nil {
		l.rt.Fatal(err)
	}
	l.d.limiter.settled([]result{r})
	l.on = !l.gone && l.count(`SELECT count(*) FROM webhook_endpoints WHERE enabled`) == 1 // 410, or five days
}

// die loses a worker with what it has in hand. Its leases run out.
func (l *lifeTest) die() {
	for _, c := range l.hand {
		l.d.limiter.end(c, decision{Healthy: true}, time.Now())
	}
	l.hand = nil
}

func (l *lifeTest) pass() {
	l.now = l.now.Add(time.Duration(rapid.SampledFrom([]int{1, 10, 25, 100, 1000}).Draw(l.rt, "seconds")) * time.Second)
}

func (l *lifeTest) disable() {
	l.unitOf(func(ctx context.Context, tx *db.Tx) error { return Disable(ctx, tx, l.guild, l.e.ID, "") })
	l.on = false
}

func (l *lifeTest) enable() {
	l.unitOf(func(ctx context.Context, tx *db.Tx) error { return Enable(ctx, tx, l.guild, l.e.ID) })
	l.on = !l.gone
	if !l.on || rapid.Bool().Draw(l.rt, "more follows") {
		return
	}
	l.follow()
	if n := l.count(`SELECT count(*) FROM webhook_deliveries WHERE state IN ('held', 'pending') AND lease_until IS NULL
		AND (state = 'held' OR due_at > $1)`, l.now); n > 0 {
		l.rt.Fatalf("%d deliveries of an endpoint that was enabled wait: %s", n, l.states())
	}
}

func (l *lifeTest) test() {
	l.unitOf(func(ctx context.Context, tx *db.Tx) error {
		_, err := Ping(ctx, tx, event.System(l.guild), l.e.ID)
		return err
	})
}

func (l *lifeTest) redeliver() {
	ids := dbtest.Value[string](l.t, l.DB, `SELECT coalesce(min(id), '') FROM webhook_deliveries`)
	if ids == "" {
		return
	}
	l.unitOf(func(ctx context.Context, tx *db.Tx) error {
		_, err := Redeliver(ctx, tx, l.guild, l.e.ID, ids)
		return err
	})
}

func (l *lifeTest) recover() {
	l.unitOf(func(ctx context.Context, tx *db.Tx) error {
		_, err := Recover(ctx, tx, l.guild, l.e.ID, l.since, 100)
		return err
	})
}

func (l *lifeTest) move() {
	l.unitOf(func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE webhook_endpoints SET url = url || '/' WHERE guild_id = $1 AND id = $2`, l.guild, l.e.ID)
		if err != nil {
			return err
		}
		return ResetHealth(ctx, tx, l.guild, l.e.ID)
	})
}

func (l *lifeTest) remove() {
	if !l.gone && rapid.IntRange(0, 3).Draw(l.rt, "deleted") == 0 {
		l.deliveryDB.remove(l.e)
		l.gone, l.on = true, false
	}
}

func (l *lifeTest) follow() {
	if err := l.d.follow(l.rt.Context()); err != nil {
		l.rt.Fatal(err)
	}
}

func (l *lifeTest) repair() {
	if err := l.d.repair(l.rt.Context(), &repairWalk{}); err != nil {
		l.rt.Fatal(err)
	}
}

// holds compares with the model what is there after a command.
func (l *lifeTest) holds() {
	var rows []struct {
		ID    string `db:"id"`
		State string `db:"state"`
	}
	if err := l.DB.Reader().SelectContext(l.rt.Context(), &rows, `SELECT id, state FROM webhook_deliveries`); err != nil {
		l.rt.Fatal(err)
	}
	for _, r := range rows {
		if was, ok := l.final[r.ID]; ok && was != r.State {
			l.rt.Fatalf("%s was %s and is %s", r.ID, was, r.State)
		}
		if r.State == StateDelivered || r.State == StateFailed {
			l.final[r.ID] = r.State
		}
	}
	if len(l.final) > len(rows) {
		l.rt.Fatalf("%d are settled, %d are there", len(l.final), len(rows))
	}
	if n := l.count(untrue, l.now); n > 0 {
		l.rt.Fatalf("the schedule is not true: %s", l.schedules())
	}
}

// untrue counts the deliveries to which nothing leads at the instant $1, or too late:
// queued ones of an endpoint that is on and due later than they and it allow, and
// what waits for one that is off or gone, and is not followed.
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

// ends lets time pass with no further command, the workers dead, until nothing moves,
// and compares what is there with the model: with no endpoint, no schedule is left
// and nothing waits; with one that is off, all that waits is held; with one that is
// on, all is settled. No repair helps.
func (l *lifeTest) ends() {
	l.die()
	for round := range 60 {
		l.now = l.now.Add(time.Hour)
		l.follow()
		found, err := look(l.rt.Context(), l.DB.Reader(), &l.now, endpointID{}, nil)
		if l.cfg.OneGuild {
			found, err = lookAcross(l.rt.Context(), l.DB.Reader(), &l.now, endpointID{}, nil)
		}
		if err != nil {
			l.rt.Fatal(err)
		}
		for _, c := range found {
			take := 0
			if c.sendable() {
				take = 16
			}
			rows := l.takes(l.d, l.e, take)
			l.settles(l.d, rows, delivered, 0)
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
	l.follow()
	if l.gone {
		return
	}
	want := map[bool]string{true: "send", false: "hold"}[l.on]
	if n := l.count(`SELECT count(*) FROM webhook_schedule
		WHERE disposition = $1 AND NOT urgent AND NOT releasing AND NOT recovered_passes`, want); n != 1 {
		l.rt.Fatalf("on %v: the schedule is %s", l.on, l.schedules())
	}
}

// An endpoint's whole life, in any order, with commands between the statements of
// others: in the end everything is settled or waits as was decided, and no row is
// left behind.
// RELIABILITY.md, Events.
func TestAnEndpointsLifeFollowsTheModel(t *testing.T) {
	t.Parallel()
	for _, oneGuild := range []bool{false, true} {
		t.Run(fmt.Sprintf("one guild a statement: %v", oneGuild), func(t *testing.T) {
			t.Parallel()
			lives(t, oneGuild)
		})
	}
}

// lives tries sequences of commands; -rapid.checks says how many, 100 unless told.
func lives(t *testing.T, oneGuild bool) {
	t.Helper()
	w := newDeliveryDB(t)
	w.cfg.OneGuild = w.cfg.OneGuild || oneGuild
	rapid.Check(t, func(rt *rapid.T) {
		for _, table := range []string{"webhook_attempts", "webhook_deliveries", "webhook_events", "webhook_schedule", "webhook_endpoints"} {
			w.exec(`DELETE FROM ` + table)
		}
		l := &lifeTest{deliveryDB: w, rt: rt, now: time.Now().Add(time.Hour), since: time.Now().Add(-time.Hour)}
		l.on, l.final = true, make(map[string]string)
		l.e, _ = w.add(w.guild, "https://receiver.test/")
		cfg := w.cfg
		cfg.Clock, cfg.Schedule = func() time.Time { return l.now }, DefaultSchedule()[:5]
		d, err := New(cfg)
		if err != nil {
			rt.Fatal(err)
		}
		l.d = d
		steps := map[string]func(){
			"event": l.event, "claim": l.claim, "answer": l.answer, "die": l.die, "pass": l.pass, "disable": l.disable,
			"enable": l.enable, "test": l.test, "redeliver": l.redeliver, "recover": l.recover, "move": l.move, "remove": l.remove,
			"follow": l.follow, "repair": l.repair,
		}
		names := []string{
			"event", "claim", "claim", "claim", "answer", "answer", "answer", "die", "pass", "disable", "enable", "enable",
			"test", "redeliver", "recover", "move", "remove", "follow", "follow", "repair",
		}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			steps[rapid.SampledFrom(names).Draw(rt, "step")]()
			l.holds()
		}
		l.ends()
	})
}
