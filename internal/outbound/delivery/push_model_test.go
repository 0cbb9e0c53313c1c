package delivery

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/base/db"
	"guildhall/internal/outbound/egress"
	"guildhall/internal/outbound/event"
)

// contract is a minimal model of an endpoint's health: contract stores every result and computes
// nothing in advance.
type contract struct {
	streak  []time.Time // failures that count towards a block, since the last success
	first   time.Time   // the first failure of any kind since the last success
	blocked time.Time
	blocks  int
	quiet   time.Time
	failed  int     // failed attempts since the last success
	last    outcome // outcome of the last failed attempt; a success does not clear it

	reported   bool           // webhook.failing was emitted since the last success
	reportedAt time.Time      // when webhook.failing was last emitted
	told       map[string]int // emitted events about the endpoint, by type
}

// settle changes the contract by an attempt that ended at the given instant. quiet is the pause
// that the receiver has asked for. While the egress of the node that made the attempt is broken,
// no failure is emitted.
func (m *contract) settle(at time.Time, o outcome, quiet time.Duration, broken bool) {
	if o == delivered {
		if m.reported {
			m.told[event.WebhookRecovered]++
		}
		*m = contract{last: m.last, reportedAt: m.reportedAt, told: m.told} // a success makes an endpoint healthy, whatever was before
		return
	}
	m.failed, m.last = m.failed+1, o
	defer func() {
		if !broken && !m.reported && m.failed >= 5 && at.Sub(m.first) >= 5*time.Minute && at.Sub(m.reportedAt) >= time.Hour {
			m.reported, m.reportedAt = true, at
			m.told[event.WebhookFailing]++
		}
	}()
	if m.first.IsZero() {
		m.first = at
	}
	if quiet > 0 {
		if at.Add(quiet).After(m.quiet) {
			m.quiet = at.Add(quiet)
		}
		return
	}
	if m.streak = append(m.streak, at); len(m.streak) >= 5 && !m.blocked.After(at) {
		wait := 30 * time.Second
		for range m.blocks {
			wait = min(2*wait, 15*time.Minute)
		}
		m.blocked, m.blocks = at.Add(wait), m.blocks+1
	}
}

// try is an attempt of a node at some host.
type try struct {
	at       time.Time
	host     string
	answered bool // by HTTP of any kind
}

// cutOff reports whether nothing that a node sends arrives: of all its attempts in the last ten
// minutes none was answered, and they went to two hosts at least.
func cutOff(tries []try, now time.Time) bool {
	hosts := make(map[string]bool)
	for _, a := range tries {
		switch {
		case now.Sub(a.at) >= 10*time.Minute:
		case a.answered:
			return false
		default:
			hosts[a.host] = true
		}
	}
	return len(hosts) >= 2
}

// may reports whether a send to the endpoint is allowed at the given instant.
func (m *contract) may(at time.Time) bool { return !m.blocked.After(at) && !m.quiet.After(at) }

// failing reports whether the endpoint must be disabled at the given instant.
func (m *contract) failing(at time.Time) bool {
	return !m.first.IsZero() && at.Sub(m.first) >= 5*24*time.Hour
}

// After any sequence of outcomes, pauses and nodes, through the rules and the statements of results
// and claims, the endpoint's health agrees with the model: healthy after a success, blocked after
// five failures in a row, paused for as long as the receiver has asked, and disabled after five
// days of only failures. The guild's other endpoints get one event that the endpoint fails (at most
// one an hour), one that the endpoint has recovered, and one that the endpoint was disabled; the
// endpoint itself gets none of them. The failure is emitted once the node that tried the endpoint
// reaches any host. RELIABILITY.md, Events.
func TestHealthFollowsTheContract(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	other, _ := w.add(w.guild, w.receive(nil).URL) // gets the events about e
	w.cfg.Show = func(_ context.Context, _ *db.Tx, _, endpoint string) (any, error) {
		return map[string]string{"webhook_id": endpoint}, nil
	}
	base := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	rapid.Check(t, func(rt *rapid.T) {
		w.exec(`DELETE FROM webhook_deliveries`)
		w.exec(`DELETE FROM webhook_events`)
		w.exec(`UPDATE webhook_schedule SET reported_at = NULL`)
		w.unit(func(ctx context.Context, tx *db.Tx) error {
			return errors.Join(Enable(ctx, tx, e.GuildID, e.ID), ResetHealth(ctx, tx, e.GuildID, e.ID))
		})
		now := base
		nodes := []*Deliverer{}
		for i := range 2 {
			cfg := w.cfg
			cfg.OneGuild = cfg.OneGuild || i == 1
			cfg.Clock, cfg.Schedule = func() time.Time { return now }, DefaultSchedule()
			d, err := New(cfg)
			if err != nil {
				rt.Fatal(err)
			}
			nodes = append(nodes, d)
		}
		w.record(w.guild, 40)
		m := contract{told: make(map[string]int)}
		tries := make([][]try, len(nodes)) // by node
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 20, 40, 400, 1000, 90_000}).Draw(rt, "seconds")) * time.Second)
			var rows []claimed
			w.unit(func(ctx context.Context, tx *db.Tx) error {
				rows = w.claimAt(ctx, tx, w.cfg.OneGuild || rapid.Bool().Draw(rt, "one guild a statement"), now, e, 1)
				return nil
			})
			if (len(rows) == 1) != m.may(now) {
				rt.Fatalf("%d claimed at %s, the contract says %+v", len(rows), now.Sub(base), m)
			}
			if len(rows) == 0 {
				continue
			}
			o := rapid.SampledFrom([]outcome{delivered, serverError, serverError, serverError, timedOut, throttled}).Draw(rt, "outcome")
			pause := time.Duration(0)
			if o == throttled {
				pause = time.Duration(rapid.IntRange(0, 100).Draw(rt, "retry after")) * time.Second
			}
			c := rows[0]
			v := DefaultSchedule().judge(c.Step, o, pause, 0.5)
			r := newResult(c, v, egress.Response{}, now, 0)
			node := rapid.IntRange(0, 1).Draw(rt, "node")
			for range rapid.IntRange(0, 3).Draw(rt, "others") { // attempts of the node at other endpoints
				host := rapid.SampledFrom([]string{"a.test", "b.test", "c.test"}).Draw(rt, "host")
				a := try{now, host, rapid.IntRange(0, 5).Draw(rt, "answered") == 0}
				nodes[node].egressHealth.note("https://"+a.host+"/x", a.answered, a.at)
				tries[node] = append(tries[node], a)
			}
			if err := nodes[node].record(t.Context(), []result{r}); err != nil {
				rt.Fatal(err)
			}
			m.settle(now, o, pause, cutOff(tries[node], now))
			if n := w.count(`SELECT count(*) FROM webhook_schedule WHERE failed_attempts = $1 AND coalesce(last_failure ->> 'outcome', '') = $2
				AND coalesce(last_failure ->> 'delivery_id', $3) <> '' AND endpoint_id = $4`, m.failed, string(m.last), c.ID, e.ID); n != 1 {
				rt.Fatalf("after %s: %d failed attempts and the last failure %q are not what is stored", o, m.failed, m.last)
			}
			off := w.count(`SELECT count(*) FROM webhook_endpoints WHERE NOT enabled`) == 1
			if off {
				m.told[event.WebhookDisabled]++
			}
			for _, typ := range []string{event.WebhookFailing, event.WebhookRecovered, event.WebhookDisabled} {
				if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE event_type = $1 AND endpoint_id = $2`, typ, other.ID); n != m.told[typ] {
					rt.Fatalf("after %s, %s after the first failure, %d events %s were told, want %d", o, now.Sub(m.first), n, typ, m.told[typ])
				}
			}
			if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE starts_with(event_type, 'webhook.') AND endpoint_id = $1`, e.ID); n != 0 {
				rt.Fatalf("%d events about the endpoint are sent to it", n)
			}
			if off != m.failing(now) {
				rt.Fatalf("%s after the first failure the endpoint is off: %v", now.Sub(m.first), off)
			}
			if off {
				return
			}
			if wellNow := w.count(`SELECT count(*) FROM webhook_schedule WHERE failing_since IS NULL AND failures = 0 AND blocks = 0
				AND not_before IS NULL AND endpoint_id = $1`, e.ID) == 1; wellNow != (o == delivered) {
				rt.Fatalf("after %s the endpoint counts as well: %v", o, wellNow)
			}
		}
	})
}

// claimAt is claim at a given instant: claimAt takes nothing of an endpoint that is blocked or
// paused.
func (w *deliveryDB) claimAt(ctx context.Context, tx *db.Tx, oneGuild bool, at time.Time, e endpoint, n int) []claimed {
	w.t.Helper()
	locked, err := lockIdle(ctx, tx, oneGuild, &at, []*candidate{{GuildID: e.GuildID, EndpointID: e.ID, Known: true}})
	if err != nil || len(locked) != 1 {
		w.t.Fatalf("locked %d schedules, %v", len(locked), err)
	}
	rows, err := take(ctx, tx, oneGuild, at, lease, []order{locked[0].order(n)})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range rows {
		rows[i].Quiet, rows[i].Suspect = locked[0].QuietUntil, !locked[0].well()
	}
	return rows
}

// A receiver that asks for a pause from time to time is not failing: the next success makes it
// healthy, and after five days no failures have added up. RELIABILITY.md, Events.
func TestASuccessAfterRetryAfterClearsTheFailure(t *testing.T) {
	t.Parallel()
	start := time.Now()
	h := health{}.after(decision{Failing: true, Quiet: 30 * time.Second}, start, nil)
	if h.FailingSince == nil || h.QuietUntil == nil {
		t.Fatalf("after a 503 with Retry-After: %+v", h)
	}
	h = h.after(decision{Healthy: true}, start.Add(time.Minute), h.QuietUntil)
	if !h.well() {
		t.Fatalf("after the success that followed: %+v", h)
	}
	at := start.Add(disableAfter + time.Minute)
	if h = h.after(decision{Failing: true, Blocks: true}, at, nil); h.disable(at) != "" {
		t.Errorf("one failure five days later disables the endpoint: %s", h.disable(at))
	}
	// A success that was already being sent when the receiver asked for a pause does not end the
	// pause.
	h = health{}.after(decision{Failing: true, Quiet: 30 * time.Second}, start, nil)
	if h = h.after(decision{Healthy: true}, start, nil); h.QuietUntil == nil || h.FailingSince != nil {
		t.Errorf("after the success that was under way: %+v", h)
	}
}

// The slots are shared by guild before they are shared by endpoint: if eight guilds use all slots,
// a ninth guild still gets one; and one bad response does not put an endpoint behind all the dead
// ones. RELIABILITY.md, Neighbours.
func TestSlotsAreSharedByGuildFirst(t *testing.T) {
	t.Parallel()
	now := time.Now()
	many := func(guild, lane, n int) (list []*candidate) {
		for i := range n {
			list = append(list, &candidate{GuildID: fmt.Sprint(guild), EndpointID: fmt.Sprintf("%d-%d", guild, i), Lane: lane, Known: true})
		}
		return list
	}
	l := newLimiter(64)
	var waiting []*candidate
	for guild := range 8 {
		waiting = append(waiting, many(guild, laneWell, 10)...)
	}
	newcomer := &candidate{GuildID: "9", EndpointID: "9-0", Lane: laneWell, Known: true, Fresh: true}
	waiting = append(waiting, newcomer)
	l.grant(waiting, now)
	taken := make(map[string]int)
	for _, c := range waiting {
		taken[c.GuildID] += c.take
		for n := range c.take {
			l.begin(claimed{GuildID: c.GuildID, ID: fmt.Sprint(c.EndpointID, n), EndpointID: c.EndpointID, Lane: c.Lane}, now)
		}
	}
	if newcomer.take != 1 {
		t.Errorf("the ninth guild got %d sends", newcomer.take)
	}
	for guild, n := range taken {
		if n > 8 {
			t.Errorf("guild %s has %d of 64 slots while others wait", guild, n)
		}
	}

	l = newLimiter(64)
	dead := many(1, laneBlocked, 1)
	for guild := range 200 {
		dead = append(dead, many(100+guild, laneBlocked, 1)...)
	}
	stumbled := &candidate{GuildID: "77", EndpointID: "77-0", Lane: laneFailing, Known: true}
	for _, list := range [][]*candidate{dead, append(dead, stumbled)} { // the dead endpoints come first
		l.grant(list, now)
		for _, c := range list {
			for n := range c.take {
				l.begin(claimed{GuildID: c.GuildID, ID: fmt.Sprint(c.EndpointID, n), EndpointID: c.EndpointID, Lane: c.Lane}, now)
			}
		}
	}
	if stumbled.take != 1 {
		t.Error("an endpoint that failed once waits behind the dead")
	}
	if n := l.inUse(); n > 16 {
		t.Errorf("%d of 64 slots are with endpoints that fail, want a quarter at most", n)
	}
}
