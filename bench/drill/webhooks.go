package main

import (
	"fmt"
	"time"

	"guildhall/bench/rig"
)

// webhooksStages lists the stages that each start with their own server. The stage pruning is
// separate, since it fills the tables before its server starts.
var webhooksStages = []struct {
	name string
	run  func(*hooks)
}{
	{"a flood of one guild", (*hooks).flood},
	{"eight guilds of slow receivers", trouble(1.5, 50*time.Millisecond, 80, 60, 900*time.Millisecond)},
	{"a slow endpoint with a backlog", trouble(1.2, 20*time.Millisecond, 1, 10_000, 14*time.Second)},
	{"endpoints that never answer", trouble(1.5, 20*time.Millisecond, 10_000, 1, 0)},
	{"an endpoint for which very much waits", (*hooks).bigBacklog},
	{pruning, (*hooks).pruning},
}

// pruning is the name of the last stage.
const pruning = "pruning"

func webhooksStageNames() (names []string) {
	for _, stage := range webhooksStages {
		names = append(names, stage.name)
	}
	return names
}

// receiversAtTheirWorst makes receivers and guilds misbehave and measures how long other guilds'
// events take from the write's response to the receiver. Then it changes an endpoint with a very
// large backlog.
func receiversAtTheirWorst(p *place) {
	receiver := p.Receiver()
	h := hooks{place: p, receiver: receiver, watched: p.Watch(receiver, sized(p, 20, 4))}
	for _, stage := range webhooksStages {
		if p.wants(stage.name) {
			h.stage(stage.name, stage.run)
		}
	}
}

// hooks is the state that the stages share.
type hooks struct {
	*place
	receiver *rig.Receiver
	watched  *rig.Watched
	node     *rig.Node
	name     string // name of the stage
}

// stage runs one stage and then deletes all endpoints except the watched ones.
func (h *hooks) stage(name string, run func(*hooks)) {
	h.Part(func(part *rig.Place) {
		part.Cleanup(func() error {
			h.Exec(`
				TRUNCATE webhook_deliveries, webhook_events, webhook_attempts;
				DELETE FROM webhook_endpoints WHERE url NOT LIKE '%/watched';
				DELETE FROM webhook_schedule s
				WHERE NOT EXISTS (SELECT FROM webhook_endpoints e WHERE e.guild_id = s.guild_id AND e.id = s.endpoint_id)`)
			return nil
		})
		at := *h
		at.place, at.name = h.with(part), name
		if name != pruning {
			at.serve()
		}
		run(&at)
	})
}

func (h *hooks) serve() {
	h.node = h.Serve()
	// When it stops, the server waits for running requests to receivers.
	h.Cleanup(func() error { h.receiver.CloseClientConnections(); return nil })
}

// watch writes ten times a second in each watched guild.
func (h *hooks) watch() *rig.Tally {
	return h.watched.For(h.node, 10*sized(h.place, 20, 4), sized(h.place, 15*time.Second, time.Second))
}

// beside measures the events of watched guilds before and during `do`. They may take `times` as
// long plus `more`.
func (h *hooks) beside(what string, times float64, more time.Duration, do func()) {
	h.watch() // opens connections, and caches statements and endpoints
	before := h.watch()
	do()
	during := h.watch()
	limit := times*before.Ms(0.99) + rig.Ms(more)
	h.Say("%s: others' events %v; before %v", what, during, before)
	h.Hold(during.Ms(1) < 60_000, "%s: every event of the others arrives (%d)", what, during.N())
	h.bound(during.Ms(0.99) <= limit, "%s: p99 of the others %.1f ms, at most %.1f", what, during.Ms(0.99), limit)
}

// recorded inserts $3 events of guild $1 with the age $4, with deliveries to endpoint $2 in a given
// state.
const recorded = `
	WITH marked AS (
		INSERT INTO webhook_events (guild_id, id, type, occurred_at, payload)
		SELECT $1, gen_random_uuid()::text, 'economy.balance_changed', now() - $4::interval, '{}' FROM generate_series(1, $3)
		RETURNING guild_id, id, occurred_at
	)
	INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_type, event_at, fresh, state, completed_at)
	SELECT guild_id, $2, id, 'economy.balance_changed', occurred_at, $5 = 'pending', $5,
	       CASE WHEN $5 IN ('delivered', 'failed') THEN now() END
	FROM marked`

// flood records a very large number of events for one endpoint.
func (h *hooks) flood() {
	const step = 100
	all := sized(h.place, 50_000, 1000)
	guilds, ids := h.Crowd(1, rig.Crowd{URL: h.receiver.URL + "/flood"})
	h.beside(h.name, 1.3, 20*time.Millisecond, func() {
		// The events are recorded evenly over ten seconds: other guilds have to be protected from
		// the guild's flood, not from the way in which the drill inserts it.
		begun := time.Now()
		for k := range all / step {
			rig.Pause(h, time.Until(begun.Add(10*time.Second*time.Duration(k)*step/time.Duration(all))))
			h.Exec(recorded, guilds[0], ids[0], step, "0", "pending")
		}
		h.Say("  %d events recorded in %.1f s", all, time.Since(begun).Seconds())
	})
	begun := time.Now()
	arrived := func() int { return h.receiver.Asked("/flood") }
	h.Hold(h.Await(15*time.Minute, func() bool { return arrived() >= all }),
		"a flood of one guild: all of it arrives (%d of %d, the rest within %.0f s)", arrived(), all, time.Since(begun).Seconds())
}

// trouble returns a stage in which other guilds have endpoints with waiting deliveries. Their
// receivers respond after a while, or never if answer is 0.
func trouble(times float64, more time.Duration, endpoints, each int, answer time.Duration) func(*hooks) {
	return func(h *hooks) {
		h.receiver.Answer("/slow", rig.After(answer, 200))
		of := rig.Crowd{URL: h.receiver.URL + "/slow", Each: sized(h.place, each, min(each, 100))}
		if answer == 0 {
			of.URL = h.Hole()
		}
		h.beside(h.name, times, more, func() { h.Crowd(sized(h.place, endpoints, min(endpoints, 100)), of) })
	}
}

// bigBacklog changes an endpoint with a very large backlog in every possible way.
func (h *hooks) bigBacklog() {
	h.receiver.Answer("/big", rig.After(0, 500))
	b := &big{hooks: h}
	b.fill()
	b.change("disable", "PATCH", "", `{"enabled":false}`)
	b.change("enable", "PATCH", "", `{"enabled":true}`)
	b.change("recover", "POST", "/recover", fmt.Sprintf(`{"since":"%s"}`, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)))
	h.receiver.Answer("/big", rig.After(0, 410))
	h.Exec(`UPDATE webhook_schedule SET blocked_until = NULL, quiet_until = NULL, next_due = now() WHERE endpoint_id = $1`, b.id)
	h.Hold(h.Becomes(30*time.Second, 1, `SELECT count(*) FROM webhook_endpoints WHERE id = $1 AND disabled_reason = 'gone'`, b.id),
		"410 with %d waiting: the endpoint is disabled", h.waiting)
	b.remove()
}

// big is an endpoint with a very large backlog.
type big struct {
	*hooks
	id, token string
}

func (b *big) fill() {
	begun := time.Now()
	guilds, ids := b.Crowd(1, rig.Crowd{URL: b.receiver.URL + "/big", Wait: rig.Blocked, Each: 1})
	b.id, b.token = ids[0], b.Token(guilds[0])
	const step = 50_000
	for left := b.waiting; left > 0; left -= step {
		b.Exec(`
			INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_type, fresh)
			SELECT $1, $2, 'crowd-' || $2, 'economy.balance_changed', false FROM generate_series(1, $3)`, guilds[0], b.id, min(step, left))
	}
	b.Exec(recorded, guilds[0], b.id, min(20_000, b.waiting), "0", "failed")
	b.Say("%d deliveries wait for one endpoint (filled in %.0f s)", b.waiting, time.Since(begun).Seconds())
	b.Vacuum()
}

// change makes one API call about the endpoint and checks its effects.
func (b *big) change(name, method, path, body string) {
	what := fmt.Sprintf("%s with %d waiting", name, b.waiting)
	b.beside(what, 1.5, 50*time.Millisecond, func() {
		a := b.Send(b.node.HTTP, rig.Request(method, "/webhooks/"+b.id+path, b.token, []byte(body)))
		answered := time.Now()
		b.Hold(rig.OK(a), "%s is answered with %d %s after %.0f ms", what, a.Status, a.Code, rig.Ms(a.Took))
		b.bound(a.Took <= time.Second, "%s is answered within a second (%.0f ms)", what, rig.Ms(a.Took))
		if name == "disable" || name == "delete" {
			rig.Pause(b, time.Second)
			late := 0
			for _, at := range b.receiver.Requests("/big") {
				if at.After(answered.Add(100 * time.Millisecond)) { // the request was already running
					late++
				}
			}
			b.Hold(late == 0, "%s: no send begins after the answer (%d)", what, late)
		}
	})
}

// remove deletes the endpoint and waits while its deliveries are deleted in batches.
func (b *big) remove() {
	b.change("delete", "DELETE", "", "")
	left := func() int {
		return b.Count(`SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = $1 AND state IN ('pending', 'held')`, b.id)
	}
	before, begun, longest := left(), time.Now(), 0
	done := b.Await(sized(b.place, 30*time.Second, 5*time.Minute), func() bool {
		longest = max(longest, b.Count(`
			SELECT coalesce(max(extract(epoch FROM clock_timestamp() - query_start) * 1000), 0)::int
			FROM pg_stat_activity
			WHERE state = 'active' AND application_name LIKE 'guildhall%' AND query ~ 'webhook_deliveries'`))
		return b.Count(`SELECT count(*) FROM webhook_schedule WHERE endpoint_id = $1`, b.id) == 0
	})
	after := left()
	b.Say("delete: %.0f deliveries given up a second, the longest statement took %d ms",
		float64(before-after)/time.Since(begun).Seconds(), longest)
	b.Hold(done && after == 0 || after < before, "delete: what waited is given up (%d of %d left)", after, b.waiting)
	b.bound(longest < 2500, "delete: no statement takes long (%d ms)", longest)
}

// pruning deletes old rows behind a very large number of held deliveries.
func (h *hooks) pruning() {
	held, old := sized(h.place, 500_000, 2000), sized(h.place, 50_000, 500)
	guilds, ids := h.Crowd(1, rig.Crowd{URL: h.receiver.URL})
	h.Exec(recorded, guilds[0], ids[0], held, "29 days", "held")
	h.Exec(recorded, guilds[0], ids[0], old, "33 days", "delivered")
	h.Exec(`UPDATE webhook_endpoints SET enabled = false WHERE id = $1`, ids[0])
	h.Exec(`UPDATE webhook_schedule SET disposition = 'hold' WHERE endpoint_id = $1`, ids[0])
	h.serve()
	begun := time.Now()
	gone := h.Becomes(5*time.Minute, 0, `SELECT count(*) FROM webhook_events WHERE occurred_at < now() - interval '32 days'`)
	h.Hold(gone, "pruning behind %d held: %d old events are gone after %.1f s", held, old, time.Since(begun).Seconds())
	stay := h.Count(`SELECT count(*) FROM webhook_deliveries WHERE state = 'held' AND endpoint_id = $1`, ids[0])
	h.Hold(stay == held, "pruning behind %d held: they stay (%d)", held, stay)
}
