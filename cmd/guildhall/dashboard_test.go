package main

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/base/db"
)

func TestDashboardLink(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	link := func(args ...string) result {
		return call(t, "", append([]string{"dashboard", "link", "--database-url", url}, args...)...)
	}
	const at = "--dashboard-url=https://pages.example/dashboard"
	form := regexp.MustCompile(`^https://pages\.example/dashboard/link/` + guild + `/[A-Za-z0-9_-]{43}\n\nIt works once, until .+\.\n$`)
	if out := link("--guild", guild, at).ok(t); !form.MatchString(out) {
		t.Errorf("it prints %q", out)
	}
	var o struct {
		URL       string    `json:"url"`
		GuildID   string    `json:"guild_id"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	if err := json.Unmarshal([]byte(link("--guild", guild, at, "--expires-in", "1h", "--json").ok(t)), &o); err != nil {
		t.Fatal(err)
	}
	if left := time.Until(o.ExpiresAt); left < 50*time.Minute || left > 70*time.Minute || o.GuildID != guild ||
		!strings.HasPrefix(o.URL, "https://pages.example/dashboard/link/") {
		t.Errorf("it prints %+v", o)
	}
	link("--guild", "1", at).refused(t, 1, "There is no guild 1")
	link("--guild", guild).refused(t, 1, "GUILDHALL_DASHBOARD_URL")
	link("--guild", guild, "--dashboard-url=http://pages.example").refused(t, 2, "is not the address of a dashboard")
	link("--guild", guild, "--dashboard-url=https://pages.example/admin").refused(t, 2, "the dashboard's path is /dashboard")
	link("--guild", guild, at, "--expires-in", "25h").refused(t, 2, "24h at most")
	link("--guild", guild, at, "--expires-in", "soon").refused(t, 2, "is not a time to expiry")

	d, err := db.Open(db.Config{URL: url, Writers: 1, Readers: 1, Name: "guildhall-test"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	rows, err := audit.List(t.Context(), d.Reader(), guild, audit.Filter{Action: audit.LinkCreated}, 10)
	if err != nil || len(rows) != 2 || rows[0].ActorType != audit.CommandLine || rows[0].ActorName == "" {
		t.Errorf("the audit log has %+v: %v", rows, err)
	}
}

// With the setting a server has the dashboard under that host only; without it, the paths do not
// exist.
func TestServeWithAndWithoutADashboard(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	status := func(s *serving, host string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.https+"/dashboard/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		res, err := s.client(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		return res.StatusCode
	}
	with := serve(t, url, "GUILDHALL_DASHBOARD_URL=https://pages.example")
	if at, elsewhere := status(with, "pages.example"), status(with, "other.example"); at != 200 || elsewhere != 404 {
		t.Errorf("with a dashboard: %d, and %d elsewhere", at, elsewhere)
	}
	if without := status(serve(t, url), "pages.example"); without != 404 && without != 401 {
		t.Errorf("without a dashboard: %d", without)
	}
}

// If the chat platform is never called, the dashboard can only be opened by an operator's link,
// even with an application's id and secret, since nobody could say who manages a guild.
func TestADashboardWithoutTheChatPlatformHasLinksOnly(t *testing.T) {
	t.Parallel()
	for _, platform := range []string{"off", "bot"} {
		t.Run(platform, func(t *testing.T) {
			t.Parallel()
			url := withGuild(t)
			s := serve(t, url, "GUILDHALL_DASHBOARD_URL=https://pages.example", "GUILDHALL_DISCORD_CLIENT_ID=1",
				"GUILDHALL_DISCORD_CLIENT_SECRET=x", "GUILDHALL_DISCORD_TOKEN=x", "GUILDHALL_DISCORD_URL="+platform)
			if _, log := s.text(); strings.Count(log, "GUILDHALL_DISCORD_URL is "+platform+": ") != 1 {
				t.Errorf("the log does not say once what %s does not do:\n%s", platform, log)
			}
			client := s.client(t)
			client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			ask := func(method, path, cookie, form string) (*http.Response, string) {
				t.Helper()
				req, err := http.NewRequestWithContext(t.Context(), method, s.https+path, strings.NewReader(form))
				if err != nil {
					t.Fatal(err)
				}
				req.Host = "pages.example"
				req.Header.Set("Cookie", cookie)
				req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				return respond(t, client, req)
			}
			res, body := ask(http.MethodGet, "/dashboard/", "", "")
			if res.StatusCode != http.StatusOK || strings.Contains(body, "Sign in with Discord") ||
				!strings.Contains(body, "guildhall dashboard link") {
				t.Errorf("the first page answers %d: %s", res.StatusCode, body)
			}
			res, body = ask(http.MethodGet, "/dashboard/login", "", "")
			if res.StatusCode != http.StatusNotFound || res.Header.Get("Location") != "" {
				t.Errorf("signing in answers %d: %s", res.StatusCode, body)
			}
			out := call(t, "", "dashboard", "link", "--guild", guild, "--dashboard-url=https://pages.example", "--database-url", url).ok(t)
			link, _, _ := strings.Cut(out, "\n")
			res, _ = ask(http.MethodPost, strings.TrimPrefix(link, "https://pages.example"), "", "")
			if res.StatusCode != http.StatusSeeOther || len(res.Cookies()) == 0 {
				t.Fatalf("the link answers %d", res.StatusCode)
			}
			cookie := res.Cookies()[0].Name + "=" + res.Cookies()[0].Value
			res, body = ask(http.MethodPost, "/dashboard/guilds/"+guild+"/tokens", cookie, "name=x&scopes=cases:read")
			if res.StatusCode != http.StatusCreated {
				t.Errorf("a token of somebody who came by a link answers %d: %s", res.StatusCode, body)
			}
		})
	}
}

// Operators list sessions, end one or all of them, and revoke unused links.
func TestOperatorsEndSessionsAndTakeLinksBack(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	s := serve(t, url, "GUILDHALL_DASHBOARD_URL=https://pages.example")
	client := s.client(t)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	command := func(args ...string) result {
		return call(t, "", append(append([]string{"dashboard"}, args...), "--database-url", url)...)
	}
	request := func(method, path, cookie string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, s.https+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "pages.example"
		req.Header.Set("Cookie", cookie)
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res
	}
	newLink := func() string {
		out := command("link", "--guild", guild, "--dashboard-url=https://pages.example").ok(t)
		link, _, _ := strings.Cut(out, "\n")
		return strings.TrimPrefix(link, "https://pages.example")
	}
	signIn := func() string {
		t.Helper()
		res := request(http.MethodPost, newLink(), "")
		if res.StatusCode != http.StatusSeeOther || len(res.Cookies()) == 0 {
			t.Fatalf("signing in answers %d", res.StatusCode)
		}
		return res.Cookies()[0].Name + "=" + res.Cookies()[0].Value
	}
	works := func(cookie string) bool {
		return request(http.MethodGet, "/dashboard/guilds/"+guild+"/", cookie).StatusCode == http.StatusOK
	}
	sessions := func(args ...string) (list []struct {
		ID       string   `json:"id"`
		Type     string   `json:"type"`
		Name     string   `json:"name"`
		GuildIDs []string `json:"guild_ids"`
		Address  string   `json:"address"`
	},
	) {
		t.Helper()
		if err := json.Unmarshal([]byte(command(append([]string{"sessions", "--json"}, args...)...).ok(t)), &list); err != nil {
			t.Fatal(err)
		}
		return list
	}
	if list := sessions(); list == nil || len(list) != 0 {
		t.Errorf("nobody is signed in: %+v", list)
	}
	first := signIn()
	list := sessions("--guild", guild)
	if len(list) != 1 || list[0].Type != audit.Operator || len(list[0].GuildIDs) != 1 || list[0].GuildIDs[0] != guild ||
		list[0].Address == "" {
		t.Fatalf("the sessions are %+v", list)
	}
	secret := strings.TrimPrefix(first, "__Host-guildhall=")
	if out := command("sessions").ok(t); !strings.Contains(out, list[0].ID) || strings.Contains(out, secret) {
		t.Errorf("it prints %s", out)
	}
	second, third := signIn(), signIn()
	command("end", list[0].ID).ok(t)
	command("end", list[0].ID).refused(t, 1, "There is no session")
	if works(first) || !works(second) {
		t.Error("the wrong session has ended")
	}
	if out := command("end", "--all", "--json").ok(t); !strings.Contains(out, `"ended": 2`) && !strings.Contains(out, `"ended":2`) {
		t.Errorf("it prints %s", out)
	}
	if works(second) || works(third) || len(sessions()) != 0 {
		t.Error("a session goes on")
	}
	command("end").refused(t, 2, "--all")
	command("end", "x", "--all").refused(t, 2, "--all")
	command("sessions", "--guild", "1").refused(t, 1, "There is no guild 1")

	links := []string{newLink(), newLink(), newLink()}
	if got := request(http.MethodPost, links[0], "").StatusCode; got != http.StatusSeeOther {
		t.Fatalf("the first link answers %d", got)
	}
	command("link", "--revoke", "--guild", "1").refused(t, 1, "There is no guild 1")
	if out := command("link", "--revoke", "--guild", guild, "--json").ok(t); !strings.Contains(out, "2") {
		t.Errorf("it prints %s", out)
	}
	for _, link := range links[1:] {
		if got := request(http.MethodPost, link, "").StatusCode; got != http.StatusNotFound {
			t.Errorf("a link that was taken back answers %d", got)
		}
	}
	newLink()
	if out := command("link", "--revoke").ok(t); !strings.Contains(out, "taken back: 1.") {
		t.Errorf("it prints %s", out)
	}
	command("link").refused(t, 2, "--guild")
	bring := `{"record":"case","guild_id":"` + guild + `","user_id":"1","moderator_id":"2","type":"warn"}` + "\n"
	call(t, bring, "import", "--database-url", url, "-").ok(t)
	call(t, "", "export", "--guild", guild, "--database-url", url, t.TempDir()+"/a.ndjson").ok(t)

	d, err := db.Open(db.Config{URL: url, Writers: 1, Readers: 1, Name: "guildhall-test"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	rows, err := audit.List(t.Context(), d.Reader(), guild, audit.Filter{Action: audit.GuildImported}, 10)
	if err != nil || len(rows) == 0 || rows[0].ActorType != audit.CommandLine || rows[0].After == nil || *rows[0].After != `{"records": 1}` {
		t.Errorf("the import stands there as %+v, %v", rows, err)
	}
	for action, want := range map[string]int{
		audit.SignedIn: 4, audit.SessionEnded: 2, audit.LinkRevoked: 3, audit.GuildExported: 1,
	} {
		rows, err := audit.List(t.Context(), d.Reader(), guild, audit.Filter{Action: action}, 10)
		if err != nil || len(rows) != want {
			t.Errorf("%s: %d lines, want %d: %+v, %v", action, len(rows), want, rows, err)
			continue
		}
		if by := rows[0].ActorType; action != audit.SignedIn && by != audit.CommandLine || action == audit.SignedIn && by != audit.Operator {
			t.Errorf("%s was done by %s", action, by)
		}
	}
}
