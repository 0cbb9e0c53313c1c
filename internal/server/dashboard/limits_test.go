package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/server/dashboard"
)

// Each session has one bucket for all pages, and does not share it with other sessions.
func TestASessionHasABucketOfItsOwn(t *testing.T) {
	t.Parallel()
	metrics := prometheus.NewRegistry()
	limits, err := ratelimit.New(ratelimit.Config{Metrics: metrics})
	must(t, err)
	s := newSite(t, func(c *dashboard.Config) { c.Limits, c.Session = limits, ratelimit.Quota{Limit: 5, Window: time.Hour} })
	b, other := s.as(t, "owner"), s.as(t, "owner")
	for range 5 {
		b.get(page(guildID)).wants(200)
	}
	for _, path := range []string{page(guildID), page(neighbourID, "audit"), "/dashboard/sessions", "/dashboard/"} {
		if got := b.get(path).wants(429, "Try again in"); got.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", path)
		}
	}
	b.post(page(guildID, "tokens"), url.Values{"name": {"x"}, "scopes": {"cases:read"}}).wants(429)
	b.get("/dashboard/assets/style.css").wants(200)
	other.get(page(guildID)).wants(200)
	if n := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM api_tokens`); n != 0 {
		t.Errorf("%d tokens were made", n)
	}
	dbtest.Exec(t, s.DB, `ALTER TABLE dashboard_sessions RENAME TO gone`)
	b.get(page(guildID)).wants(429) // requests beyond the limit cause no database query
	other.get(page(guildID)).wants(500)
	if n := testutil.Metric(t, metrics, "guildhall_rate_decisions_total", "outcome=limited"); n != 6 {
		t.Errorf("6 refused calls are counted as %v", n)
	}
}

// A guild has at most a hundred active tokens; the form says so and keeps its values. Long lists
// are split into pages.
func TestAGuildHasAHundredTokensAtMost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dbtest.Exec(t, s.DB, `
		INSERT INTO api_tokens (id, guild_id, name, preview, hash, scopes, ip_allowlist, created_at, revoked_at)
		SELECT 'tok' || n, $1, 'token number ' || n, 'p', decode(md5('a' || n) || md5('b' || n), 'hex'), '{cases:read}', '{}',
		       now() - n * interval '1 minute', CASE WHEN n > 99 THEN now() END
		FROM generate_series(1, 220) n`, guildID)
	b := s.as(t, "owner")
	form := url.Values{"name": {"One too many"}, "scopes": {"cases:read"}, "expires_in_days": {"7"}}
	b.post(page(guildID, "tokens"), form).wants(201)
	b.post(page(guildID, "tokens"), form).wants(422, "100 tokens of this guild work", `value="One too many"`)
	b.post(page(neighbourID, "tokens"), form).wants(201)
	seen := map[string]bool{}
	for _, query := range []string{"", "?active=2", "?ended=2", "?ended=3"} {
		got := b.get(page(guildID, "tokens") + query).wants(200)
		if n := strings.Count(got.body, `data-label="Scopes"`); n > 100 {
			t.Errorf("%q shows %d tokens", query, n)
		}
		for n := range 221 {
			if strings.Contains(got.body, fmt.Sprintf("token number %d<", n)) {
				seen[fmt.Sprint(n)] = true
			}
		}
	}
	if len(seen) != 220 {
		t.Errorf("the pages show %d tokens of 220", len(seen))
	}
	dbtest.Exec(t, s.DB, `UPDATE api_tokens SET revoked_at = now() WHERE id = 'tok1'`)
	b.post(page(guildID, "tokens"), form).wants(201)
}

func TestAnAllowlistHasAHundredRangesAtMost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var list []string
	for n := range 101 {
		list = append(list, fmt.Sprintf("203.0.%d.0/24", n))
	}
	n := auth.New{GuildID: guildID, Env: "test", Name: "x", Scopes: []string{"cases:read"}, AllowIP: list}
	if _, err := auth.Create(t.Context(), s.DB, n); err == nil || !strings.Contains(err.Error(), "at most 100") {
		t.Errorf("101 ranges: %v", err)
	}
	form := url.Values{"name": {"x"}, "scopes": {"cases:read"}, "ip_allowlist": {strings.Join(list, " ")}}
	s.as(t, "owner").post(page(guildID, "tokens"), form).wants(422, `id="ip_allowlist-error"`, "at most 100")
	n.AllowIP = list[:100]
	_, err := auth.Create(t.Context(), s.DB, n)
	must(t, err)
}

// For a method that a path does not accept, the response is 405 with the header Allow.
func TestA405NamesTheMethodsOfTheAddress(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for path, want := range map[string]string{
		page(guildID, "tokens"): "GET, HEAD, POST", page(guildID, "tokens", "new"): "GET, HEAD",
		"/dashboard/logout": "POST", "/dashboard/integrations/api-tokens/x": "DELETE",
	} {
		got := s.browser(t).do(http.MethodPut, path, nil).wants(405)
		if allow := got.header.Get("Allow"); allow != want {
			t.Errorf("%s takes %q, want %q", path, allow, want)
		}
	}
}
