package dashboard_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"guildhall/internal/access/audit"
	"guildhall/internal/access/auth"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/access/usage"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/egress/egresstest"
	"guildhall/internal/server/dashboard"
)

// While the database is down, every page says so and no one is signed out; afterwards all pages
// work again without a restart.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	database := dbtest.New(t)
	link := dbtest.NewLink(t, database.URL)
	s := siteOn(t, database, http.NotFoundHandler(), func(c *dashboard.Config) {
		far, err := db.Open(db.Config{URL: link.URL, Writers: 4, Readers: 4, Name: "guildhall-test-far"})
		must(t, err)
		t.Cleanup(func() { far.Close() })
		c.DB = far
	})
	b := s.as(t, "owner")
	b.get(page(guildID)).wants(200)
	link.Down()
	for _, path := range []string{
		"/dashboard/", page(guildID), page(guildID, "tokens"), page(guildID, "webhooks"),
		page(guildID, "requests"), page(guildID, "audit"), "/dashboard/sessions",
	} {
		if got := b.get(path).wants(503, "The database does not answer", "reload it in a few seconds"); got.header.Get("Retry-After") == "" ||
			got.header.Get("Content-Security-Policy") == "" {
			t.Errorf("%s: headers %v", path, got.header)
		}
	}
	b.post(page(guildID, "tokens"), url.Values{"name": {"x"}, "scopes": {"cases:read"}}).wants(503, "The database does not answer")
	s.browser(t).get("/dashboard/assets/style.css").wants(200)
	s.browser(t).get("/dashboard/").wants(200) // a person who is not signed in needs no database
	link.Up()
	testutil.Eventually(t, "the page comes back", func() bool { return b.get(page(guildID)).status == 200 })
	b.post(page(guildID, "tokens"), url.Values{"name": {"x"}, "scopes": {"cases:read"}}).wants(201)
	if n := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM api_tokens`); n != 1 {
		t.Errorf("%d tokens were made", n)
	}
}

// The tests and redeliveries of one guild are limited, without an effect on another guild. The
// clock of the bucket is stopped, so the duration of the calls does not matter.
func TestSendingIsLimited(t *testing.T) {
	t.Parallel()
	redis := miniredis.RunT(t)
	redis.SetTime(time.Now())
	limits, err := ratelimit.New(ratelimit.Config{RedisURL: "redis://" + redis.Addr(), Budget: time.Minute})
	must(t, err)
	t.Cleanup(func() { must(t, limits.Close()) })
	s := newSite(t, func(c *dashboard.Config) { c.Limits = limits })
	b := s.as(t, "manager")
	since := url.Values{"since": {time.Now().UTC().Add(-time.Hour).Format("2006-01-02T15:04")}}
	endpoint := func(guild string) string {
		b.post(page(guild, "webhooks"), url.Values{"url": {"http://127.0.0.1:9/"}, "events": {"case.created"}, "enabled": {"true"}}).wants(201)
		id := dbtest.Value[string](t, s.DB, `SELECT id FROM webhook_endpoints WHERE guild_id = $1`, guild)
		return page(guild, "webhooks", id)
	}
	one, other := endpoint(guildID), endpoint(neighbourID)
	for range 30 {
		b.post(one+"/recover", since).wants(303)
	}
	for _, path := range []string{"/recover", "/test", "/deliveries/x/redeliver"} {
		if got := b.post(one+path, since).wants(429, "Try again in"); got.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", path)
		}
	}
	if n := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM webhook_deliveries`); n != 0 {
		t.Errorf("%d deliveries were made", n)
	}
	b.post(other+"/recover", since).wants(303)
}

// The responses of the API are byte for byte the same with and without the dashboard, whatever a
// browser sends. The API refuses sessions, and the dashboard refuses tokens.
func TestTheAPIDoesNotKnowTheDashboard(t *testing.T) {
	t.Parallel()
	l := newLive(t) // the second node of live has no dashboard
	token := l.makeToken(t, guildID, func(n *auth.New) { n.Scopes = []string{"cases:read", "cases:write", "guild:read"} }).Secret
	b := l.as(t, "owner")
	session := "__Host-guildhall=" + b.session()
	ask := func(node, method, path, body string, header ...string) (int, http.Header, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, node+path, strings.NewReader(body))
		must(t, err)
		for i := 0; i+1 < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		client := *l.Server.Client()
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		res, err := client.Do(req)
		must(t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		must(t, err)
		for _, changing := range []string{
			"Date", "X-Request-Id", "Ratelimit-Remaining", "Ratelimit-Reset", "X-Ratelimit-Remaining",
			"X-Ratelimit-Reset",
		} {
			if res.Header.Get(changing) != "" {
				res.Header.Set(changing, "set")
			}
		}
		return res.StatusCode, res.Header, string(text)
	}
	bearer := []string{"Authorization", "Bearer " + token}
	browsers := []string{"Cookie", session, "Origin", l.URL, "Sec-Fetch-Site", "same-origin"}
	write := append([]string{"Content-Type", "application/json", "Idempotency-Key", "once"}, bearer...)
	const newCase = `{"user_id":"42","moderator_id":"7","type":"warn","reason":"Spam"}`
	for _, tt := range []struct {
		method, path, body string
		header             []string
	}{
		{"GET", "/api/v1/cases", "", bearer},
		{"HEAD", "/api/v1/cases", "", bearer},
		{"GET", "/api/v1/cases?per_page=0", "", bearer},
		{"POST", "/api/v1/cases", newCase, write},
		{"POST", "/api/v1/cases", newCase, write},
		{"POST", "/api/v1/cases", `{`, write},
		{"GET", "/api/v1/cases/1", "", append(browsers, bearer...)},
		{"GET", "/api/v1/cases", "", browsers},
		{"GET", "/api/v1/tickets", "", bearer},
		{"OPTIONS", "/api/v1/cases", "", append([]string{"Access-Control-Request-Method", "GET"}, browsers...)},
		{"GET", "/api/v1/nothing", "", bearer},
		{"GET", "/", "", nil},
		{"GET", "/dashboards", "", bearer},
		{"GET", "/api/v1/dashboard/", "", bearer},
		{"GET", "/docs", "", nil},
		{"GET", "/docs/begin.js", "", nil},
		{"GET", "/openapi.yaml", "", nil},
		{"DELETE", "/api/v1/cases", "", bearer},
	} {
		status, header, body := ask(l.URL, tt.method, tt.path, tt.body, tt.header...)
		wantStatus, wantHeader, wantBody := ask(l.Other, tt.method, tt.path, tt.body, tt.header...)
		if tt.method == "POST" { // the first of two equal writes makes the change, the second repeats its response
			header.Del("Idempotent-Replay")
			wantHeader.Del("Idempotent-Replay")
		}
		if status != wantStatus || body != wantBody || !sameHeader(header, wantHeader) {
			t.Errorf("%s %s: %d %v %s\nwithout the dashboard %d %v %s", tt.method, tt.path, status, header, body, wantStatus, wantHeader, wantBody)
		}
		if len(header.Values("Set-Cookie")) > 0 || header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s %s: headers %v", tt.method, tt.path, header)
		}
	}
	if status, _, body := ask(l.URL, "GET", "/api/v1/me", "", browsers...); status != http.StatusUnauthorized {
		t.Errorf("a session opens the API: %d %s", status, body)
	}
	if status, _, body := ask(l.URL, "GET", page(guildID), "", bearer...); status != http.StatusUnauthorized {
		t.Errorf("a token opens the dashboard: %d %s", status, body)
	}
}

func sameHeader(a, b http.Header) bool {
	if len(a) != len(b) {
		return false
	}
	for name := range a {
		if strings.Join(a[name], "\n") != strings.Join(b[name], "\n") {
			return false
		}
	}
	return true
}

// A request from an address outside the token's allowlist counts as a refusal of that token.
func TestRefusedAddressesAreCounted(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	token := l.makeToken(t, guildID, func(n *auth.New) { n.AllowIP = []string{"203.0.113.0/24"} })
	if status, body := l.call(t, l.URL, token.Secret, http.MethodGet, "/cases", ""); status != http.StatusForbidden {
		t.Fatalf("answers %d: %s", status, body)
	}
	must(t, l.Counter.Flush(t.Context(), l.DB))
	rows, err := usage.Refusals(t.Context(), l.DB.Reader(), guildID, usage.RefusalFilter{Token: token.ID}, 10)
	must(t, err)
	if len(rows) != 1 || rows[0].Code != "ip_not_allowed" || rows[0].Address != "127.0.0.1" {
		t.Errorf("refusals %+v", rows)
	}
	l.as(t, "owner").get(page(guildID, "tokens", token.ID)).wants(200, "ip_not_allowed", "127.0.0.1")
}

// The form of an endpoint explains every wrong field and keeps the other values.
func TestWebhookFormSaysWhatToMend(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	hooks := page(guildID, "webhooks")
	good := url.Values{"url": {"http://127.0.0.1:9/keep"}, "description": {"keep me"}, "events": {"case.created"}}
	b.post(hooks, good).wants(201)
	id := dbtest.Value[string](t, s.DB, `SELECT id FROM webhook_endpoints`)
	for name, tt := range map[string]struct{ field, value, says string }{
		"no address":           {"url", "", "an address that begins with https://"},
		"not an address":       {"url", "::", "The address cannot be used"},
		"another protocol":     {"url", "ftp://example.com/", "The address cannot be used"},
		"a script":             {"url", "javascript:alert(1)", "The address cannot be used"},
		"a private address":    {"url", "https://192.168.0.1/", "The address cannot be used"},
		"plain http":           {"url", "http://203.0.113.9/", "The address cannot be used"},
		"a password":           {"url", "https://me:secret@203.0.113.9/", "The address cannot be used"},
		"a long address":       {"url", "https://203.0.113.9/" + strings.Repeat("x", 3000), "The address cannot be used"},
		"a long description":   {"description", strings.Repeat("x", 201), "at most 200 fit"},
		"an unseen character":  {"description", "a\u202eb", "cannot be seen"},
		"a line break":         {"description", "a\nb", "cannot be seen"},
		"no event":             {"events", "", "Choose at least one event"},
		"an event that is not": {"events", "case.eaten", "is not an event"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, path := range []string{hooks, hooks + "/" + id + "/edit"} {
				form := url.Values{"url": good["url"], "description": good["description"], "events": good["events"]}
				form.Set(tt.field, tt.value)
				got := b.in(t).post(path, form).wants(422, `id="`+tt.field+`-error"`, tt.says, `id="problems"`).lacks("shown this once")
				for field, kept := range map[string]string{
					"url": `value="http://127.0.0.1:9/keep"`, "description": `value="keep me"`,
					"events": `value="case.created" checked`,
				} {
					if field != tt.field && !strings.Contains(got.body, kept) {
						t.Errorf("%s: %s is not kept", path, field)
					}
				}
				if strings.Contains(got.body, `name="enabled" value="true" checked`) {
					t.Errorf("%s: a disabled endpoint is not kept disabled", path)
				}
			}
		})
	}
	t.Cleanup(func() {
		if n := dbtest.Value[int](t, s.DB, `
			SELECT count(*)
			FROM webhook_endpoints
			WHERE url = 'http://127.0.0.1:9/keep' AND description = 'keep me' AND events = '{case.created}'`); n != 1 {
			t.Error("a wrong form has changed the endpoint")
		}
	})
}

// If a rotation fails, the record that its form was sent is rolled back too, so the form can be
// sent again.
func TestARotationThatFailedCanBeRepeated(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	hooks := page(guildID, "webhooks")
	b.post(hooks, url.Values{"url": {"http://127.0.0.1:9/"}, "events": {"case.created"}}).wants(201)
	id := dbtest.Value[string](t, s.DB, `SELECT id FROM webhook_endpoints`)
	rotate := func() got { return b.post(hooks+"/"+id+"/rotate", url.Values{"once": {"the form"}}) }
	dbtest.Exec(t, s.DB, `ALTER TABLE webhook_endpoints ADD CONSTRAINT stuck CHECK (old_secrets = '[]')`)
	rotate().wants(500)
	dbtest.Exec(t, s.DB, `ALTER TABLE webhook_endpoints DROP CONSTRAINT stuck`)
	rotate().wants(200, "shown this once")
	rotate().wants(303)
}

// When the service disables an endpoint, the audit log records that.
func TestDisablingByTheServiceIsAudited(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker(t)
	r := egresstest.NewReceiver(t, egresstest.Respond(http.StatusGone, hostile))
	b := s.as(t, "owner")
	hooks := page(guildID, "webhooks")
	b.post(hooks, url.Values{"url": {r.URL}, "events": {"case.created"}, "enabled": {"true"}}).wants(201)
	id := dbtest.Value[string](t, s.DB, `SELECT id FROM webhook_endpoints`)
	b.post(hooks+"/"+id+"/test", nil).wants(303)
	rows, err := audit.List(t.Context(), s.DB.Reader(), guildID, audit.Filter{Action: audit.WebhookDisabled}, 10)
	must(t, err)
	if len(rows) != 1 || rows[0].ActorType != audit.System || rows[0].Target != id || rows[0].After == nil ||
		!strings.Contains(*rows[0].After, "gone") {
		t.Errorf("the audit log has %+v", rows)
	}
	b.get(page(guildID, "audit")).wants(200, "webhook.disabled", "Guildhall")
}

// Exactly the rows that are no longer used are deleted.
func TestPrune(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	kept := s.as(t, "owner")
	for range 2 {
		_, err := dashboard.NewLink(t.Context(), s.DB, guildID, time.Minute)
		must(t, err)
	}
	dbtest.Exec(t, s.DB, `
		INSERT INTO dashboard_sessions (hash, id, account, data, address, agent, expires_at)
		SELECT n, n, '', '', '', '', now() - interval '1 second' FROM generate_series(1, 1500) n`)
	dbtest.Exec(t, s.DB, `
		INSERT INTO dashboard_once (guild_id, key, made_at)
		SELECT $1, n::text::bytea, now() - interval '3 days'
		FROM generate_series(1, 5) n`, guildID)
	dbtest.Exec(t, s.DB, `
		UPDATE dashboard_links SET expires_at = now() - interval '2 days'
		WHERE hash = (SELECT hash FROM dashboard_links LIMIT 1)`)
	first, second := dbtest.Prune(t, s.DB, dashboard.Expired()), dbtest.Prune(t, s.DB, dashboard.Expired())
	if first != 1006 || second != 500 {
		t.Errorf("deleted %d, then %d", first, second)
	}
	if n := dbtest.Value[int](t, s.DB, `SELECT (SELECT count(*) FROM dashboard_sessions) * 100
		+ (SELECT count(*) FROM dashboard_links) * 10 + (SELECT count(*) FROM dashboard_once)`); n != 111 {
		t.Errorf("left are %d", n)
	}
	kept.get(page(guildID)).wants(200)
}

var errBroken = errors.New("the database is away")

// broken is a database that fails on every write.
type broken struct{}

func (broken) Do(context.Context, func(context.Context, *db.Tx) error) error { return errBroken }

// If the usage counters cannot be written to the database, a page shows the counters written
// before.
func TestUsageThatWasNotWrittenWaits(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	token := l.makeToken(t, guildID)
	l.call(t, l.URL, token.Secret, http.MethodGet, "/cases", "")
	if err := l.Counter.Flush(t.Context(), broken{}); !errors.Is(err, errBroken) {
		t.Errorf("the flush says %v", err)
	}
	l.call(t, l.URL, token.Secret, http.MethodGet, "/cases", "")
	must(t, l.Counter.Flush(t.Context(), l.DB))
	hours, err := usage.Hours(t.Context(), l.DB.Reader(), guildID, token.ID, time.Now().Add(-2*time.Hour))
	must(t, err)
	var sum int64
	for _, h := range hours {
		sum += h.Requests
	}
	if sum != 2 {
		t.Errorf("%d requests are counted, want 2", sum)
	}
}
