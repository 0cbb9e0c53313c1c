package dashboard_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/access/seal/sealtest"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/egress"
	"guildhall/internal/outbound/egress/egresstest"
	"guildhall/internal/server/api"
	"guildhall/internal/server/dashboard"
	"guildhall/internal/service/webhooks"
)

const (
	guildID     = "197038439483310086"
	neighbourID = "302094807046684672"
)

// site is a dashboard and a handler in place of the API, with a database of two guilds.
type site struct {
	*dbtest.Database
	URL    string
	Log    *testutil.Log
	Server *httptest.Server
	Config dashboard.Config
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newSite starts a dashboard with the local stand-in for Discord, and a handler in place of the
// API.
func newSite(t testing.TB, change ...func(*dashboard.Config)) *site {
	t.Helper()
	return siteOn(t, dbtest.New(t), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "the API")
	}), change...)
}

func siteOn(t testing.TB, database *dbtest.Database, next http.Handler, change ...func(*dashboard.Config)) *site {
	t.Helper()
	s := &site{Database: database, Log: &testutil.Log{}}
	for _, id := range []string{guildID, neighbourID} {
		dbtest.Exec(t, s.DB, `
			WITH g AS (INSERT INTO guilds (id, name, owner_id) VALUES ($1, 'Guild ' || $1, '1') ON CONFLICT DO NOTHING RETURNING id)
			INSERT INTO guild_settings (guild_id) SELECT id FROM g`, id)
	}
	box := sealtest.Box(t, 7)
	limits, err := ratelimit.New(ratelimit.Config{})
	must(t, err)
	standIn, err := dashboard.NewStandIn(s.DB)
	must(t, err)
	operations, err := api.Summaries()
	must(t, err)
	s.Config = dashboard.Config{
		Webhooks: webhooks.Config{Box: box, Guard: egress.NewGuard(egresstest.Loopback, nil)},
		DB:       s.DB, Env: "test", Limits: limits, Sealer: box, Discord: standIn, Proxies: []netip.Prefix{}, Version: "26.12.0",
		Log: slog.New(slog.NewJSONHandler(s.Log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, o := range operations {
		s.Config.Operations = append(s.Config.Operations, dashboard.Operation(o))
	}
	samples, err := api.EventSamples()
	must(t, err)
	for _, e := range samples {
		s.Config.Events = append(s.Config.Events, dashboard.EventSample(e))
	}
	for _, c := range change {
		c(&s.Config)
	}
	d, err := dashboard.New(s.Config)
	must(t, err)
	s.Server = testutil.NewTLSServer(d.Beside(next))
	t.Cleanup(s.Server.Close)
	s.URL = s.Server.URL
	return s
}

// browser is a person with a browser.
type browser struct {
	t      testing.TB
	s      *site
	client *http.Client
}

func (s *site) browser(t testing.TB) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	must(t, err)
	c := *s.Server.Client()
	c.Jar = jar
	c.Timeout = time.Minute
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &browser{t, s, &c}
}

// in returns the same browser for a subtest.
func (b *browser) in(t testing.TB) *browser {
	t.Helper()
	c := *b
	c.t = t
	return &c
}

// as returns a browser in which one of the stand-in's people has signed in.
func (s *site) as(t testing.TB, person string) *browser {
	t.Helper()
	b := s.browser(t)
	if got := b.signIn(person, ""); got.status != http.StatusSeeOther || got.to != "/dashboard/" {
		t.Fatalf("signing in answers %d to %q: %s", got.status, got.to, got.body)
	}
	return b
}

// got is a response.
type got struct {
	t      testing.TB
	status int
	to     string
	body   string
	header http.Header
}

// do sends a request as a browser does from a page of the dashboard.
func (b *browser) do(method, path string, form url.Values, header ...string) got {
	b.t.Helper()
	if strings.HasPrefix(path, "/") {
		path = b.s.URL + path
	}
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(b.t.Context(), method, path, body)
	must(b.t, err)
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", b.s.URL)
		req.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i+1] == "" {
			req.Header.Del(header[i])
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	res, err := b.client.Do(req)
	must(b.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(b.t, err)
	return got{b.t, res.StatusCode, res.Header.Get("Location"), string(text), res.Header}
}

func (b *browser) get(path string, header ...string) got {
	b.t.Helper()
	return b.do(http.MethodGet, path, nil, header...)
}

func (b *browser) post(path string, form url.Values, header ...string) got {
	b.t.Helper()
	if form == nil {
		form = url.Values{}
	}
	return b.do(http.MethodPost, path, form, header...)
}

// signIn goes through the stand-in's page of consent and back to the dashboard.
func (b *browser) signIn(person, to string) got {
	b.t.Helper()
	path := "/dashboard/login"
	if to != "" {
		path += "?to=" + url.QueryEscape(to)
	}
	begun := b.get(path).wants(http.StatusSeeOther)
	granted := b.post(begun.to, url.Values{"person": {person}})
	granted.wants(http.StatusSeeOther)
	return b.get(granted.to)
}

func (g got) wants(status int, texts ...string) got {
	g.t.Helper()
	if g.status != status {
		g.t.Fatalf("the answer is %d to %q, want %d: %s", g.status, g.to, status, g.body)
	}
	for _, text := range texts {
		if !strings.Contains(g.body, text) {
			g.t.Fatalf("the page lacks %q:\n%s", text, g.body)
		}
	}
	return g
}

func (g got) lacks(texts ...string) got {
	g.t.Helper()
	for _, text := range texts {
		if strings.Contains(g.body, text) {
			g.t.Errorf("the page holds %q:\n%s", text, g.body)
		}
	}
	return g
}

var secretElement = regexp.MustCompile(`<code id="secret">([^<]+)</code>`)

// secret returns the secret that the page shows once.
func (g got) secret() string {
	g.t.Helper()
	m := secretElement.FindStringSubmatch(g.body)
	if m == nil {
		g.t.Fatalf("the page shows no secret: %s", g.body)
	}
	return m[1]
}

func page(guild string, parts ...string) string {
	return "/dashboard/guilds/" + guild + "/" + strings.Join(parts, "/")
}

// makeToken creates a token without the dashboard.
func (s *site) makeToken(t testing.TB, guild string, change ...func(*auth.New)) auth.Token {
	t.Helper()
	n := auth.New{GuildID: guild, Env: "test", Name: "a token", Scopes: []string{"cases:read"}}
	for _, c := range change {
		c(&n)
	}
	made, err := auth.Create(context.Background(), s.DB, n)
	must(t, err)
	return made
}
