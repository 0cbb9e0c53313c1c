package dashboard_test

import (
	"context"
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
	"guildhall/internal/server/dashboard"
)

func TestOperatorLink(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *dashboard.Config) { c.Discord = nil })
	link, err := dashboard.NewLink(t.Context(), s.DB, guildID, 10*time.Minute)
	must(t, err)

	// A preview fetches the link twice, and does not use it up.
	for range 2 {
		s.browser(t).get(link.Path).wants(200, "Guild "+guildID, "<button")
	}
	b := s.browser(t)
	b.post(link.Path, nil).wants(303)
	b.get(page(guildID)).wants(200, "Getting started")
	b.get(page(neighbourID)).wants(404)
	s.browser(t).post(link.Path, nil).wants(404)
	s.browser(t).get(link.Path).wants(404, "used already")

	old, err := dashboard.NewLink(t.Context(), s.DB, guildID, time.Minute)
	must(t, err)
	dbtest.Exec(t, s.DB, `UPDATE dashboard_links SET expires_at = now() WHERE used_at IS NULL`)
	s.browser(t).post(old.Path, nil).wants(404)
	for _, path := range []string{
		"/dashboard/link/" + guildID + "/x", "/dashboard/link/%00/" + strings.Repeat("a", 43),
		"/dashboard/link/1/" + strings.Repeat("a", 43),
	} {
		s.browser(t).post(path, nil).wants(404)
	}
	if strings.Contains(s.Log.String(), link.Path[strings.LastIndex(link.Path, "/")+1:]) {
		t.Error("the log holds the link's key")
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "manager")
	tokens := page(guildID, "tokens")

	form := b.get(tokens+"/new?name=Payday&scopes=economy:read,cases:read&expires_in_days=30").
		wants(200, `value="Payday"`, `value="economy:read" checked`, `value="30" checked`)
	once := regexp.MustCompile(`name="once" value="([^"]+)"`).FindStringSubmatch(form.body)[1]
	if n := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM api_tokens`); n != 0 {
		t.Fatalf("a link to the form has made %d tokens", n)
	}
	fill := url.Values{
		"name": {"Payday"}, "scopes": {"economy:read", "cases:read"}, "ip_allowlist": {"203.0.113.9, 198.51.100.7/24\n2001:db8::1"},
		"expires_in_days": {"30"}, "once": {once},
	}
	made := b.post(tokens, fill).wants(201, "curl -sS -H", "198.51.100.0/24")
	secret := made.secret()
	accepts(t, s, secret, true)
	again := b.post(tokens, fill).wants(200, "Already made")
	again.lacks("svc_test_")
	if n := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM api_tokens`); n != 1 {
		t.Fatalf("sending the form twice makes %d tokens", n)
	}
	list, err := auth.List(t.Context(), s.DB, guildID)
	must(t, err)
	token := list[0]
	if token.ExpiresAt == nil || token.ExpiresAt.Sub(token.CreatedAt) != 30*24*time.Hour || len(token.IPAllowlist) != 3 ||
		len(token.Scopes) != 2 {
		t.Errorf("made %+v", token)
	}

	b.get(tokens).wants(200, "Payday", "never", token.Preview).lacks(secret)
	detail := tokens + "/" + token.ID
	b.get(detail).wants(200, "was not used", "tokens/new?").lacks(secret)
	b.post(detail+"/revoke", url.Values{"confirm": {"payday"}}).wants(422, `value="payday"`, `id="confirm-error"`)
	accepts(t, s, secret, true)
	b.post(detail+"/revoke", url.Values{"confirm": {"Payday"}}).wants(303)
	accepts(t, s, secret, false)
	b.get(tokens).wants(200, "is revoked", "Revoked and expired (1)")
	b.get(tokens).wants(200).lacks("is revoked. No server")

	rows, err := audit.List(t.Context(), s.DB.Reader(), guildID, audit.Filter{}, 10)
	must(t, err)
	if len(rows) != 3 || rows[0].Action != audit.TokenRevoked || rows[1].Action != audit.TokenCreated || rows[2].Action != audit.SignedIn ||
		rows[0].ActorType != audit.User || rows[0].ActorName != "Mara Manager" || rows[0].Address == "" {
		t.Errorf("the audit log is %+v", rows)
	}
	b.get(page(guildID, "audit")).wants(200, "token.created", "token.revoked", "Mara Manager").lacks(secret)
	everywhere(t, s, secret)
}

// accepts fails the test unless a node accepts the token, or refuses it if want is false.
func accepts(t *testing.T, s *site, secret string, want bool) {
	t.Helper()
	node, err := auth.NewTokens(auth.Config{DB: s.DB, URL: s.Database.URL, Env: "test"})
	must(t, err)
	_, err = node.Authenticate(t.Context(), secret, netip.MustParseAddr("203.0.113.9"))
	if (err == nil) != want {
		t.Errorf("the token is accepted: %v, want %v (%v)", err == nil, want, err)
	}
}

// everywhere fails the test if a secret is stored in any table.
func everywhere(t *testing.T, s *site, secret string) {
	t.Helper()
	part := secret[len(secret)-20:]
	if strings.Contains(s.Log.String(), part) {
		t.Error("the log holds the secret")
	}
	var tables []string
	must(t, s.DB.Reader().SelectContext(t.Context(), &tables, `
		SELECT tablename
		FROM pg_tables
		WHERE schemaname = 'public' AND tablename !~ '^goose'`))
	for _, table := range tables {
		if n := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM `+table+` x WHERE strpos(x::text, $1) > 0`, part); n != 0 {
			t.Errorf("%d rows of %s hold the secret", n, table)
		}
	}
	if n := dbtest.Value[int](t, s.DB, `
		SELECT count(*)
		FROM dashboard_sessions
		WHERE strpos(convert_from(data, 'UTF8'), $1) > 0`, part); n != 0 {
		t.Error("a session holds the secret")
	}
}

// With each wrong value in each field, the form keeps the values and explains the error.
func TestTokenFormSaysWhatToMend(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	tokens := page(guildID, "tokens")
	for name, tt := range map[string]struct {
		field, value, at, says string
	}{
		"no name":            {"name", " ", "name-error", "Give the token a name"},
		"a long name":        {"name", strings.Repeat("x", 101), "name-error", "at most 100"},
		"an unseen mark":     {"name", "a\u202eb", "name-error", "cannot be seen"},
		"a control":          {"name", "a\x07b", "name-error", "cannot be seen"},
		"no scope":           {"scopes", "", "scopes-error", "at least one"},
		"an unknown scope":   {"scopes", "cases:eat", "scopes-error", "not a scope"},
		"no address":         {"ip_allowlist", "home, 10.0.0.0/8", "ip_allowlist-error", "neither an IP address"},
		"a range too wide":   {"ip_allowlist", "10.0.0.0/33", "ip_allowlist-error", "neither an IP address"},
		"days that are none": {"expires_in_days", "soon", "expires_in_days-error", "not a number of days"},
		"no days":            {"expires_in_days", "0", "expires_in_days-error", "not a number of days"},
		"too many days":      {"expires_in_days", "36501", "expires_in_days-error", "not a number of days"},
		"days past counting": {"expires_in_days", "99999999999999999999", "expires_in_days-error", "not a number of days"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			form := url.Values{"name": {"Keep me"}, "scopes": {"cases:read"}, "ip_allowlist": {"203.0.113.77"}, "expires_in_days": {"365"}}
			form.Set(tt.field, tt.value)
			got := b.in(t).post(tokens, form).wants(422, `id="`+tt.at+`"`, tt.says, `id="problems"`)
			for field, kept := range map[string]string{
				"name": `value="Keep me"`, "scopes": `value="cases:read" checked`, "ip_allowlist": "203.0.113.77</textarea>",
				"expires_in_days": `value="365" checked`,
			} {
				if field != tt.field && !strings.Contains(got.body, kept) {
					t.Errorf("%s is not kept: %s", field, got.body)
				}
			}
		})
	}
	t.Cleanup(func() {
		if n := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM api_tokens`); n != 0 {
			t.Errorf("%d tokens were made of wrong forms", n)
		}
	})
	t.Run("a number that is not given", func(t *testing.T) {
		t.Parallel()
		b.in(t).post(tokens, url.Values{"name": {"x"}, "scopes": {"cases:read"}, "expires_in_days": {"other"}, "days": {" "}}).
			wants(422, `id="expires_in_days-error"`, "after how many days", `value="other" checked`).lacks(`value="" checked`)
	})
	t.Run("a number of its own", func(t *testing.T) {
		t.Parallel()
		b.in(t).post(page(neighbourID, "tokens"), url.Values{"name": {""}, "expires_in_days": {"other"}, "days": {"12"}}).
			wants(422, `value="12"`, `value="other" checked`)
	})
	t.Run("a form too large", func(t *testing.T) {
		t.Parallel()
		b.in(t).post(tokens, url.Values{"name": {strings.Repeat("x", 70<<10)}}).wants(400, "too large")
	})
}

func TestDeleteRoute(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	mine := s.makeToken(t, guildID)
	path := func(id string) string { return "/dashboard/integrations/api-tokens/" + id }
	sameSite := []string{"Origin", s.URL, "Sec-Fetch-Site", "same-origin"}

	s.browser(t).do(http.MethodDelete, path(mine.ID), nil, sameSite...).wants(401, `"code":"not_signed_in"`)
	s.as(t, "outsider").do(http.MethodDelete, path(mine.ID), nil, sameSite...).wants(404, `"code":"not_found"`)
	b := s.as(t, "manager")
	b.do(http.MethodDelete, path(mine.ID), nil, "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site").
		wants(403, `"code":"cross_site"`)
	b.do(http.MethodDelete, path("nothing"), nil, sameSite...).wants(404)
	accepts(t, s, mine.Secret, true)
	b.do(http.MethodDelete, path(mine.ID), nil, sameSite...).wants(204)
	accepts(t, s, mine.Secret, false)
	b.do(http.MethodDelete, path(mine.ID), nil, sameSite...).wants(204)

	link, err := dashboard.NewLink(context.Background(), s.DB, guildID, time.Minute)
	must(t, err)
	operator := s.browser(t)
	operator.post(link.Path, nil).wants(303)
	other := s.makeToken(t, neighbourID)
	operator.do(http.MethodDelete, path(other.ID), nil, sameSite...).wants(404)
	accepts(t, s, other.Secret, true)
}
