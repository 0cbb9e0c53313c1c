package dashboard_test

import (
	"compress/gzip"
	"io"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/dashboard"
)

// Pages and assets travel compressed, but those that show a secret do not; an
// asset that the browser has is not sent again.
func TestPagesAreCompressedAndAssetsAreSentOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	gzipped := []string{"Accept-Encoding", "br, gzip;q=0.8"}
	for _, path := range []string{page(guildID), "/dashboard/assets/style.css"} {
		got := b.get(path, gzipped...).wants(200)
		if got.header.Get("Content-Encoding") != "gzip" || got.header.Get("Vary") != "Accept-Encoding" {
			t.Fatalf("%s comes with %v", path, got.header)
		}
		r, err := gzip.NewReader(strings.NewReader(got.body))
		must(t, err)
		text, err := io.ReadAll(r)
		must(t, err)
		for _, coding := range []string{"identity", "gzip;q=0"} {
			plain := b.get(path, "Accept-Encoding", coding)
			if plain.header.Get("Content-Encoding") != "" || len(plain.body) != len(text) {
				t.Errorf("%s for %s comes as %v, %d bytes instead of %d", path, coding, plain.header, len(plain.body), len(text))
			}
		}
	}
	made := b.post(page(guildID, "tokens"), url.Values{"name": {"x"}, "scopes": {"cases:read"}}, gzipped...).wants(201)
	if made.header.Get("Content-Encoding") != "" || made.secret() == "" {
		t.Error("the page with the secret is compressed")
	}
	tag := b.get("/dashboard/assets/style.css").wants(200).header.Get("Etag")
	for _, known := range []string{tag, `"other", ` + tag, "*"} {
		if again := b.get("/dashboard/assets/style.css", "If-None-Match", known).wants(304); again.body != "" || again.header.Get("Etag") != tag {
			t.Errorf("an asset that the browser has is sent again: %v", again.header)
		}
	}
	b.get("/dashboard/assets/style.css", "If-None-Match", `W/"older"`).wants(200)
}

// The stand-in for Discord signs in nobody from another machine, whatever name
// of this machine they ask for.
func TestTheStandInSignsInPeopleOfThisMachineOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *dashboard.Config) { c.Proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	b := s.browser(t)
	far := []string{"X-Forwarded-For", "192.168.1.7", "X-Forwarded-Proto", "https"}
	to := b.get("/dashboard/login", far...).wants(303).to
	b.get(to, far...).wants(403, "from another")
	b.post(to, url.Values{"person": {"owner"}}, far...).wants(403, "from another")
	near := []string{"X-Forwarded-For", "127.0.0.1", "X-Forwarded-Proto", "https"}
	b.post(to, url.Values{"person": {"owner"}}, near...).wants(303)
}

// Every page leads to the reference and names the base URL.
func TestPagesLeadToTheReference(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	for _, path := range []string{"/dashboard/", page(guildID), page(guildID, "tokens"), "/dashboard/sessions"} {
		b.get(path).wants(200, `<a href="/docs">API reference</a>`, "<code>"+s.URL+"/api/v1</code>")
	}
	s.browser(t).get("/dashboard/").wants(200, `<a href="/docs">`).lacks("Base URL")
	b.get(page(guildID)).wants(200, `<a href="/docs">Make a first call</a>`)
}

// The switch of time keeps the filters, and the filters keep the time.
func TestTheTimeAndTheFiltersKeepOneAnother(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	token := s.makeToken(t, guildID, func(n *auth.New) { n.Name = "bot" })
	dbtest.Exec(t, s.DB, `
		INSERT INTO usage_refusals (guild_id, request_id, at, token_id, operation, status, code, address)
		VALUES ($1, $2, now(), $2, 'listCases', 403, 'insufficient_scope', '203.0.113.9')`, guildID, token.ID)
	dbtest.Exec(t, s.DB, `
		INSERT INTO usage_totals (guild_id, token_id, hour, class, requests)
		VALUES ($1, '', date_trunc('hour', now()), 2, 41)`, guildID)
	s.as(t, "owner").get(page(guildID, "requests")+"?window=7d&code=insufficient_scope&operation=listCases").wants(200,
		`href="?code=insufficient_scope&amp;operation=listCases&amp;window=30d"`,
		`name="window" value="7d"`, `name="operation" value="listCases"`,
		`href="?window=7d&amp;code=insufficient_scope&amp;operation=listCases#newest"`, "UTC: 41 (2xx 41)</title>")
}

// The audit log is filtered by time, and its file says where it was cut.
func TestTheAuditLogOfATime(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	s.record(t, audit.Actor{Type: audit.System, Name: "Guildhall"},
		audit.Change{Guild: guildID, Action: audit.WebhookTested, Target: "now", Name: "of today"})
	log := func(name string, at time.Time) got {
		return b.get(page(guildID, "audit") + "?" + url.Values{name: {at.UTC().Format("2006-01-02T15:04")}}.Encode())
	}
	log("since", time.Now().Add(-time.Hour)).wants(200, "of today", `name="since" value="2`)
	log("since", time.Now().Add(time.Hour)).wants(200, "Nothing fits")
	log("until", time.Now().Add(-time.Hour)).wants(200, "Nothing fits")
	b.get(page(guildID, "audit")+"?until=soon").wants(422, "Write a time in UTC", `value="soon"`)
	csv := page(guildID, "audit") + "?format=csv"
	b.get(csv).wants(200, "of today").lacks("CUT")
	dbtest.Exec(t, s.DB, `
		INSERT INTO audit_log (guild_id, id, at, actor_type, actor_id, actor_name, address, request_id, action, target_id, target_name)
		SELECT $1, '0000' || lpad(n::text, 8, '0'), now() - interval '1 day', 'user', 'u', 'U', '', '', $2, 't', 'older'
		FROM generate_series(1, 10000) n`, guildID, audit.TokenCreated)
	got := b.get(csv).wants(200, "CUT: this file holds 10000 rows")
	if lines := strings.Count(got.body, "\n"); lines != 10002 {
		t.Errorf("the file has %d lines", lines)
	}
}

// The form of an endpoint finds everything that is wrong at once, and takes all
// events by one box.
func TestTheFormOfAnEndpointTakesOneRound(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	hooks := page(guildID, "webhooks")
	b.post(hooks, url.Values{"url": {"ftp://example.com/"}}).wants(422, `id="url-error"`, "it must start with https://", `id="events-error"`)
	b.post(hooks, url.Values{"url": {"::"}}).wants(422, "The address cannot be used: it ").lacks("used: is not")
	b.post(hooks, url.Values{"url": {"http://127.0.0.1:9/"}, "events": {"all"}}).wants(201)
	if n := dbtest.Value[int](t, s.DB, `SELECT cardinality(events) FROM webhook_endpoints`); n < 10 {
		t.Errorf("%d events are chosen", n)
	}
}

// A delivery's body is indented for reading, and stands there as it was sent, too.
// What is tried again by itself needs no redelivery.
func TestADeliveryIsReadAndExact(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	one := b.endpoint()
	id := strings.TrimPrefix(one, page(guildID, "webhooks")+"/")
	dbtest.Exec(t, s.DB, `
		WITH ev AS (
			INSERT INTO webhook_events (guild_id, id, type, payload) VALUES ($1, 'e', 'case.created', '{"id":"e","data":{"a":[1,2]}}')
			RETURNING guild_id, id, type
		) INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_type, state, fresh)
		SELECT guild_id, $2, id, type, 'held', false FROM ev`, guildID, id)
	delivery := dbtest.Value[string](t, s.DB, `SELECT id FROM webhook_deliveries`)
	b.get(one+"/deliveries/"+delivery).wants(200, "\n  &#34;data&#34;: {\n", `id="exact"`)
}
