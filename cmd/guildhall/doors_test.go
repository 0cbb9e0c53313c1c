package main

import (
	"cmp"
	"encoding/json"
	"html"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// doors are the three interfaces through which endpoints are registered and tokens are created: the
// API, the command line and the dashboard.
type doors struct {
	*testing.T
	database string
	server   *serving
	client   *http.Client
}

// pagesHost is the dashboard's host name.
const pagesHost = "pages.example"

// openDoors starts a server with a dashboard and signs in as an operator.
func openDoors(t *testing.T, env ...string) *doors {
	t.Helper()
	d := &doors{T: t, database: withGuild(t)}
	d.server = serve(t, d.database, append(env, "GUILDHALL_DASHBOARD_URL=https://"+pagesHost)...)
	d.client = d.server.client(t)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	d.client.Jar = jar
	d.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	link := call(t, "", "dashboard", "link", "--database-url", d.database, "--guild", guild, "--dashboard-url=https://"+pagesHost).ok(t)
	link, _, _ = strings.Cut(link, "\n")
	if status, text := d.form(strings.TrimPrefix(link, "https://"+pagesHost), nil); status != http.StatusSeeOther {
		t.Fatalf("the link answers %d: %s", status, text)
	}
	return d
}

// form sends a form of the dashboard and returns the status and text of the resulting page.
func (d *doors) form(path string, fields url.Values) (int, string) {
	d.Helper()
	req := d.request(http.MethodPost, path, fields.Encode())
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	return d.show(req)
}

// page returns the text of a page of the guild's dashboard.
func (d *doors) page(path string) string {
	d.Helper()
	status, text := d.show(d.request(http.MethodGet, "/dashboard/guilds/"+guild+path, ""))
	if status != http.StatusOK {
		d.Fatalf("the page %q answers %d: %s", path, status, text)
	}
	return text
}

func (d *doors) request(method, path, body string) *http.Request {
	d.Helper()
	req, err := http.NewRequestWithContext(d.Context(), method, d.server.https+path, strings.NewReader(body))
	if err != nil {
		d.Fatal(err)
	}
	return req
}

func (d *doors) show(req *http.Request) (int, string) {
	d.Helper()
	req.Host = pagesHost
	res, text := respond(d.T, d.client, req)
	return res.StatusCode, html.UnescapeString(text)
}

// call sends a request to the API and returns the status and the body.
func (d *doors) call(method, path, body string) (int, string) {
	d.Helper()
	req := d.request(method, "/api/v1"+path, body)
	req.Header.Set("Authorization", "Bearer "+d.server.token)
	req.Header.Set("Content-Type", "application/json")
	res, text := respond(d.T, d.client, req)
	return res.StatusCode, text
}

// api registers an endpoint through the API and returns the status and the error.
func (d *doors) api(address string) (int, string) {
	d.Helper()
	body, err := json.Marshal(map[string]any{"url": address, "events": []string{"case.created"}})
	if err != nil {
		d.Fatal(err)
	}
	status, text := d.call(http.MethodPost, "/webhooks", string(body))
	var said struct {
		Error struct{ Message string }
	}
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		d.Fatalf("%v: %s", err, text)
	}
	return status, said.Error.Message
}

// sentence extracts the part about the URL from an error of the API or the command line.
var sentence = regexp.MustCompile(`^(?:guildhall: )?(?:body /url: |--url: )?(.*?)\.?\n?$`)

// The API, the command line and the dashboard reject a URL with the same words, and the command
// line and the dashboard a token's name and addresses.
func TestTheSameWordsBehindEachDoor(t *testing.T) {
	t.Parallel()
	d := openDoors(t)
	for _, address := range []string{
		"ftp://example.net/", "https://", "https:example.net", "//example.net/x", "example.net", "https://example.net/\u00fc",
		"https://example.net/<script>", "https://example.net:024500/", "https://example.net:0/", "https://example.net:/",
		"https://example.net/" + strings.Repeat("a", 5023), "https://user:pw@example.net/", "https://example.net/#here",
		"https://example.net/a b", "https://example.net/a\\b", "https://[::1/", "https://[fe80::1%25x]/", "http://example.net/",
		"https://127.0.0.1/", "https://[::1]/", "https://169.254.169.254/latest",
	} {
		status, said := d.api(address)
		says := sentence.FindStringSubmatch(said)[1]
		if status != http.StatusBadRequest && status != http.StatusUnprocessableEntity || says == "" {
			t.Errorf("%.60s: the API answers %d: %s", address, status, said)
			continue
		}
		if r := call(t, "", "webhook", "add", "--database-url", d.database, "--guild", guild, "--event", "case.created",
			"--secret-key", keyOf(d.database), "--url", address); r.code == 0 || !strings.Contains(r.err, says) {
			t.Errorf("%.60s: the API says %q, the command line %q", address, says, r.err)
		}
		status, page := d.form("/dashboard/guilds/"+guild+"/webhooks",
			url.Values{"url": {address}, "events": {"case.created"}, "enabled": {"true"}})
		if status != http.StatusUnprocessableEntity || !strings.Contains(page, says) {
			t.Errorf("%.60s: the API says %q, the form (%d) %q", address, says, status, problemOn(page))
		}
	}
	for _, wrong := range []struct{ name, allow string }{
		{strings.Repeat("x", 101), ""},
		{"a\u202eb", ""},
		{"a\tb", ""},
		{"a\nb", ""},
		{"x", "home"},
		{"x", "10.0.0.0/33"},
		{"x", "10.0.0.1/8"},
		{"x", "::ffff:10.0.0.0/104"},
		{"x", "fe80::1%eth0"},
		{"x", "10.0.0.0/8,none"},
		{"x", strings.Repeat("10.0.0.1,", 101) + "10.0.0.2"},
	} {
		status, page := d.form("/dashboard/guilds/"+guild+"/tokens",
			url.Values{"name": {wrong.name}, "scopes": {"cases:read"}, "ip_allowlist": {wrong.allow}, "expires_in_days": {"7"}})
		r := call(t, "", "token", "create", "--database-url", d.database, "--guild", guild, "--env", "test", "--scope", "cases:read",
			"--expires-in", "7d", "--name", wrong.name, "--allow-ip", cmp.Or(wrong.allow, "10.0.0.0/8"))
		says := strings.TrimSuffix(strings.TrimPrefix(r.err, "guildhall: "), "\n")
		if accepted := r.code == 0; accepted != (status == http.StatusCreated) {
			t.Errorf("%.40q, %.40q: the command line ends with %d: %s; the form answers %d: %q",
				wrong.name, wrong.allow, r.code, says, status, problemOn(page))
		} else if !accepted && (status != http.StatusUnprocessableEntity || says == "" || !strings.Contains(page, says)) {
			t.Errorf("%.40q, %.40q: the command line says %q, the form (%d) %q", wrong.name, wrong.allow, says, status, problemOn(page))
		}
	}
}

var problem = regexp.MustCompile(`(?s)id="problems".*?</ul>`)

// problemOn returns a page's error message about its form.
func problemOn(page string) string { return problem.FindString(page) }

// The link of the documents fills the form for a token: every scope that it names is chosen.
func TestTheLinkThatFillsTheFormOfATokenWorks(t *testing.T) {
	t.Parallel()
	link := strings.TrimSpace(one(t, codeOf(t, "docs/integrate/first-program.md", ""), "text"))
	shown, err := url.Parse(link)
	if err != nil || !strings.HasPrefix(shown.Path, "/dashboard/guilds/"+guild+"/") || len(shown.Query()) < 3 {
		t.Fatalf("the link is %s, %v", link, err)
	}
	form := openDoors(t).page(strings.TrimPrefix(shown.RequestURI(), "/dashboard/guilds/"+guild))
	filled := []string{
		`value="` + shown.Query().Get("name") + `"`, `name="expires_in_days" value="` + shown.Query().Get("expires_in_days") + `" checked`,
	}
	for scope := range strings.SplitSeq(shown.Query().Get("scopes"), ",") {
		filled = append(filled, `name="scopes" value="`+scope+`" checked`)
	}
	for _, field := range filled {
		if !strings.Contains(form, field) {
			t.Errorf("the form lacks %s: %s", field, form)
		}
	}
}
