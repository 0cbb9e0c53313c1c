package main

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"guildhall/bench/rig"
)

// webhooksStages are those that each have a server of their own from the beginning;
// pruning fills the tables before it starts.
var webhooksStages = []struct {
	name string
	run  func(*hooks)
}{
	{"a flood of one guild", (*hooks).flood},
	{"eight guilds of slow receivers", (*hooks).slowGuilds},
	{"a slow endpoint with a backlog", (*hooks).slowEndpoint},
	{"endpoints that never answer", (*hooks).neverRespond},
	{"a receiver that asks for a pause", (*hooks).politePause},
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

// receiversAtTheirWorst lets receivers and guilds do what they do at their worst, and
// watches how long the events of others take from the response of the write to the
// receiver; then it changes an endpoint for which very much waits.
func receiversAtTheirWorst(p *place) {
	receiver := p.Receiver()
	h := hooks{place: p, receiver: receiver, hole: p.Hole(), crowds: &atomic.Int64{}, watched: p.Watch(receiver, sized(p, 20, 4))}
	for _, stage := range webhooksStages {
		if p.wants(stage.name) {
			h.stage(stage.name, stage.run)
		}
	}
}

// hooks is what the stages work with.
type hooks struct {
	*place
	receiver *rig.Receiver
	hole     string
	watched  *rig.Watched
	crowds   *atomic.Int64 // of endpoints that are not watched
	node     *rig.Node
}

// stage runs one stage and then forgets all endpoints but the watched.
func (h *hooks) stage(name string, run func(*hooks)) {
	h.Part(func(part *rig.Place) {
		part.Cleanup(func() error {
			h.Fill([]string{
				`TRUNCATE webhook_deliveries, webhook_events, webhook_attempts`,
				`DELETE FROM webhook_endpoints WHERE url NOT LIKE '%/watched'`,
				`DELETE FROM webhook_schedule s
				 WHERE NOT EXISTS (SELECT FROM webhook_endpoints e WHERE e.guild_id = s.guild_id AND e.id = s.endpoint_id)`,
			})
			return nil
		})
		at := *h
		at.place = h.with(part)
		if name != pruning {
			at.serve()
		}
		run(&at)
	})
}

func (h *hooks) serve() {
	h.node = h.Serve()
	// The server waits for its sends when it stops.
	h.Cleanup(func() error { h.receiver.CloseClientConnections(); return nil })
}

// watch writes for each watched guild ten times a second.
func (h *hooks) watch() *rig.Tally {
	return h.watched.For(h, h.node, 10*sized(h.place, 20, 4), sized(h.place, 15*time.Second, time.Second))
}

// beside watches before something is done and while it lasts. The events of the
// others may take so many times as long, and a little more.
func (h *hooks) beside(what string, times float64, more time.Duration, do func()) {
	h.watch() // connections, statements and endpoints are known after this
	before := h.watch()
	do()
	during := h.watch()
	limit := times*before.Ms(0.99) + rig.Ms(more)
	h.Say("%s: others' events %v; before %v", what, during, before)
	h.Hold(during.Ms(1) < 60_000, "%s: every event of the others arrives (%d)", what, during.N())
	h.bound(during.Ms(0.99) <= limit, "%s: p99 of the others %.1f ms, at most %.1f", what, during.Ms(0.99), limit)
}

// others makes endpoints that are not watched, ten to a guild.
func (h *hooks) others(n int, path string, of rig.Crowd) (guild, endpoint string) {
	if of.URL == "" {
		of.URL = h.receiver.URL + path
	}
	first := 100_000_000_000_000_000 + h.crowds.Add(1)*1_000_000
	guilds := make([]string, n)
	for i := range guilds {
		guilds[i] = fmt.Sprint(first + int64(i/10))
	}
	return guilds[0], h.Crowd(guilds, of)[0]
}

// told records $2 events of guild $1 for each of its endpoints.
const told = `
	WITH told AS (
		SELECT gen_random_uuid()::text AS id FROM generate_series(1, $2)
	), stored AS (
		INSERT INTO webhook_events (guild_id, id, type, occurred_at, payload)
		SELECT $1, id, 'economy.balance_changed', now(), '{}'
		FROM told
	)
	INSERT INTO webhook_deliveries (guild_id, id, endpoint_id, event_id, event_type, event_at, fresh)
	SELECT $1, left(told.id, 15) || right(gen_random_uuid()::text, 21), e.id, told.id, 'economy.balance_changed', now(), true
	FROM told
	JOIN webhook_endpoints e ON e.guild_id = $1`

// flood records a great many events for one endpoint.
func (h *hooks) flood() {
	const step = 100
	all := sized(h.place, 50_000, 1000)
	guild, _ := h.others(1, "/flood", rig.Crowd{})
	h.beside("a flood of one guild", 1.3, 20*time.Millisecond, func() {
		// Ten seconds for all of it, evenly: it is the guild's flood, not the drill's
		// way to record it, that others are to be spared from.
		begun := time.Now()
		for k := range all / step {
			rig.Pause(h, time.Until(begun.Add(10*time.Second*time.Duration(k)*step/time.Duration(all))))
			h.Exec(told, guild, step)
		}
		h.Say("  %d events recorded in %.1f s", all, time.Since(begun).Seconds())
	})
	begun := time.Now()
	arrived := func() int { return h.receiver.Asked("/flood") }
	h.Hold(h.Await(15*time.Minute, func() bool { return arrived() >= all }),
		"a flood of one guild: all of it arrives (%d of %d, the rest within %.0f s)", arrived(), all, time.Since(begun).Seconds())
}

// slowGuilds are eight guilds whose ten endpoints each answer after 0.9 s.
func (h *hooks) slowGuilds() {
	h.receiver.Answer("/late", rig.After(900*time.Millisecond, 200))
	h.beside("eight guilds of slow receivers", 1.5, 50*time.Millisecond, func() { h.others(80, "/late", rig.Crowd{Each: 60}) })
}

func (h *hooks) slowEndpoint() {
	h.receiver.Answer("/slow", rig.After(14*time.Second, 200))
	h.beside("a slow endpoint with a backlog", 1.2, 20*time.Millisecond, func() {
		h.others(1, "/slow", rig.Crowd{Each: sized(h.place, 10_000, 100)})
	})
}

// neverRespond are endpoints that take connections and are silent; beside them,
// one that answers and fails once is not one of them.
func (h *hooks) neverRespond() {
	var asked atomic.Int64
	h.receiver.Answer("/stumbles", func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 2 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	guild, _ := h.others(1, "/stumbles", rig.Crowd{Each: 1})
	if !h.Await(time.Minute, func() bool { return asked.Load() == 1 }) {
		h.Must(errors.New("the endpoint that is to fail once was not asked at all"))
	}
	h.beside("endpoints that never answer", 1.5, 20*time.Millisecond, func() {
		h.others(sized(h.place, 10_000, 100), "", rig.Crowd{URL: h.hole, Each: 1})
	})
	begun := time.Now()
	h.Exec(told, guild, 4)
	// Four deliveries and one that is repeated, five seconds later, give or take a fifth.
	all := h.Await(5*time.Minute, func() bool { return asked.Load() >= 6 })
	took := time.Since(begun)
	h.Hold(all, "beside endpoints that never answer, one that failed once gets its four events (after %.1f s)", took.Seconds())
	h.bound(took <= 12*time.Second, "beside endpoints that never answer, one that failed once waits %.1f s, at most 12", took.Seconds())
}

// politePause is a receiver that answers 503 and when to come back, and then
// accepts everything: it is healthy, and one failure later it still is enabled.
func (h *hooks) politePause() {
	var asked atomic.Int64
	h.receiver.Answer("/polite", func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	guild, id := h.others(1, "/polite", rig.Crowd{Each: 3})
	h.Hold(h.becomes(time.Minute, 3, `SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = $1 AND state = 'delivered'`, id),
		"a receiver that asks for a pause gets everything after it")
	healthy := `SELECT count(*) FROM webhook_schedule WHERE endpoint_id = $1 AND failing_since IS NULL AND failures = 0`
	h.Hold(h.becomes(time.Minute, 1, healthy, id), "a receiver that asks for a pause is healthy after the next success")
	h.receiver.Answer("/polite", rig.After(0, 500))
	h.Exec(told, guild, 1)
	failed := h.becomes(time.Minute, 1,
		`SELECT count(*) FROM webhook_schedule WHERE endpoint_id = $1 AND failing_since > now() - interval '1 minute'`, id)
	h.Hold(failed && h.Count(`SELECT count(*) FROM webhook_endpoints WHERE id = $1 AND enabled`, id) == 1,
		"one failure later it has failed since then, and is enabled")
}

// becomes waits until a count is what it is to be.
func (h *hooks) becomes(limit time.Duration, n int, query string, args ...any) bool {
	return h.Await(limit, func() bool { return h.Count(query, args...) == n })
}

// bigBacklog changes an endpoint for which very much waits in every way.
func (h *hooks) bigBacklog() {
	h.receiver.Answer("/big", rig.After(0, 500))
	b := &big{hooks: h}
	b.fill()
	b.change("disable", "PATCH", "", `{"enabled":false}`)
	b.change("enable", "PATCH", "", `{"enabled":true}`)
	b.change("recover", "POST", "/recover", fmt.Sprintf(`{"since":"%s"}`, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)))
	h.receiver.Answer("/big", rig.After(0, 410))
	h.Exec(`UPDATE webhook_schedule SET blocked_until = NULL, quiet_until = NULL, next_due = now() WHERE endpoint_id = $1`, b.id)
	h.Hold(h.becomes(30*time.Second, 1, `SELECT count(*) FROM webhook_endpoints WHERE id = $1 AND disabled_reason = 'gone'`, b.id),
		"410 with %d waiting: the endpoint is disabled", h.waiting)
	b.remove()
}

// big is an endpoint for which very much waits.
type big struct {
	*hooks
	guild, id, token string
}

func (b *big) fill() {
	begun := time.Now()
	b.guild, b.id = b.others(1, "/big", rig.Crowd{Wait: rig.Blocked, Each: 1})
	b.token = b.Token(b.guild)
	const step = 50_000
	for left := b.waiting; left > 0; left -= step {
		b.Exec(`
			INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_type, fresh)
			SELECT $1, $2, 'crowd-' || $2, 'economy.balance_changed', false FROM generate_series(1, $3)`, b.guild, b.id, min(step, left))
	}
	// Some have failed already.
	b.Exec(`
		WITH ev AS (
			INSERT INTO webhook_events (guild_id, id, type, payload)
			SELECT $1, 'failed-' || i, 'economy.balance_changed', '{}' FROM generate_series(1, $3) AS i
			RETURNING guild_id, id
		)
		INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_type, fresh, state, completed_at)
		SELECT guild_id, $2, id, 'economy.balance_changed', false, 'failed', now() FROM ev`, b.guild, b.id, min(20_000, b.waiting))
	b.Say("%d deliveries wait for one endpoint (filled in %.0f s)", b.waiting, time.Since(begun).Seconds())
	b.Vacuum()
}

// change makes one call about the endpoint and looks at what follows.
func (b *big) change(name, method, path, body string) {
	what := fmt.Sprintf("%s with %d waiting", name, b.waiting)
	b.beside(what, 1.5, 50*time.Millisecond, func() {
		var content []byte
		if body != "" {
			content = []byte(body)
		}
		c := &rig.Caller{Address: b.node.HTTP}
		defer c.Close()
		a := c.Send(b, rig.Request(method, "/webhooks/"+b.id+path, b.token, content))
		answered := time.Now()
		b.Hold(rig.OK(a), "%s is answered with %d %s after %.0f ms", what, a.Status, a.Code, rig.Ms(a.Took))
		b.bound(a.Took <= time.Second, "%s is answered within a second (%.0f ms)", what, rig.Ms(a.Took))
		if name == "disable" || name == "delete" {
			rig.Pause(b, time.Second)
			late := 0
			for _, at := range b.receiver.Requests("/big") {
				if at.After(answered.Add(100 * time.Millisecond)) { // on its way already
					late++
				}
			}
			b.Hold(late == 0, "%s: no send begins after the answer (%d)", what, late)
		}
	})
}

// remove deletes the endpoint and watches what waited for it go, a chunk at a
// time.
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

// pruning forgets what is old behind very many that are held.
func (h *hooks) pruning() {
	held, old := sized(h.place, 500_000, 2000), sized(h.place, 50_000, 500)
	guild, _ := h.others(1, "/held", rig.Crowd{Wait: rig.Blocked, Each: 1})
	for _, kind := range []struct {
		name, age, state string
		n                int
	}{{"held", "29 days", "held", held}, {"old", "33 days", "delivered", old}} {
		h.Exec(`
			WITH ev AS (
				INSERT INTO webhook_events (guild_id, id, type, payload, occurred_at)
				SELECT $1, $2 || '-' || i, 'x', '{}', now() - $3::interval FROM generate_series(1, $5) AS i
				RETURNING guild_id, id, occurred_at
			)
			INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_at, fresh, state, completed_at)
			SELECT guild_id, 'held', id, occurred_at, false, $4, CASE $4 WHEN 'delivered' THEN now() END FROM ev`,
			guild, kind.name, kind.age, kind.state, kind.n)
	}
	h.Fill([]string{
		`UPDATE webhook_endpoints SET enabled = false WHERE guild_id = $1`,
		`INSERT INTO webhook_endpoints (guild_id, id, url, events, enabled, secret, secret_preview)
		 SELECT guild_id, 'held', url, events, false, secret, '' FROM webhook_endpoints WHERE guild_id = $1`,
		`INSERT INTO webhook_schedule (guild_id, endpoint_id, disposition) VALUES ($1, 'held', 'hold')`,
	}, guild)
	h.serve()
	begun := time.Now()
	gone := h.becomes(5*time.Minute, 0, `SELECT count(*) FROM webhook_events WHERE id LIKE 'old-%'`)
	h.Hold(gone, "pruning behind %d held: %d old events are gone after %.1f s", held, old, time.Since(begun).Seconds())
	stay := h.Count(`SELECT count(*) FROM webhook_deliveries WHERE state = 'held' AND endpoint_id = 'held'`)
	h.Hold(stay == held, "pruning behind %d held: they stay (%d)", held, stay)
}
