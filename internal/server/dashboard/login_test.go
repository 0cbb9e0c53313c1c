package dashboard_test

import (
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"sync/atomic"
	"testing"

	"guildhall/internal/server/dashboard"
)

// A sign-in that has failed cannot be used again. The error page links to a new sign-in with the
// same destination.
func TestASignInThatHasFailedIsBegunAgain(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case away.Load():
			w.WriteHeader(http.StatusBadGateway)
		case r.URL.Path == "/oauth2/token":
			_, _ = w.Write([]byte(`{"access_token":"secret-access-token","token_type":"Bearer"}`))
		case r.URL.Path == "/users/@me":
			_, _ = w.Write([]byte(`{"id":"77","username":"mara"}`))
		default:
			_, _ = w.Write([]byte(`[{"id":"` + guildID + `","permissions":"32"}]`))
		}
	}))
	t.Cleanup(platform.Close)
	s := newSite(t, func(c *dashboard.Config) { c.Discord = discordAt(t, platform.URL) })
	b := s.browser(t)
	const page = "/dashboard/sessions?x=1"
	begin := func(path string) (callback string) {
		to, err := url.Parse(b.get(path).wants(303).to)
		must(t, err)
		return "/dashboard/login/callback?state=" + to.Query().Get("state")
	}
	fresh := func(failed got) (path string) {
		link := regexp.MustCompile(`href="(/dashboard/login[^"]*)"`).FindStringSubmatch(failed.body)
		if link == nil {
			t.Fatalf("the page leads to no fresh sign-in:\n%s", failed.body)
		}
		return html.UnescapeString(link[1])
	}
	first := begin("/dashboard/login?to=" + url.QueryEscape(page))
	away.Store(true)
	begin(fresh(b.get(first+"&code=x").wants(503, "Try again")))

	first = begin("/dashboard/login?to=" + url.QueryEscape(page))
	b.get(first + "&code=x").wants(503)
	away.Store(false)
	second := begin(fresh(b.get(first+"&code=x").wants(400, "was used already")))
	second = begin(fresh(b.get(second+"&error=access_denied").wants(400, "declined")))
	if to := b.get(second + "&code=x").wants(303).to; to != page {
		t.Errorf("the fresh sign-in leads to %q, want %q", to, page)
	}
	b.get("/dashboard/sessions").wants(200)
	if to := fresh(b.fresh().get(first + "&code=x").wants(400)); to != "/dashboard/login?to="+url.QueryEscape("/dashboard/") {
		t.Errorf("another browser is led to %q", to)
	}
}
