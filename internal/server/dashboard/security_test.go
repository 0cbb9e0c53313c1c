package dashboard_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/server/dashboard"
)

func (b *browser) session() string {
	u, err := url.Parse(b.s.URL + "/dashboard/")
	must(b.t, err)
	for _, c := range b.client.Jar.Cookies(u) {
		if c.Name == "__Host-guildhall" {
			return c.Value
		}
	}
	return ""
}

// signInFresh returns the cookies that a sign-in sets.
func (b *browser) signInFresh() []string {
	b.t.Helper()
	return b.signIn("owner", "").wants(http.StatusSeeOther).header.Values("Set-Cookie")
}

func TestSessions(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	planted := s.browser(t)
	const plant = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	u, err := url.Parse(s.URL + "/dashboard/")
	must(t, err)
	planted.client.Jar.SetCookies(u, []*http.Cookie{{Name: "__Host-guildhall", Value: plant, Path: "/", Secure: true}})
	planted.signIn("owner", "").wants(303)
	first := planted.session()
	if first == plant || first == "" {
		t.Errorf("the session after signing in is %q", first)
	}
	planted.signIn("owner", "").wants(303)
	if again := planted.session(); again == first {
		t.Error("signing in again keeps the session's id")
	}
	old := s.browser(t)
	old.get(page(guildID), "Cookie", "__Host-guildhall="+first).wants(401)

	// One session ends another, and then all others.
	second, third := s.as(t, "owner"), s.as(t, "owner")
	second.get("/dashboard/sessions").wants(200, "this one", "End all other sessions")
	second.post("/dashboard/sessions", nil).wants(303)
	third.get(page(guildID)).wants(401)
	second.get(page(guildID)).wants(200)
	ended := second.session()
	for _, cookie := range append(s.browser(t).get("/dashboard/login").header.Values("Set-Cookie"), s.browser(t).signInFresh()...) {
		if !strings.HasPrefix(cookie, "__Host-") || !strings.Contains(cookie, "Path=/;") || !strings.Contains(cookie, "Secure") ||
			!strings.Contains(cookie, "HttpOnly") || strings.Contains(cookie, "Domain") {
			t.Errorf("a sibling host can set a cookie in front of %s", cookie)
		}
	}
	second.post("/dashboard/logout", nil).wants(303)
	old.get(page(guildID), "Cookie", "__Host-guildhall="+ended).wants(401)

	idle := s.as(t, "owner")
	dbtest.Exec(t, s.DB, `UPDATE dashboard_sessions SET expires_at = now()`)
	idle.get(page(guildID)).wants(401)
	if n := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM dashboard_sessions WHERE hash = $1`, idle.session()); n != 0 {
		t.Error("the cookie's value is stored")
	}
}

func TestCrossSite(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	form := url.Values{"name": {"x"}, "scopes": {"cases:read"}}
	for name, header := range map[string][]string{
		"another site":      {"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"},
		"an old browser":    {"Origin", "https://evil.example", "Sec-Fetch-Site", ""},
		"no origin":         {"Origin", "null", "Sec-Fetch-Site", ""},
		"a sibling":         {"Origin", "https://other.example.com", "Sec-Fetch-Site", "same-site"},
		"a sandboxed frame": {"Origin", "null", "Sec-Fetch-Site", "cross-site"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b.in(t).post(page(guildID, "tokens"), form, header...).wants(403)
			b.in(t).post("/dashboard/logout", url.Values{}, header...).wants(403)
		})
	}
	t.Cleanup(func() {
		if n := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM api_tokens`); n != 0 {
			t.Errorf("%d tokens were made from elsewhere", n)
		}
	})
}

func TestHeadersAndTransport(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	for _, path := range []string{"/dashboard/", page(guildID), page(guildID, "tokens"), "/dashboard/nothing"} {
		h := b.get(path).header
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
				"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			"Cache-Control":              "no-store",
			"Referrer-Policy":            "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin",
			"X-Content-Type-Options":     "nosniff",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
	}
	if got := s.browser(t).get("/api/v1/me").body; got != "the API" {
		t.Errorf("the API is not reached: %s", got)
	}
	s.browser(t).get("/dashboardx").wants(200, "the API")
	elsewhere := newSite(t, func(c *dashboard.Config) {
		u, err := dashboard.ParseURL("https://dash.example")
		must(t, err)
		c.URL = u
	})
	elsewhere.browser(t).get("/dashboard/").wants(404)

	// Behind a proxy that forwards a request without TLS.
	plain := newSite(t, func(c *dashboard.Config) { c.Proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	plain.browser(t).get("/dashboard/", "X-Forwarded-Proto", "http").wants(403, "https_required")
}

// After a sign-in, the browser is redirected only to a page of the dashboard.
func TestWhereToGo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for to, want := range map[string]string{
		page(guildID, "tokens"): page(guildID, "tokens"), page(guildID, "requests") + "?window=7d": page(guildID, "requests") + "?window=7d",
		"//evil.example": "/dashboard/", `/\evil.example`: "/dashboard/", "%2f%2fevil.example": "/dashboard/",
		"https:evil.example":              "/dashboard/",
		"https://evil.example/dashboard/": "/dashboard/", "/dashboard//evil.example": "/dashboard/", "/dashboard/../docs": "/dashboard/",
		"/dashboard/%2f%2fevil": "/dashboard/", "/docs": "/dashboard/", "javascript:alert(1)": "/dashboard/", "/dashboard/\t/x": "/dashboard/",
	} {
		if got := s.browser(t).signIn("owner", to); got.to != want {
			t.Errorf("%q leads to %q, want %q", to, got.to, want)
		}
	}
}

func TestSignInIsOnceAndInOneBrowser(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	begin := func(b *browser) string {
		granted := b.post(b.get("/dashboard/login").wants(303).to, url.Values{"person": {"owner"}})
		return granted.wants(303).to
	}
	refused := func(b *browser, path string) {
		t.Helper()
		b.get(path).wants(400, "Nobody was signed in")
		b.get("/dashboard/sessions").wants(401)
	}
	victim, attacker := s.browser(t), s.browser(t)
	path := begin(attacker)
	refused(victim, path) // a callback without a sign-in started by this browser
	_ = begin(victim)     // and with the state of another browser
	refused(victim, path)
	b := s.browser(t)
	path = begin(b)
	u, err := url.Parse(s.URL + "/dashboard/login/callback")
	must(t, err)
	kept := b.client.Jar.Cookies(u)
	b.get(path).wants(303)
	replay := s.browser(t) // with the old cookie
	replay.client.Jar.SetCookies(u, kept)
	refused(replay, path)
	refused(b.fresh(), path)
	declined := s.browser(t)
	to := declined.post(declined.get("/dashboard/login").to, url.Values{"person": {""}}).to
	declined.get(to).wants(400, "declined")
	other := s.browser(t)
	at, err := url.Parse(begin(other))
	must(t, err)
	q := at.Query()
	q.Set("code", "another")
	at.RawQuery = q.Encode()
	refused(other, at.String())
}

func (b *browser) fresh() *browser { return b.s.browser(b.t) }

// fakeDiscord returns a Discord client for a server with one guild and its manager, with the
// responses that the test sets.
func fakeDiscord(t *testing.T, roles *atomic.Value, status *atomic.Int64) *dashboard.Discord {
	t.Helper()
	mux := http.NewServeMux()
	say := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }
	}
	mux.HandleFunc("POST /oauth2/token", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"access_token":"secret-access-token","token_type":"Bearer"}`))
	})
	mux.HandleFunc("POST /oauth2/token/revoke", say(`{}`))
	mux.HandleFunc("GET /users/@me", say(`{"id":"77","username":"mara"}`))
	mux.HandleFunc("GET /users/@me/guilds", say(`[{"id":"`+guildID+`","permissions":"32"}]`))
	mux.HandleFunc("GET /guilds/"+guildID, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bot bot-token" {
			t.Errorf("rights are asked with %q", r.Header.Get("Authorization"))
		}
		w.WriteHeader(int(status.Load()))
		_, _ = w.Write([]byte(`{"id":"` + guildID + `","owner_id":"1","roles":[{"id":"5","permissions":"32"}]}`))
	})
	mux.HandleFunc("GET /guilds/"+guildID+"/members/77", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"roles":` + roles.Load().(string) + `}`))
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return discordAt(t, srv.URL)
}

// discordAt returns a Discord client for a test server.
func discordAt(t *testing.T, url string) *dashboard.Discord {
	t.Helper()
	bot, err := chat.NewDiscord(chat.Config{Token: "bot-token", URL: url, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	d, err := dashboard.NewDiscord(dashboard.DiscordConfig{
		ClientID: "c", ClientSecret: "s", Bot: bot, URL: url, AuthorizeURL: url + "/authorize",
	})
	must(t, err)
	return d
}

// The platform gives rights and takes them away, and a change of rights takes effect at once for
// changes. RELIABILITY.md, Guilds.
func TestRights(t *testing.T) {
	t.Parallel()
	var ahead, status atomic.Int64
	var roles atomic.Value
	roles.Store(`["5"]`)
	status.Store(200)
	s := newSite(t, func(c *dashboard.Config) {
		c.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		c.Discord = fakeDiscord(t, &roles, &status)
	})
	b := s.browser(t)
	authorize, err := url.Parse(b.get("/dashboard/login").wants(303).to)
	must(t, err)
	if q := authorize.Query(); q.Get("code_challenge_method") != "S256" || q.Get("scope") != "identify guilds" {
		t.Errorf("asks for %v", q)
	}
	b.get("/dashboard/login/callback?code=x&state=" + authorize.Query().Get("state")).wants(303)
	form := url.Values{"name": {"x"}, "scopes": {"cases:read"}, "expires_in_days": {"7"}}
	b.get(page(guildID)).wants(200)
	b.post(page(guildID, "tokens"), form).wants(201)

	second := func() { ahead.Add(int64(time.Second)) } // the time of one question to the platform
	// A page shows the last answer if a newer one takes longer than the page waits.
	soon := func(status int) {
		t.Helper()
		testutil.Eventually(t, fmt.Sprint("the page answers ", status), func() bool { return b.get(page(guildID)).status == status })
	}
	second()
	status.Store(502) // while the platform is down, pages still work, and changes are refused with a message
	b.get(page(guildID)).wants(200)
	b.post(page(guildID, "tokens"), form).wants(503, "Discord does not answer")
	ahead.Store(int64(9 * time.Minute))
	b.get(page(guildID)).wants(200)
	ahead.Store(int64(11 * time.Minute))
	b.get(page(guildID)).wants(503)
	second()
	status.Store(200)
	soon(200)

	second()
	roles.Store(`[]`) // when the right is lost, changes are refused at once, and pages within a minute
	b.get(page(guildID)).wants(200)
	b.post(page(guildID, "tokens"), form).wants(404)
	b.get(page(guildID)).wants(404)
	roles.Store(`["5"]`)
	ahead.Add(int64(61 * time.Second))
	soon(200)
	status.Store(404) // the bot has left the guild
	ahead.Add(int64(61 * time.Second))
	soon(404)
	if n := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM api_tokens`); n != 1 {
		t.Errorf("%d tokens were made", n)
	}
	if strings.Contains(s.Log.String(), "secret-access-token") {
		t.Error("the log holds the access token")
	}
}

// Sign-ins take from the bucket of the address.
func TestSignInsAreLimited(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *dashboard.Config) { c.Login = ratelimit.Quota{Limit: 3, Window: time.Hour} })
	b := s.browser(t)
	for range 3 {
		b.get("/dashboard/login").wants(303)
	}
	if got := b.get("/dashboard/login").wants(429); got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	b.get("/dashboard/login/callback").wants(429)
	b.post("/dashboard/link/"+guildID+"/"+strings.Repeat("a", 43), nil).wants(429)
}

// Hostile names are shown as text and have no effect. RELIABILITY.md, Operation.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, name := range []string{"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "javascript:alert(1)", "abcdef"} {
		s.makeToken(t, guildID, func(n *auth.New) { n.Name = name })
	}
	// Stored before such names were refused.
	dbtest.Exec(t, s.DB, `UPDATE api_tokens SET name = replace(name, 'abcdef', 'abc' || chr(8238) || 'def')`)
	dbtest.Exec(t, s.DB, `UPDATE guilds SET name = '<script>alert(2)</script>' WHERE id = $1`, guildID)
	b := s.as(t, "owner")
	tokens, err := auth.List(t.Context(), s.DB, guildID)
	must(t, err)
	paths := []string{"/dashboard/", page(guildID), page(guildID, "tokens"), page(guildID, "requests"), page(guildID, "audit")}
	for _, token := range tokens {
		paths = append(paths, page(guildID, "tokens", token.ID))
	}
	for _, path := range paths {
		b.get(path).wants(200).lacks("<script>alert", "<img src=x", `href="javascript:`, "\u202e")
	}
	b.get(page(guildID, "audit")+"?format=csv").wants(200, "token.created")
}

// RELIABILITY.md, Guilds.
func TestOtherGuildsTokens(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "manager")
	foreign := s.makeToken(t, neighbourID)
	b.get(page(guildID, "tokens", foreign.ID)).wants(404)
	b.post(page(guildID, "tokens", foreign.ID, "revoke"), url.Values{"confirm": {"a token"}}).wants(404)
	accepts(t, s, foreign.Secret, true)
}

// A page that reloads itself every five seconds does not extend the session, and does not use up
// the message for the next page that the person opens.
func TestReadingAPageAgainIsNoUseOfTheSession(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "manager")
	ends := func() time.Time { return dbtest.Value[time.Time](t, s.DB, `SELECT expires_at FROM dashboard_sessions`) }
	one := b.endpoint()
	b.post(one+"/enable", nil).wants(303) // stores a message for the next page
	dbtest.Exec(t, s.DB, `UPDATE dashboard_sessions SET expires_at = now() + interval '10 minutes'`)
	before := ends()
	for _, path := range []string{page(guildID), page(guildID, "webhooks"), one} {
		b.get(path, "Guildhall-Refresh", "1").wants(200).lacks("is enabled. ")
	}
	if after := ends(); !after.Equal(before) {
		t.Errorf("reading a page again moves the end of the session from %s to %s", before, after)
	}
	b.get(one).wants(200, "is enabled. ")
	if !ends().After(before) {
		t.Error("opening a page does not move the end of the session")
	}
	b.expire()
	b.get(page(guildID), "Guildhall-Refresh", "1").wants(401)
}
