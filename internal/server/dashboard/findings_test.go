package dashboard_test

import (
	"fmt"
	"html"
	"net/url"
	"regexp"
	"testing"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/base/db/dbtest"
)

var updatedAt = regexp.MustCompile(`name="updated_at" value="([^"]+)"`)

// Two people open the form of an endpoint at the same time and save different changes. The second
// person sees what the first has saved, and nothing is overwritten until the second person saves
// again.
func TestASecondEditShowsWhatTheFirstHasSaved(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	edit := b.endpoint() + "/edit"
	opened := updatedAt.FindStringSubmatch(b.get(edit).wants(200).body)[1]
	form := func(at, description string, events ...string) url.Values {
		return url.Values{
			"url": {"http://127.0.0.1:9/"}, "description": {description}, "events": events, "enabled": {"true"},
			"updated_at": {html.UnescapeString(at)},
		}
	}
	b.post(edit, form(opened, "the first", "case.updated")).wants(303)
	second := b.post(edit, form(opened, "the second", "case.updated", "case.created")).wants(409, "Somebody has changed this endpoint",
		"Saved: <ins>the first</ins>", "Yours: <del>the second</del>", "Saved: <ins>case.updated</ins>",
		"Yours: <del>case.created, case.updated</del>", `value="the second"`, `value="case.created" checked`)
	second.lacks("<dt>Address</dt>", "<dt>Enabled</dt>")
	stored := func() string {
		return dbtest.Value[string](t, s.DB, `SELECT description FROM webhook_endpoints WHERE guild_id = $1`, guildID)
	}
	if got := stored(); got != "the first" {
		t.Fatalf("the endpoint's description is %q, want what the first has saved", got)
	}
	b.post(edit, form(updatedAt.FindStringSubmatch(second.body)[1], "the second", "case.updated", "case.created")).wants(303)
	if got := stored(); got != "the second" {
		t.Errorf("the endpoint's description is %q, want what the second has saved", got)
	}
	if n := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM audit_log WHERE action = $1`, audit.WebhookUpdated); n != 2 {
		t.Errorf("the audit log has %d updates, want 2", n)
	}
}

// Joiners in Persian, joined emoji and flags made of tag sequences are text: they are accepted in
// names and descriptions, and shown unchanged.
func TestNamesInEveryWriting(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	for i, name := range []string{
		"فروشگاه می\u200cخواهم", "ک\u200dب", "👨\u200d👩\u200d👧 family", "🏳\ufe0f\u200d🌈",
		"\U0001F3F4\U000E0067\U000E0062\U000E0073\U000E0063\U000E0074\U000E007F bank",
	} {
		b.post(page(guildID, "tokens"), url.Values{"name": {name}, "scopes": {"cases:read"}, "once": {fmt.Sprint(i)}}).wants(201)
		b.get(page(guildID, "tokens")).wants(200, "<bdi>"+name+"</bdi>")
		b.post(page(guildID, "webhooks"), url.Values{
			"url": {"http://127.0.0.1:9/"}, "description": {name}, "events": {"case.updated"}, "once": {fmt.Sprint("w", i)},
		}).wants(201)
		b.get(page(guildID, "webhooks")).wants(200, "<bdi>"+name+"</bdi>")
	}
	b.get(page(guildID, "audit")).wants(200, "می\u200cخواهم").lacks("\ufffd")
}

// The form creates a pull endpoint. The endpoint has no address: its page shows the description
// instead, and says that no events were fetched yet.
func TestAPullEndpointIsMadeByTheForm(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	hooks := page(guildID, "webhooks")
	b.get(hooks+"/new").wants(200, `name="delivery" value="push" checked`, `name="delivery" value="pull"`)
	b.get(hooks+"/new?delivery=pull").wants(200, `name="delivery" value="pull" checked`)
	b.post(hooks, url.Values{"delivery": {"pull"}, "events": {""}}).wants(422, `name="delivery" value="pull" checked`, `id="events-error"`)
	b.post(hooks, url.Values{"delivery": {"pull"}, "description": {"the mirror"}, "events": {"case.updated"}, "enabled": {"true"}}).wants(201)
	id := dbtest.Value[string](t, s.DB, `SELECT id FROM webhook_endpoints WHERE delivery = 'pull' AND url = ''`)
	b.get(hooks+"/"+id).wants(200, "<h1><bdi>the mirror</bdi></h1>", "never: no program has fetched from it yet", "name: the mirror")
	b.get(hooks).wants(200, "the mirror", "events are fetched")
	form := b.get(hooks+"/"+id+"/edit").wants(200, `value="the mirror"`).lacks(`name="url"`)
	b.post(hooks+"/"+id+"/edit", url.Values{
		"delivery": {"pull"}, "description": {"another"}, "events": {"case.updated"}, "enabled": {"true"},
		"updated_at": {html.UnescapeString(updatedAt.FindStringSubmatch(form.body)[1])},
	}).wants(303)
	b.post(hooks+"/"+id+"/remove", url.Values{"confirm": {"another"}}).wants(303)
}

// If a guild has the maximum number of endpoints, the pages say so and offer no form that would be
// refused.
func TestNoNewEndpointIsOfferedAtTheLimit(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	hooks := page(guildID, "webhooks")
	b.get(hooks).wants(200, ">New endpoint</a>")
	dbtest.Exec(t, s.DB, `
		INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
		SELECT $1, 'e' || n, 'https://hooks.example/' || n, '{case.created}', '', 'whsec_...1234' FROM generate_series(1, 10) n`, guildID)
	b.get(hooks).wants(200, "This server has 10 endpoints, as many as it may have").lacks(">New endpoint</a>")
	b.get(hooks+"/new").wants(200, "as many as it may have").lacks("<form method=\"post\" action=\"" + hooks)
}

// A delivery that waits for its first attempt has no button for redelivery.
func TestADeliveryIsSentAgainOnlyAfterAnAttempt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	one := b.endpoint()
	waiting := b.post(one+"/test", nil).wants(303).to
	b.get(waiting).wants(200, "Not tried yet").lacks(">Redeliver")
	b.get(one).wants(200, "ping").lacks(">Redeliver")
	dbtest.Exec(t, s.DB, `UPDATE webhook_deliveries SET state = 'failed', attempts = 1, completed_at = now()`)
	b.get(waiting).wants(200, ">Redeliver")
	b.get(one).wants(200, ">Redeliver")
}

// If a link fills the form for a token with scopes that this server does not know, the page names
// these scopes.
func TestUnknownScopesOfALinkAreNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	form := page(guildID, "tokens", "new")
	b.get(form+"?scopes=cases:read,cases:eat&scopes=%3Cb%3E").wants(200, `value="cases:read" checked`, "<code>cases:eat</code>",
		"<code>&lt;b&gt;</code>", "are no scopes of this server")
	b.get(form + "?scopes=cases:read").wants(200).lacks("unknown-scopes")
}

// The pages show scopes and browsers as text.
func TestScopesAndBrowsersInWords(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	b.post(page(guildID, "tokens"), url.Values{"name": {"x"}, "scopes": {"economy:write", "cases:read", "economy:read"}}).wants(201)
	b.get(page(guildID, "tokens")).wants(200, "<span>Cases: read</span>", "<span>Economy: read, write</span>")
	id := dbtest.Value[string](t, s.DB, `SELECT id FROM api_tokens`)
	b.get(page(guildID, "tokens", id)).wants(200, "<span>Economy: read, write</span>", "<code>economy:write</code>")
	dbtest.Exec(t, s.DB, `UPDATE dashboard_sessions SET agent = 'Mozilla/5.0 (X11; Linux x86_64; rv:150.0) Gecko/20100101 Firefox/150.0'`)
	b.get("/dashboard/sessions").wants(200, "<bdi>Firefox on Linux</bdi>").lacks("Gecko")
	dbtest.Exec(t, s.DB, `UPDATE dashboard_sessions SET agent = 'my <b>script'`)
	b.get("/dashboard/sessions").wants(200, "<bdi>my &lt;b&gt;script</bdi>")
}

// The Requests page of a guild without any requests has one sentence, and the same time span
// applies to the whole page.
func TestRequestsOfOneWindow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	b.get(page(guildID, "requests")).wants(200, "No program has called the API", "in the last 24 hours").
		lacks("Nothing was refused", "No refusal that is kept", "No requests in this time", "By operation")
	refuse := func(code string, ago time.Duration) {
		dbtest.Exec(t, s.DB, `
			INSERT INTO usage_refusals (guild_id, request_id, at, token_id, operation, status, code, address)
			VALUES ($1, $2, $3, '', 'listCases', 403, $2, '203.0.113.9')`, guildID, code, time.Now().Add(-ago))
	}
	refuse("of_today", time.Hour)
	refuse("of_old", 5*24*time.Hour)
	groups := func(path string) string {
		return regexp.MustCompile(`(?s)<h2 id="(?:groups|refused)">.*?</section>`).FindString(b.get(path).wants(200).body)
	}
	for path, want := range map[string][2]bool{
		page(guildID):                            {true, false},
		page(guildID, "requests"):                {true, false},
		page(guildID, "requests") + "?window=7d": {true, true},
	} {
		section := groups(path)
		for i, code := range []string{"of_today", "of_old"} {
			if got := regexp.MustCompile(code + `</code>`).MatchString(section); got != want[i] {
				t.Errorf("%s: %s is shown: %v, want %v: %s", path, code, got, want[i], section)
			}
		}
	}
}
