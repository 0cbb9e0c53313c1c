package main

import (
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"os"
	"sync"
	"time"

	"guildhall/bench/rig"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/operate/secretkey"
	"guildhall/internal/outbound/egress"
	"guildhall/internal/server/api"
	"guildhall/internal/server/dashboard"
	"guildhall/internal/service/webhooks"
)

const (
	oldGuild = "1"
	bound    = 50 * time.Millisecond // at the 95th percentile
	inOne    = 50_000                // deliveries that a statement makes
	endpoint = "e0"
)

// dashboardBench measures how long each page of the dashboard takes until its
// first byte, for a guild with a long past: tokens, a hundred endpoints, a million
// deliveries and lines of its audit log, a month of usage; alone in its database,
// and beside many others. Then it measures a call of the API beside pages and forms of one
// session.
func dashboardBench(flags *flag.FlagSet) func(*rig.Run) {
	var past past
	flags.IntVar(&past.deliveries, "deliveries", 1_000_000, "deliveries of the guild")
	flags.IntVar(&past.endpoints, "endpoints", 100, "endpoints of the guild")
	flags.IntVar(&past.audit, "audit", 1_000_000, "lines of the guild's audit log")
	guilds := flags.Int("guilds", 1_000, "other guilds beside it")
	samples := flags.Int("samples", 200, "requests for each page")
	server := flags.String("server", "bin/guildhall", "the server `program` beside whose pages the API is measured")
	return func(r *rig.Run) {
		b := &browser{Place: r.Place(rig.Config{Program: *server, Readers: 8}), samples: *samples}
		b.Must(secretkey.Check(b, b.DB, b.Box))
		b.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
		b.serve()
		b.compare(past, *guilds)
		b.beside()
	}
}

// past is how much of it the guild has.
type past struct{ deliveries, endpoints, audit int }

// browser asks for pages as somebody who is signed in.
type browser struct {
	*rig.Place
	client  *http.Client
	base    string
	samples int
	log     *slog.Logger
}

// compare measures every page with the guild alone and among others.
func (b *browser) compare(past past, guilds int) {
	began := time.Now()
	b.fill(past)
	b.signIn()
	b.Say("%d deliveries to %d endpoints, %d lines of the audit log, 10 tokens and 30 days of usage, filled in %.0f s",
		past.deliveries, past.endpoints, past.audit, time.Since(began).Seconds())
	pages := targets()
	alone := b.measure(pages)
	b.neighbours(guilds)
	among := b.measure(pages)
	b.Say("\ntime to first byte in ms, at most %d at p95      alone        among %d guilds\n%-46s %6s %6s   %6s %6s",
		bound.Milliseconds(), guilds, "page", "p50", "p95", "p50", "p95")
	for i, p := range pages {
		b.Say("%-46s %6.1f %6.1f   %6.1f %6.1f", p.name, alone[i].Ms(0.5), alone[i].Ms(0.95), among[i].Ms(0.5), among[i].Ms(0.95))
		if slowest := max(alone[i].Ms(0.95), among[i].Ms(0.95)); slowest > rig.Ms(bound) {
			b.Hold(false, "%s takes %.1f ms at p95, at most %s", p.name, slowest, bound)
		}
	}
}

// target is one page.
type target struct{ name, path string }

// serve starts the dashboard on this machine.
func (b *browser) serve() {
	limits, err := ratelimit.New(ratelimit.Config{})
	b.Must(err)
	cfg := dashboard.Config{
		DB: b.DB, Env: "test", Limits: limits, Sealer: b.Box, Log: b.log,
		Webhooks: webhooks.Config{Box: b.Box, Guard: egress.NewGuard(nil, nil)},
	}
	operations, err := api.Summaries()
	b.Must(err)
	for _, o := range operations {
		cfg.Operations = append(cfg.Operations, dashboard.Operation(o))
	}
	samples, err := api.EventSamples()
	b.Must(err)
	for _, e := range samples {
		cfg.Events = append(cfg.Events, dashboard.EventSample(e))
	}
	s, err := dashboard.New(cfg)
	b.Must(err)
	jar, err := cookiejar.New(nil)
	b.Must(err)
	srv := httptest.NewTLSServer(s)
	b.Cleanup(func() error { srv.Close(); return nil })
	b.base = srv.URL
	roots := srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	b.client = &http.Client{Jar: jar, Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12},
	}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

const (
	besides   = 32                    // connections of one session
	pace      = 80 * time.Millisecond // from one request of a connection to the next: 400 a second in all
	mostMoved = 0.1                   // of the API's p50
)

// beside measures a call of the API alone and beside one session that loads pages and
// sends forms over many connections, in turns, against a real server.
func (b *browser) beside() {
	n := b.Serve("GUILDHALL_DASHBOARD_URL=https://bench", "GUILDHALL_ROLES=api")
	link, err := dashboard.NewLink(b, b.DB, oldGuild, time.Minute)
	b.Must(err)
	req, err := http.NewRequestWithContext(b, http.MethodPost, "http://"+n.HTTP+link.Path, nil)
	b.Must(err)
	req.Host = "bench"
	req.Header = http.Header{"X-Forwarded-Proto": {"https"}, "Sec-Fetch-Site": {"same-origin"}}
	res, err := b.client.Do(req)
	b.Must(err)
	defer res.Body.Close()
	if res.StatusCode != http.StatusSeeOther || len(res.Cookies()) == 0 {
		b.Must(fmt.Errorf("signing in to the server answers %d", res.StatusCode))
	}
	cookie := res.Cookies()[len(res.Cookies())-1]
	g := "/dashboard/guilds/" + oldGuild + "/"
	asks := []string{"GET " + g, "POST " + g + "tokens", "GET " + g + "webhooks/" + endpoint}
	pages := rig.Load{Address: n.HTTP, Connections: besides, Every: pace, Request: func(_, n int) []byte {
		head := "%s HTTP/1.1\r\nHost: bench\r\nX-Forwarded-Proto: https\r\nSec-Fetch-Site: same-origin\r\n"
		return fmt.Appendf(nil, head+"Content-Length: 0\r\nCookie: %s=%s\r\n\r\n", asks[n%len(asks)], cookie.Name, cookie.Value)
	}}
	calls := rig.Load{Address: n.HTTP, Connections: 1, Request: get(b.Token(oldGuild), "/cases?per_page=10")}
	var alone, crowded, answers rig.Tally
	for range 5 {
		alone.RunFor(b, calls, 3*time.Second)
		var both sync.WaitGroup
		both.Go(func() { answers.RunFor(b, pages, 3*time.Second) })
		crowded.RunFor(b, calls, 3*time.Second)
		both.Wait()
	}
	moved := crowded.Ms(0.5)/alone.Ms(0.5) - 1
	b.Say("\nAPI, p50 in ms: %.2f alone, %.2f beside %d connections of one session (answers: %v): %+.0f %%",
		alone.Ms(0.5), crowded.Ms(0.5), besides, &answers, 100*moved)
	b.Hold(alone.AllOK() && crowded.AllOK() && moved <= mostMoved, "the API's p50 moves by at most %.0f %% (%.0f)", 100*mostMoved, 100*moved)
}

// targets are the pages that are measured.
func targets() []target {
	g := "/dashboard/guilds/" + oldGuild + "/"
	one := g + "webhooks/" + endpoint
	old := url.Values{"below": {"d"}, "below_at": {time.Now().UTC().Add(-20 * 24 * time.Hour).Format(time.RFC3339Nano)}}.Encode()
	now := time.Now().UTC()
	months := "until=" + now.AddDate(0, -6, 0).Format("2006-01-02T15:04")
	day := "since=" + now.AddDate(0, -1, -1).Format("2006-01-02T15:04") + "&until=" + now.AddDate(0, -1, 0).Format("2006-01-02T15:04")
	return []target{
		{"servers", "/dashboard/"},
		{"overview", g},
		{"tokens", g + "tokens"},
		{"new token", g + "tokens/new"},
		{"token, 24 hours", g + "tokens/t0"},
		{"token, 7 days", g + "tokens/t0?window=7d"},
		{"token, 30 days", g + "tokens/t0?window=30d"},
		{"requests, 24 hours", g + "requests"},
		{"requests, 7 days", g + "requests?window=7d"},
		{"requests, 30 days", g + "requests?window=30d"},
		{"requests, refusals of a token and a code", g + "requests?token=t0&code=not_found"},
		{"webhooks", g + "webhooks"},
		{"new endpoint", g + "webhooks/new"},
		{"endpoint", one},
		{"endpoint, twenty days back", one + "?" + old},
		{"endpoint, failed", one + "?status=failed"},
		{"endpoint, delivered, twenty days back", one + "?status=delivered&" + old},
		{"endpoint, one event type, no answer", one + "?event_type=case.created&response_class=none"},
		{"endpoint, one event type and status", one + "?event_type=case.updated&status=failed"},
		{"recover, all of 29 days", one + "/recover?since=" + time.Now().UTC().Add(-29*24*time.Hour).Format("2006-01-02T15:04")},
		{"edit endpoint", one + "/edit"},
		{"delivery", one + "/deliveries/d0"},
		{"audit log", g + "audit"},
		{"audit log, one action, far back", g + "audit?action=webhook.updated&" + months},
		{"audit log, a day of last month", g + "audit?" + day},
		{"sessions", "/dashboard/sessions"},
	}
}

// signIn opens the dashboard by an operator's link.
func (b *browser) signIn() {
	link, err := dashboard.NewLink(b, b.DB, oldGuild, time.Minute)
	b.Must(err)
	req, err := http.NewRequestWithContext(b, http.MethodPost, b.base+link.Path, nil)
	b.Must(err)
	req.Header.Set("Origin", b.base)
	res, err := b.client.Do(req)
	b.Must(err)
	defer res.Body.Close()
	if res.StatusCode != http.StatusSeeOther {
		b.Must(fmt.Errorf("signing in answers %d", res.StatusCode))
	}
}

// fill gives the guild its past.
func (b *browser) fill(past past) {
	b.Fill([]string{
		`INSERT INTO guilds (id, name, owner_id) VALUES ('1', 'A guild with a past', '1')`,
		`INSERT INTO api_tokens (id, guild_id, name, preview, hash, scopes, expires_at)
		 SELECT 't' || n, '1', 'token ' || n, 'svc_test_...', sha256(n::text::bytea),
		        '{cases:read,economy:read,economy:write}', now() + n * interval '3 days'
		 FROM generate_series(0, 9) n`,
		`INSERT INTO usage_hours (guild_id, token_id, hour, operation, class, requests)
		 SELECT '1', t, date_trunc('hour', now()) - h * interval '1 hour', 'operation' || o, c, 10 + (h + o) % 50
		 FROM unnest(ARRAY['', 't0', 't1', 't2', 't3', 't4', 't5', 't6', 't7', 't8', 't9']) t,
		      generate_series(0, 719) h, generate_series(1, 20) o, unnest(ARRAY[2, 4]) c`,
		`INSERT INTO usage_totals (guild_id, token_id, hour, class, requests)
		 SELECT guild_id, token_id, hour, class, sum(requests) FROM usage_hours GROUP BY guild_id, token_id, hour, class`,
		`INSERT INTO usage_days (guild_id, token_id, day, operation, class, requests)
		 SELECT guild_id, token_id, (hour AT TIME ZONE 'UTC')::date, operation, class, sum(requests)
		 FROM usage_hours GROUP BY guild_id, token_id, 3, operation, class`,
		`INSERT INTO usage_addresses (guild_id, token_id, day, address, requests, seen_at)
		 SELECT '1', 't' || t, current_date - d, '203.0.113.' || a, 100, now() - d * interval '1 day'
		 FROM generate_series(0, 9) t, generate_series(0, 29) d, generate_series(1, 50) a`,
		`INSERT INTO usage_refusals (guild_id, request_id, at, token_id, operation, status, code, address)
		 SELECT '1', lpad(n::text, 8, '0'), now() - n * interval '9 minutes', 't' || n % 10, 'operation' || n % 20, 404,
		        (ARRAY['not_found', 'insufficient_scope', 'invalid_request'])[1 + n % 3], '203.0.113.9'
		 FROM generate_series(1, 1000) n`,
	})
	b.Fill([]string{
		`INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
		 SELECT '1', 'e' || n, 'https://receiver-' || n || '.example/', '{case.created,case.updated}', '', 'whsec_...'
		 FROM generate_series(0, $1::integer - 1) n`,
		`INSERT INTO webhook_schedule (guild_id, endpoint_id) SELECT '1', 'e' || n FROM generate_series(0, $1::integer - 1) n`,
	}, past.endpoints)
	b.Fill([]string{
		`INSERT INTO audit_log (guild_id, id, at, actor_type, actor_id, actor_name, address, request_id, action,
		                        target_id, target_name, before, after)
		 SELECT '1', left(hex, 8) || '-' || right(hex, 4) || '-7000-8000-' || lpad(n::text, 12, '0'),
		        at, 'user', 'u' || n % 20, 'Somebody', '', '',
		        CASE n % 5 WHEN 0 THEN 'webhook.updated' ELSE 'token.created' END,
		        'e' || n % 20, 'https://receiver.example/', '{"enabled": true}', '{"enabled": false}'
		 FROM generate_series(1, $1::integer) n,
		      LATERAL (SELECT now() - ($1::integer - n) * interval '360 days' / $1::integer AS at) x,
		      LATERAL (SELECT lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') AS hex) y`,
	}, past.audit)
	for from := 0; from < past.deliveries; from += inOne {
		b.deliver(from, min(from+inOne, past.deliveries)-1, past.deliveries)
	}
	// The engine counts these while it settles.
	b.Fill([]string{
		`INSERT INTO webhook_hours (guild_id, endpoint_id, hour, outcome, deliveries)
		 SELECT guild_id, endpoint_id, date_trunc('hour', completed_at), state, count(*)
		 FROM webhook_deliveries WHERE state IN ('delivered', 'failed') GROUP BY 1, 2, 3, 4`,
	})
	b.settle()
}

// deliver makes some of the deliveries: spread over thirty days and the
// endpoints, one in fifty failed, and a few that wait or are held.
func (b *browser) deliver(from, to, all int) {
	b.Fill([]string{
		`INSERT INTO webhook_events (guild_id, id, type, occurred_at, payload)
		 SELECT '1', 'v' || n, CASE n % 3 WHEN 0 THEN 'case.updated' ELSE 'case.created' END, now() - n * interval '30 days' / $3::integer,
		        convert_to('{"id":"v' || n || '","type":"case.created","data":{"number":' || n || ',"reason":"Spam in #general"}}', 'UTF8')
		 FROM generate_series($1::integer, $2::integer) n`,
		`INSERT INTO webhook_deliveries (guild_id, id, endpoint_id, event_id, state, attempts, created_at, completed_at, fresh,
		                                 event_type, event_at, response_class)
		 SELECT '1', 'd' || n, 'e' || (n / 7) % (SELECT count(*) FROM webhook_endpoints WHERE guild_id = '1'), 'v' || n,
		        CASE WHEN n % 50 = 1 THEN 'failed' WHEN n % 997 = 2 THEN 'held' WHEN n % 997 = 3 THEN 'pending' ELSE 'delivered' END,
		        1, at, at, false, CASE n % 3 WHEN 0 THEN 'case.updated' ELSE 'case.created' END, at,
		        CASE WHEN n % 50 = 1 THEN CASE WHEN n % 100 = 1 THEN '5xx' ELSE 'none' END ELSE '2xx' END
		 FROM generate_series($1::integer, $2::integer) n, LATERAL (SELECT now() - n * interval '30 days' / $3::integer AS at) x`,
		`INSERT INTO webhook_attempts (guild_id, delivery_id, number, started_at, duration_ms, outcome, status, error)
		 SELECT '1', 'd' || n, 1, now() - n * interval '30 days' / $3::integer, n % 300,
		        CASE WHEN n % 50 = 1 THEN 'server_error' ELSE 'delivered' END,
		        CASE WHEN n % 50 = 1 THEN 500 ELSE 200 END, CASE WHEN n % 50 = 1 THEN 'The receiver answered 500.' END
		 FROM generate_series($1::integer, $2::integer) n`,
	}, from, to, all)
}

// neighbours gives the database other guilds, each with a little of everything.
func (b *browser) neighbours(n int) {
	b.Fill([]string{
		`INSERT INTO guilds (id, name, owner_id) SELECT (1000 + g)::text, 'Guild ' || g, '1' FROM generate_series(1, $1::integer) g`,
		`INSERT INTO api_tokens (id, guild_id, name, preview, hash, scopes)
		 SELECT g || '-' || n, (1000 + g)::text, 'token ' || n, 'svc_test_...', sha256(convert_to(g || '-' || n, 'UTF8')), '{cases:read}'
		 FROM generate_series(1, $1::integer) g, generate_series(1, 3) n`,
		`INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
		 SELECT (1000 + g)::text, 'n' || g || '-' || n, 'https://receiver.example/', '{case.created}', '', 'whsec_...'
		 FROM generate_series(1, $1::integer) g, generate_series(1, 3) n`,
		`INSERT INTO usage_hours (guild_id, token_id, hour, operation, class, requests)
		 SELECT (1000 + g)::text, '', date_trunc('hour', now()) - h * interval '1 hour', 'getWallet', 2, 10
		 FROM generate_series(1, $1::integer) g, generate_series(0, 719) h`,
		`INSERT INTO usage_refusals (guild_id, request_id, at, token_id, operation, status, code, address)
		 SELECT (1000 + g)::text, n::text, now(), '', 'getWallet', 404, 'not_found', ''
		 FROM generate_series(1, $1::integer) g, generate_series(1, 100) n`,
		`INSERT INTO audit_log (guild_id, id, actor_type, actor_id, actor_name, address, request_id, action, target_id, target_name)
		 SELECT (1000 + g)::text, n::text, 'user', 'u', 'Somebody', '', '', 'token.created', 't', ''
		 FROM generate_series(1, $1::integer) g, generate_series(1, 100) n`,
		`WITH ev AS (
			INSERT INTO webhook_events (guild_id, id, type, payload)
			SELECT (1000 + g)::text, 'n' || g || '-' || n, 'case.created', '{}' FROM generate_series(1, $1::integer) g, generate_series(1, 100) n
			RETURNING guild_id, id)
		 INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, state, attempts, fresh, event_type, response_class, completed_at)
		 SELECT guild_id, split_part(id, '-', 1) || '-1', id, 'delivered', 1, false, 'case.created', '2xx', now() FROM ev`,
	}, n)
	b.settle()
}

// settle brings the planner's numbers up to date, as autovacuum does in time.
func (b *browser) settle() { b.Exec(`ANALYZE`) }

// measure asks for every page, in turns, so that a disturbance meets them all.
func (b *browser) measure(pages []target) []*rig.Tally {
	all := make([]*rig.Tally, len(pages))
	for round := range b.samples + 5 {
		for i, p := range pages {
			took := b.ask(p)
			if round < 5 { // the first fill the caches and prepare the statements
				all[i] = &rig.Tally{}
				continue
			}
			all[i].Add(rig.Response{Status: http.StatusOK, Took: took})
		}
	}
	return all
}

// ask returns the time to the first byte of a page.
func (b *browser) ask(p target) time.Duration {
	var first time.Time
	ctx := httptrace.WithClientTrace(b, &httptrace.ClientTrace{GotFirstResponseByte: func() { first = time.Now() }})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base+p.path, nil)
	b.Must(err)
	began := time.Now()
	res, err := b.client.Do(req)
	b.Must(err)
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	b.Must(err)
	if res.StatusCode != http.StatusOK {
		b.Must(fmt.Errorf("%s answers %d", p.name, res.StatusCode))
	}
	return first.Sub(began)
}
