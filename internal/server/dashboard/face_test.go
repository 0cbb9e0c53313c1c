package dashboard_test

import (
	"compress/gzip"
	"html"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/event"
	"guildhall/internal/server/dashboard"
)

// Pages and assets are compressed, except pages that show a secret; an asset that the browser has
// already is not sent again.
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
		for _, coding := range []string{"identity", "gzip;q=0", "gzip; q=0.0", "gzip;Q=0.000"} {
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

// The stand-in for Discord signs in only people on this machine. It refuses people on other
// machines, even if they ask for a name of this machine.
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

// Every page links to the reference, and shows the base URL and the program's version.
func TestPagesLeadToTheReference(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	for _, path := range []string{"/dashboard/", page(guildID), page(guildID, "tokens"), "/dashboard/sessions"} {
		b.get(path).wants(200, `<a href="/docs">API reference</a>`, "<code>"+s.URL+"/api/v1</code>", "<span>Guildhall 26.12.0</span>")
	}
	s.browser(t).get("/dashboard/").wants(200, `<a href="/docs">`).lacks("Base URL", "26.12.0")
	b.get(page(guildID)).wants(200, `<a href="/docs">Make a first call</a>`)
}

// Choosing a time span keeps the filters, and filtering keeps the time span.
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

// The audit log can be filtered by time, and the file contains all filtered rows.
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
	b.get(csv).wants(200, "of today")
	dbtest.Exec(t, s.DB, `
		INSERT INTO audit_log (guild_id, id, at, actor_type, actor_id, actor_name, address, request_id, action, target_id, target_name)
		SELECT $1, '0000' || lpad(n::text, 8, '0'), now() - interval '1 day', 'user', 'u', 'U', '', '', $2, 't', 'older'
		FROM generate_series(1, 4100) n`, guildID, audit.TokenCreated)
	got := b.get(csv + "&action=" + audit.TokenCreated)
	if lines := strings.Count(got.body, "\n"); got.status != 200 || lines != 4101 {
		t.Errorf("the file has %d lines, status %d", lines, got.status)
	}
	if all := strings.Count(b.get(csv).wants(200, "of today").body, "older"); all != 4100 {
		t.Errorf("the file of everything has %d older rows", all)
	}
}

// The form of an endpoint shows all errors at once, and one box selects all events.
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

// The page of a delivery shows its body with indentation and also exactly as it was sent. A
// delivery that will be retried has no button for redelivery.
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

// The page of an endpoint shows twenty deliveries at a time. The button Recover is above the
// deliveries, next to the filters.
func TestRecoverStandsBesideTheFilters(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	one := b.endpoint()
	dbtest.Exec(t, s.DB, `
		WITH ev AS (
			INSERT INTO webhook_events (guild_id, id, type, payload) SELECT $1, 'v' || n, 'case.created', '{}' FROM generate_series(1, 25) n
			RETURNING guild_id, id, type
		) INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_type, state, fresh)
		SELECT guild_id, $2, id, type, 'held', false FROM ev`, guildID, strings.TrimPrefix(one, page(guildID, "webhooks")+"/"))
	body := b.get(one).wants(200, ">Older</a>").body
	filters, recovery := strings.Index(body, `id="status-filter"`), strings.Index(body, `id="recover"`)
	list, rows := strings.Index(body, `id="live-deliveries"`), strings.Count(body, `<td class="act">`)
	if filters < 0 || recovery < filters || list < recovery || rows != 20 {
		t.Errorf("filters at %d, Recover at %d, deliveries at %d, %d rows", filters, recovery, list, rows)
	}
}

// If a file cannot be sent completely, the connection breaks, so that the client does not take a
// part for the whole file.
func TestAFileThatIsCutBreaksOff(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	dbtest.Exec(t, s.DB, `
		INSERT INTO audit_log (guild_id, id, at, actor_type, actor_id, actor_name, address, request_id, action, target_id, target_name)
		SELECT $1, '0000' || lpad(n::text, 8, '0'), now(), 'user', 'u', 'U', '', '', $2, 't', repeat('a long name ', 200)
		FROM generate_series(1, 10000) n`, guildID, audit.TokenCreated)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+page(guildID, "audit")+"?format=csv", nil)
	must(t, err)
	res, err := b.client.Do(req)
	must(t, err)
	defer res.Body.Close()
	_, err = io.ReadFull(res.Body, make([]byte, 1000))
	must(t, err)
	dbtest.Exec(t, s.DB, `ALTER TABLE audit_log RENAME COLUMN target_name TO lost`)
	if n, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Errorf("the file ends after %d bytes as if it were whole", n)
	}
}

// Sessions and refusals are listed in pages, and each page continues where the previous one ends.
func TestSessionsAndRefusalsAreShownInPages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	account := dbtest.Value[string](t, s.DB, `SELECT account FROM dashboard_sessions`)
	dbtest.Exec(t, s.DB, `
		INSERT INTO dashboard_sessions (hash, id, account, data, address, agent, created_at, expires_at)
		SELECT 'h' || n, 'id' || n, $1, '{"values":{}}', '', 'browser number ' || n, now() - n * interval '1 minute', now() + interval '1 hour'
		FROM generate_series(1, 119) n`, account)
	dbtest.Exec(t, s.DB, `
		INSERT INTO usage_refusals (guild_id, request_id, at, token_id, operation, status, code, address)
		SELECT $1, 'request-' || lpad(n::text, 4, '0'), now(), '', 'listCases', CASE WHEN n > 115 THEN 404 ELSE 403 END,
		       CASE WHEN n > 115 THEN 'not_found' ELSE 'insufficient_scope' END, ''
		FROM generate_series(1, 120) n`, guildID)
	older := regexp.MustCompile(`<a class="button" href="([^"]+)">Older</a>`)
	for path, c := range map[string]struct {
		row   *regexp.Regexp
		total int
	}{
		"/dashboard/sessions":                                        {regexp.MustCompile(`name="id" value="([^"]+)"`), 120},
		page(guildID, "requests"):                                    {regexp.MustCompile(`>(request-\d+)<`), 120},
		page(guildID, "requests") + "?code=insufficient_scope":       {regexp.MustCompile(`>(request-\d+)<`), 115},
		page(guildID, "requests") + "?code=not_found&operation=none": {regexp.MustCompile(`>(request-\d+)<`), 0},
	} {
		seen := map[string]bool{}
		for next, pages := path, 0; next != ""; pages++ {
			got := b.get(next).wants(200)
			rows := c.row.FindAllStringSubmatch(got.body, -1)
			if len(rows) > 50 || pages > 5 {
				t.Fatalf("%s: page %d has %d rows", path, pages, len(rows))
			}
			for _, r := range rows {
				if seen[r[1]] {
					t.Errorf("%s: %s is shown twice", path, r[1])
				}
				seen[r[1]] = true
			}
			next = ""
			if m := older.FindStringSubmatch(got.body); m != nil {
				base, _, _ := strings.Cut(path, "?")
				next = base + html.UnescapeString(m[1])
			}
		}
		if len(seen) != c.total {
			t.Errorf("%s: %d rows are shown, want %d", path, len(seen), c.total)
		}
	}
}

// The form for an endpoint explains each type of events and shows a sample.
func TestTheFormOfAnEndpointShowsSamples(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	got := s.as(t, "owner").get(page(guildID, "webhooks", "new")).wants(200, "A case was created.",
		"&#34;type&#34;: &#34;giveaway.rerolled&#34;")
	if n := strings.Count(got.body, `name="events"`); n != len(event.Types)+1 {
		t.Errorf("%d boxes for %d types", n, len(event.Types))
	}
}
