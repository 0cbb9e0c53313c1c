package dashboard_test

import (
	"maps"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/dashboard"
)

// filledForms returns forms with all values that a person can type, and the values that a page must
// show again.
func filledForms(edit string) map[string]struct {
	form  url.Values
	shows []string
} {
	token := url.Values{
		"name": {"Payday <bot>"}, "scopes": {"cases:read", "economy:read"}, "ip_allowlist": {"203.0.113.9\r\n2001:db8::/32"},
		"expires_in_days": {"other"}, "days": {"12"}, "once": {"one form"},
	}
	hook := url.Values{
		"url": {"https://hooks.example/a?b=c"}, "description": {"for Mara & me"}, "events": {"case.created"}, "once": {"one form"},
	}
	changed := maps.Clone(hook)
	changed["enabled"] = []string{"true"} // otherwise the person would first be asked whether to disable it
	shown := []string{`value="https://hooks.example/a?b=c"`, `value="for Mara &amp; me"`, `value="case.created" checked`}
	return map[string]struct {
		form  url.Values
		shows []string
	}{
		page(guildID, "tokens"): {token, []string{
			`value="Payday &lt;bot&gt;"`, `value="cases:read" checked`, `value="economy:read" checked`,
			"203.0.113.9\r\n2001:db8::/32</textarea>",
			`value="other" checked`, `value="12"`,
		}},
		page(guildID, "webhooks"): {hook, shown},
		edit + "/edit":            {changed, shown},
	}
}

// endpoint registers an endpoint and returns the path of its page.
func (b *browser) endpoint() string {
	b.t.Helper()
	return b.endpointAt("http://127.0.0.1:9/")
}

// endpointAt registers an endpoint with an address and returns the path of its page.
func (b *browser) endpointAt(address string) string {
	b.t.Helper()
	b.post(page(guildID, "webhooks"), url.Values{"url": {address}, "events": {"case.updated"}, "enabled": {"true"}}).wants(201)
	return page(guildID, "webhooks", dbtest.Value[string](b.t, b.s.DB, `SELECT id FROM webhook_endpoints WHERE guild_id = $1`, guildID))
}

// If an error occurs while a form is processed, because the platform or the database is down, the
// response shows the form with its values and the error, and the form can be sent again.
func TestAFormThatMeetsAFailureComesBackAsItWasFilled(t *testing.T) {
	t.Parallel()
	var roles atomic.Value
	var status, ahead atomic.Int64
	roles.Store(`["5"]`)
	status.Store(200)
	database := dbtest.New(t)
	link := dbtest.NewLink(t, database.URL)
	s := siteOn(t, database, http.NotFoundHandler(), func(c *dashboard.Config) {
		far, err := db.Open(db.Config{URL: link.URL, Writers: 4, Readers: 4, Name: "guildhall-test-far"})
		must(t, err)
		t.Cleanup(func() { far.Close() })
		c.DB, c.Discord = far, fakeDiscord(t, &roles, &status)
		c.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	b := s.browser(t)
	b.signInAt(t)
	one := b.endpoint()
	forms := filledForms(one)
	back := func(says string) {
		t.Helper()
		for path, f := range forms {
			got := b.post(path, f.form).wants(503, append(f.shows, says, `action="`+path+`"`, `value="one form"`, `role="alert"`)...)
			if got.header.Get("Retry-After") == "" {
				t.Errorf("%s: no Retry-After", path)
			}
		}
		// A form without fields of its own can be sent again, too.
		b.post(one+"/remove", url.Values{"confirm": {"http://127.0.0.1:9/ "}}).wants(503, says,
			`action="`+one+`/remove"`, `name="confirm" value="http://127.0.0.1:9/ "`, "Try again")
	}
	status.Store(502)
	ahead.Add(int64(2 * time.Second)) // the platform's answer may be at most a second old
	back("Discord does not answer")
	status.Store(200)
	link.Down()
	back("The database does not answer")
	link.Up()
	if n := dbtest.Value[int](t, s.DB, `
		SELECT (SELECT count(*) FROM api_tokens) + (SELECT count(*) FROM webhook_endpoints) - 1`); n != 0 {
		t.Errorf("%d things were made by forms that failed", n)
	}
}

// signInAt signs a person in through the test's fake Discord.
func (b *browser) signInAt(t *testing.T) {
	t.Helper()
	authorize, err := url.Parse(b.get("/dashboard/login").wants(303).to)
	must(t, err)
	b.get("/dashboard/login/callback?code=x&state=" + authorize.Query().Get("state")).wants(303)
}

// A form that is sent after the session has ended is not stored in the browser: the next person who
// signs in there finds an empty form, and the sign-in leads to that form.
func TestAFormOfAnEndedSessionIsNotKept(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	one := s.as(t, "manager").endpoint()
	token := s.makeToken(t, guildID)
	forms := filledForms(one)
	at := map[string]string{
		page(guildID, "tokens"):   page(guildID, "tokens", "new"),
		page(guildID, "webhooks"): page(guildID, "webhooks", "new"),
		one + "/edit":             one + "/edit",
	}
	revoke := page(guildID, "tokens", token.ID, "revoke")
	forms[revoke] = struct {
		form  url.Values
		shows []string
	}{url.Values{"confirm": {"a tok"}}, []string{`value="a tok"`}}
	at[revoke] = page(guildID, "tokens", token.ID)
	for path, f := range forms {
		b := s.as(t, "manager")
		b.expire()
		ended := b.post(path, f.form).wants(401, "Your session has ended", "was not kept", "/dashboard/login?to="+url.QueryEscape(at[path]))
		ended.lacks("Payday", "hooks.example")
		if cookies := ended.header.Values("Set-Cookie"); len(cookies) != 0 {
			t.Errorf("%s: the form of an ended session sets cookies: %v", path, cookies)
		}
		if got := b.signIn("owner", at[path]); got.to != at[path] {
			t.Fatalf("signing in leads to %q, want %q", got.to, at[path])
		}
		b.get(at[path]).wants(200).lacks(f.shows[0])
	}
	if n := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM api_tokens WHERE name <> 'a token' OR revoked_at IS NOT NULL`); n != 0 {
		t.Errorf("%d tokens were changed by nobody", n)
	}
}

// expire ends every session in the database.
func (b *browser) expire() {
	b.t.Helper()
	dbtest.Exec(b.t, b.s.DB, `UPDATE dashboard_sessions SET expires_at = now()`)
}

// When an operator's session has ended, the page says how to get a new link, and the new session
// starts at the guild.
func TestAnOperatorsFormOfAnEndedSession(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *dashboard.Config) { c.Discord = nil })
	b := s.browser(t)
	open := func() got {
		link, err := dashboard.NewLink(t.Context(), s.DB, guildID, time.Minute)
		must(t, err)
		return b.post(link.Path, nil).wants(303)
	}
	open()
	b.expire()
	form := filledForms("")[page(guildID, "tokens")]
	b.post(page(guildID, "tokens"), form.form).wants(401, "guildhall dashboard link --guild "+guildID)
	if to := open().to; to != page(guildID) {
		t.Errorf("the link leads to %q", to)
	}
	b.get(page(guildID, "tokens", "new")).wants(200).lacks(form.shows[0])
}
