package dashboard_test

import (
	"encoding/json"
	"html"
	"regexp"
	"strings"
	"testing"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/egress/egresstest"
)

var olderLink = regexp.MustCompile(`<a class="button" href="([^"]+)">Older</a>`)

// The deliveries that were attempted are a view of their own, which a failing endpoint's page
// shows first.
func TestWhatWasTriedIsAView(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	one := b.endpoint()
	dbtest.Exec(t, s.DB, `
		WITH ev AS (
			INSERT INTO webhook_events (guild_id, id, type, payload)
			SELECT $1, 'v' || n, (ARRAY['case.created', 'case.updated', 'ticket.opened', 'xp.level_up', 'xp.level_down', 'guild.updated'])[1 + n %
				6], '{}'
			FROM generate_series(1, 120) n RETURNING guild_id, id, type
		) INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_type, state, fresh, response_class, attempts, created_at)
		SELECT guild_id, $2, id, type, CASE type WHEN 'case.created' THEN 'delivered' WHEN 'case.updated' THEN 'failed' ELSE 'pending' END, false,
		       CASE type WHEN 'case.created' THEN '2xx' WHEN 'case.updated' THEN '4xx' WHEN 'ticket.opened' THEN '5xx' WHEN 'xp.level_up' THEN
		       	'none' WHEN 'xp.level_down' THEN '3xx' END,
		       CASE type WHEN 'guild.updated' THEN 0 ELSE 1 END, now() - ltrim(id, 'v')::integer * interval '1 minute'
		FROM ev`, guildID, one[strings.LastIndex(one, "/")+1:])
	const waiting = `">guild.updated</a>`
	const tried, all = `?view=tried#deliveries" aria-current="true"`, `?view=all#deliveries" aria-current="true"`
	b.get(one).wants(200, all, waiting)
	b.get(one+"?view=tried").wants(200, tried, ">case.created</a>", ">case.updated</a>", ">ticket.opened</a>", ">xp.level_up</a>",
		">xp.level_down</a>", "view=tried").lacks(waiting)
	dbtest.Exec(t, s.DB, `UPDATE webhook_schedule SET failing_since = now(), failures = 3`)
	b.get(one).wants(200, tried).lacks(waiting)
	b.get(one+"?view=all").wants(200, all, waiting)
	b.get(one+"?event_type=guild.updated").wants(200, waiting).lacks("?view=")
	rows := 0
	for path, pages := one+"?view=tried", 0; path != ""; pages++ {
		got := b.get(path).wants(200).lacks(waiting)
		rows += strings.Count(got.body, `<td class="act">`)
		m := olderLink.FindStringSubmatch(got.body)
		if path = ""; m != nil && pages < 9 {
			path = one + strings.ReplaceAll(m[1], "&amp;", "&")
		}
	}
	if rows != 100 {
		t.Errorf("the pages of what was tried have %d rows, want 100", rows)
	}
}

// A delivery that was not tried waits for its failing endpoint, and says until when. A test that
// arrives says what follows it.
func TestWhatWaitsSaysForWhat(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker(t)
	receiver := egresstest.NewReceiver(t, egresstest.Respond(500, "no"))
	b := s.as(t, "owner")
	one := b.endpointAt(receiver.URL)
	b.post(one+"/test", nil).wants(303)
	id := one[strings.LastIndex(one, "/")+1:]
	dbtest.Exec(t, s.DB, `UPDATE webhook_schedule SET failures = 5, blocks = 1, blocked_until = now() + interval '1 hour'`)
	dbtest.Exec(t, s.DB, `
		WITH ev AS (
			INSERT INTO webhook_events (guild_id, id, type, payload) SELECT $1, 'v' || n, 'case.created', '{}' FROM generate_series(1, 5) n
				RETURNING guild_id, id, type
		) INSERT INTO webhook_deliveries (guild_id, endpoint_id, id, event_id, event_type, fresh, due_at)
		SELECT guild_id, $2, 'd' || id, id, type, false, now() + interval '2 hours' FROM ev`, guildID, id)
	b.get(one+"/deliveries/dv1").wants(200, "It waits for the endpoint, which is failing and is tried next at <time")
	receiver.RespondWith(egresstest.Respond(200, "yes"))
	sent := b.post(one+"/test", nil).wants(303)
	b.get(sent.to).wants(200, "The ping has arrived. What has waited is being sent: ").lacks("It waits for the endpoint")
}

// A refusal opens to its message and the scope that it needs. A request id that is not there is
// none of the refusals.
func TestARefusalSaysWhy(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dbtest.Exec(t, s.DB, `
		INSERT INTO usage_refusals (guild_id, request_id, at, token_id, operation, status, code, address, message, required_scope)
		VALUES ($1, 'request-1', now(), '', 'listCases', 403, 'insufficient_scope', '203.0.113.9', $2, 'cases:read')`, guildID, wrong)
	b := s.as(t, "manager")
	b.get(page(guildID, "requests")).wants(200, "<details><summary>Why", "&lt;script&gt;alert(1)",
		"It needs the scope <code>cases:read</code>").harmless()
	b.get(page(guildID, "requests")+"?request_id=request-1").wants(200, "<details open><summary>Why")
	b.get(page(guildID, "requests")+"?request_id=request-2").wants(200,
		"none of the refusals of seven days; only refusals are kept").lacks("No refusal that is kept fits")
	b.get(page(guildID, "requests")+"?code=x").wants(200, "No refusal that is kept fits")
}

// A call that the API refuses is found by the request id of its answer, with the answer's message.
func TestARefusedCallIsFoundByItsRequestID(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	token := l.makeToken(t, guildID, func(n *auth.New) { n.Scopes = []string{"cases:read"} })
	b := l.as(t, "manager")
	for _, c := range []struct{ method, path, body, scope string }{
		{"POST", "/cases", `{"user_id":"42","moderator_id":"7","type":"warn","reason":"r"}`, "cases:write"},
		{"GET", "/cases?per_page=many", "", ""},
	} {
		res, text := l.send(t, l.URL, token.Secret, c.method, c.path, c.body)
		var refused struct {
			Error struct{ Code, Message string }
		}
		must(t, json.Unmarshal([]byte(text), &refused))
		must(t, l.Counter.Flush(t.Context(), l.DB))
		id := res.Header.Get("X-Request-Id")
		got := b.get(page(guildID, "requests")+"?request_id="+id).wants(200, "<details open><summary>Why", id,
			"<code>"+refused.Error.Code+"</code>", html.EscapeString(refused.Error.Message))
		if c.scope == "" {
			got.lacks("It needs the scope")
		} else {
			got.wants(200, "It needs the scope <code>"+c.scope+"</code>")
		}
		if n := strings.Count(got.body, "<details open>"); n != 1 {
			t.Errorf("%d refusals are found", n)
		}
	}
}
