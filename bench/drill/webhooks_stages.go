package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"guildhall/bench/crowd"
	"guildhall/bench/testbed"
	"guildhall/internal/outbound/event"
)

// told records an event of guild $1 for each row of a CTE of that name.
var told = event.Telling{Rows: "told", Guild: "$1", Type: "'" + event.BalanceChanged + "'", ID: "told.id", At: "now()", Payload: "'{}'", Origin: "''"}.CTEs()

// flood records a great many events for one endpoint.
func (h *hooks) flood(ctx context.Context, s *server) error {
	guild, _, err := h.others(ctx, 1, 1, crowd.Of{URL: h.receiver.URL + "/flood"})
	if err != nil {
		return err
	}
	err = h.beside(ctx, s, "a flood of one guild", 1.3, 20*time.Millisecond, func() error {
		// Ten seconds for all of it, evenly: it is the guild's flood, not the drill's
		// way to record it, that others are to be spared from.
		const step = 100
		next, begun := time.NewTicker(10*time.Second*step/time.Duration(max(step, h.size.flood))), time.Now()
		defer next.Stop()
		for range h.size.flood / step {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-next.C:
			}
			_, err := h.sql.ExecContext(ctx, `WITH told AS (SELECT gen_random_uuid()::text AS id FROM generate_series(1, $2)), `+told+` SELECT`, guild, step)
			if err != nil {
				return err
			}
		}
		h.report.say("  %d events recorded in %.1f s", h.size.flood, time.Since(begun).Seconds())
		return nil
	})
	if err != nil {
		return err
	}
	begun := time.Now()
	drained := h.within(ctx, 15*time.Minute, func() bool { return len(h.requests("/flood")) >= h.size.flood })
	h.report.hold(drained, "a flood of one guild: all of it arrives (%d of %d, the rest within %.0f s)", len(h.requests("/flood")), h.size.flood, time.Since(begun).Seconds())
	return nil
}

// slowGuilds are eight guilds whose ten endpoints each answer after 0.9 s.
func (h *hooks) slowGuilds(ctx context.Context, s *server) error {
	h.respond("/late", after(900*time.Millisecond, 200))
	return h.beside(ctx, s, "eight guilds of slow receivers", 1.5, 50*time.Millisecond, func() error {
		_, _, err := h.others(ctx, 80, 10, crowd.Of{URL: h.receiver.URL + "/late", Each: 60})
		return err
	})
}

func (h *hooks) slowEndpoint(ctx context.Context, s *server) error {
	h.respond("/slow", after(14*time.Second, 200))
	return h.beside(ctx, s, "a slow endpoint with a backlog", 1.2, 20*time.Millisecond, func() error {
		_, _, err := h.others(ctx, 1, 1, crowd.Of{URL: h.receiver.URL + "/slow", Each: h.size.backlog})
		return err
	})
}

// neverRespond are endpoints that take connections and are silent; beside them,
// one that answers and fails once is not one of them.
func (h *hooks) neverRespond(ctx context.Context, s *server) error {
	var asked atomic.Int64
	h.respond("/stumbles", func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 2 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	guild, _, err := h.others(ctx, 1, 1, crowd.Of{URL: h.receiver.URL + "/stumbles", Each: 1})
	if err != nil {
		return err
	}
	if !h.within(ctx, time.Minute, func() bool { return asked.Load() == 1 }) {
		return errors.New("the endpoint that is to fail once was not asked at all")
	}
	err = h.beside(ctx, s, "endpoints that never answer", 1.5, 20*time.Millisecond, func() error {
		_, _, err := h.others(ctx, h.size.hanging, 10, crowd.Of{URL: "http://" + h.hole.Addr().String(), Each: 1})
		return err
	})
	if err != nil {
		return err
	}
	begun := time.Now()
	if _, err := h.sql.ExecContext(ctx, `WITH told AS (SELECT gen_random_uuid()::text AS id FROM generate_series(1, 4)), `+told+` SELECT`, guild); err != nil {
		return err
	}
	// Four deliveries and one that is repeated, five seconds later, give or take a fifth.
	all := h.within(ctx, 5*time.Minute, func() bool { return asked.Load() >= 6 })
	took := time.Since(begun)
	h.report.hold(all, "beside endpoints that never answer, one that failed once gets its four events (after %.1f s)", took.Seconds())
	if h.size.measure {
		h.report.hold(took <= 12*time.Second, "beside endpoints that never answer, one that failed once waits %.1f s, at most 12", took.Seconds())
	}
	return nil
}

// politePause is a receiver that answers 503 and when to come back, and then
// accepts everything: it is healthy, and one failure later it still is enabled.
func (h *hooks) politePause(ctx context.Context, _ *server) error {
	var asked atomic.Int64
	h.respond("/polite", func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	guild, id, err := h.others(ctx, 1, 1, crowd.Of{URL: h.receiver.URL + "/polite", Each: 3})
	if err != nil {
		return err
	}
	arrived := h.within(ctx, time.Minute, func() bool {
		return h.count(ctx, `SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = $1 AND state = 'delivered'`, id) == 3
	})
	h.report.hold(arrived, "a receiver that asks for a pause gets everything after it")
	healthy := h.within(ctx, time.Minute, func() bool {
		return h.count(ctx, `SELECT count(*) FROM webhook_schedule WHERE endpoint_id = $1 AND failing_since IS NULL AND failures = 0`, id) == 1
	})
	h.report.hold(healthy, "a receiver that asks for a pause is healthy after the next success")
	h.respond("/polite", after(0, 500))
	if _, err := h.sql.ExecContext(ctx, `WITH told AS (SELECT 'later' AS id), `+told+` SELECT`, guild); err != nil {
		return err
	}
	failed := h.within(ctx, time.Minute, func() bool {
		return h.count(ctx, `SELECT count(*) FROM webhook_schedule WHERE endpoint_id = $1 AND failing_since > now() - interval '1 minute'`, id) == 1
	})
	h.report.hold(failed && h.count(ctx, `SELECT count(*) FROM webhook_endpoints WHERE id = $1 AND enabled`, id) == 1, "one failure later it has failed since then, and is enabled")
	return nil
}

// bigBacklog changes an endpoint for which very much waits in every way.
func (h *hooks) bigBacklog(ctx context.Context, s *server) error {
	h.respond("/big", after(0, 500))
	b := &big{hooks: h, server: s}
	if err := b.fill(ctx); err != nil {
		return err
	}
	for _, step := range []struct {
		name, method, path, body string
	}{
		{"disable", "PATCH", "", `{"enabled":false}`},
		{"enable", "PATCH", "", `{"enabled":true}`},
		{"recover", "POST", "/recover", fmt.Sprintf(`{"since":"%s"}`, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))},
	} {
		if err := b.change(ctx, step.name, step.method, step.path, step.body); err != nil {
			return err
		}
	}
	h.respond("/big", after(0, 410))
	if _, err := h.sql.ExecContext(ctx, `UPDATE webhook_schedule SET blocked_until = NULL, quiet_until = NULL, next_due = now() WHERE endpoint_id = $1`, b.id); err != nil {
		return err
	}
	gone := h.within(ctx, 30*time.Second, func() bool {
		return h.count(ctx, `SELECT count(*) FROM webhook_endpoints WHERE id = $1 AND disabled_reason = 'gone'`, b.id) == 1
	})
	h.report.hold(gone, "410 with %d waiting: the endpoint is disabled", h.size.waiting)
	return b.remove(ctx)
}

// big is an endpoint for which very much waits.
type big struct {
	*hooks
	server    *server
	guild, id string
	token     string
}

func (b *big) fill(ctx context.Context) (err error) {
	begun := time.Now()
	if b.guild, b.id, err = b.others(ctx, 1, 1, crowd.Of{URL: b.receiver.URL + "/big", Wait: crowd.Blocked, Each: 1}); err != nil {
		return err
	}
	tokens, err := b.place.tokens(ctx, b.guild, 1)
	if err != nil {
		return err
	}
	b.token = tokens[0]
	const step = 50_000
	for left := b.size.waiting; left > 0; left -= step {
		_, err := b.sql.ExecContext(ctx, `
			INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_type, fresh)
			SELECT id, $2, 'crowd-' || $2, 'economy.balance_changed', false
			FROM guilds, generate_series(1, $3)
			WHERE id = $1`, b.guild, b.id, min(step, left))
		if err != nil {
			return err
		}
	}
	// Some have failed already.
	_, err = b.sql.ExecContext(ctx, `
		WITH ev AS (
			INSERT INTO webhook_events (guild_id, id, type, payload)
			SELECT $1, 'failed-' || i, 'economy.balance_changed', '{}' FROM generate_series(1, $3) AS i
			RETURNING guild_id, id
		)
		INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_type, fresh, state, completed_at)
		SELECT guild_id, $2, id, 'economy.balance_changed', false, 'failed', now() FROM ev`, b.guild, b.id, min(20_000, b.size.waiting))
	if err != nil {
		return err
	}
	b.report.say("%d deliveries wait for one endpoint (filled in %.0f s)", b.size.waiting, time.Since(begun).Seconds())
	return testbed.Vacuum(ctx, b.place.databaseURL)
}

// change makes one call about the endpoint and looks at what follows.
func (b *big) change(ctx context.Context, name, method, path, body string) error {
	c := &caller{address: b.server.HTTP}
	defer c.close()
	what := fmt.Sprintf("%s with %d waiting", name, b.size.waiting)
	return b.beside(ctx, b.server, what, 1.5, 50*time.Millisecond, func() error {
		var content []byte
		if body != "" {
			content = []byte(body)
		}
		a := c.send(ctx, request(method, "/webhooks/"+b.id+path, b.token, content))
		answered := time.Now()
		b.report.hold(ok(a), "%s is answered with %d %s after %.0f ms", what, a.status, a.code, ms(a.took))
		if b.size.measure {
			b.report.hold(a.took <= time.Second, "%s is answered within a second (%.0f ms)", what, ms(a.took))
		}
		if name == "disable" || name == "delete" {
			pause(ctx, time.Second)
			late := 0
			for _, at := range b.requests("/big") {
				if at.After(answered.Add(100 * time.Millisecond)) { // on its way already
					late++
				}
			}
			b.report.hold(late == 0, "%s: no send begins after the answer (%d)", what, late)
		}
		return nil
	})
}

// remove deletes the endpoint and watches what waited for it go, a chunk at a
// time.
func (b *big) remove(ctx context.Context) error {
	if err := b.change(ctx, "delete", "DELETE", "", ""); err != nil {
		return err
	}
	left := func() int {
		return b.count(ctx, `SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = $1 AND state IN ('pending', 'held')`, b.id)
	}
	before, begun, longest := left(), time.Now(), 0
	limit := 5 * time.Minute
	if b.size.measure {
		limit = 30 * time.Second
	}
	done := b.within(ctx, limit, func() bool {
		longest = max(longest, b.count(ctx, `
			SELECT coalesce(max(extract(epoch FROM clock_timestamp() - query_start) * 1000), 0)::int
			FROM pg_stat_activity
			WHERE state = 'active' AND application_name LIKE 'guildhall%' AND query ~ 'webhook_deliveries'`))
		return b.count(ctx, `SELECT count(*) FROM webhook_schedule WHERE endpoint_id = $1`, b.id) == 0
	})
	after := left()
	b.report.say("delete: %.0f deliveries given up a second, the longest statement took %d ms", float64(before-after)/time.Since(begun).Seconds(), longest)
	b.report.hold(done && after == 0 || after < before, "delete: what waited is given up (%d of %d left)", after, b.size.waiting)
	if b.size.measure {
		b.report.hold(longest < 2500, "delete: no statement takes long (%d ms)", longest)
	}
	return nil
}

// pruning forgets what is old behind very many that are held.
func (h *hooks) pruning(ctx context.Context) error {
	if _, _, err := h.others(ctx, 1, 1, crowd.Of{URL: h.receiver.URL + "/held", Wait: crowd.Blocked, Each: 1}); err != nil {
		return err
	}
	for _, s := range []struct {
		query string
		n     int
	}{
		{`INSERT INTO webhook_events (guild_id, id, type, payload, occurred_at)
		  SELECT guild_id, 'held-' || i, 'x', '{}', now() - interval '29 days' FROM webhook_endpoints, generate_series(1, $1) AS i WHERE url LIKE '%/held'`, h.size.held},
		{`INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_at, fresh, state)
		  SELECT guild_id, 'held', id, occurred_at, false, 'held' FROM webhook_events WHERE id LIKE 'held-%' AND $1 > 0`, h.size.held},
		{`INSERT INTO webhook_events (guild_id, id, type, payload, occurred_at)
		  SELECT guild_id, 'old-' || i, 'x', '{}', now() - interval '33 days' FROM webhook_endpoints, generate_series(1, $1) AS i WHERE url LIKE '%/held'`, h.size.old},
		{`INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_at, fresh, state, completed_at)
		  SELECT guild_id, 'held', id, occurred_at, false, 'delivered', now() FROM webhook_events WHERE id LIKE 'old-%' AND $1 > 0`, h.size.old},
		{`UPDATE webhook_endpoints SET enabled = false WHERE url LIKE '%/held' AND $1 > 0`, 1},
		{`INSERT INTO webhook_schedule (guild_id, endpoint_id, disposition) SELECT guild_id, 'held', 'hold' FROM webhook_endpoints WHERE url LIKE '%/held' AND $1 > 0`, 1},
		{`INSERT INTO webhook_endpoints (guild_id, id, url, events, enabled, secret, secret_preview)
		  SELECT guild_id, 'held', url, events, false, secret, '' FROM webhook_endpoints WHERE url LIKE '%/held' AND $1 > 0`, 1},
	} {
		if _, err := h.sql.ExecContext(ctx, s.query, s.n); err != nil {
			return err
		}
	}
	return h.stage(ctx, func(ctx context.Context, _ *server) error {
		begun := time.Now()
		gone := h.within(ctx, 5*time.Minute, func() bool {
			return h.count(ctx, `SELECT count(*) FROM webhook_events WHERE id LIKE 'old-%'`) == 0
		})
		h.report.hold(gone, "pruning behind %d held: %d old events are gone after %.1f s", h.size.held, h.size.old, time.Since(begun).Seconds())
		held := h.count(ctx, `SELECT count(*) FROM webhook_deliveries WHERE state = 'held' AND endpoint_id = 'held'`)
		h.report.hold(held == h.size.held, "pruning behind %d held: they stay (%d)", h.size.held, held)
		return nil
	})
}
