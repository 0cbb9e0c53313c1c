package dashboard_test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/dashboard"
)

// route is a path of a guild's pages, with the ids of a guild's things in it.
type route struct {
	pattern, method, path string
	want                  int  // the status that a manager's GET gets
	owned                 bool // the path names a thing that belongs to one guild
}

var parameter = regexp.MustCompile(`/(\w+)/\{\w+\}`)

// dashboardRoutes returns every route of a guild's pages. ids has an id for what the paths name:
// a route to another thing fails the test.
func dashboardRoutes(t *testing.T, guild string, ids map[string]string) (all []route) {
	t.Helper()
	for _, pattern := range dashboard.Routes() {
		method, path, _ := strings.Cut(pattern, " ")
		rest, ok := strings.CutPrefix(path, "/guilds/{guild}")
		if !ok {
			if strings.Contains(path, "{guild}") && !strings.HasPrefix(path, "/link/") {
				t.Errorf("%s is a page of a guild beside the others", pattern)
			}
			continue
		}
		r := route{pattern: path, method: method, want: map[string]int{"": 303}[rest]}
		if r.want == 0 {
			r.want = 200
		}
		r.path = "/dashboard/guilds/" + guild + parameter.ReplaceAllStringFunc(strings.TrimSuffix(rest, "{$}"), func(part string) string {
			kind := parameter.FindStringSubmatch(part)[1]
			if ids[kind] == "" {
				t.Errorf("%s names one of the %s, and the test has none", pattern, kind)
			}
			r.owned = r.owned || kind != "members"
			return "/" + kind + "/" + ids[kind]
		})
		if r.method == "GET" && strings.HasSuffix(rest, "/recover") {
			r.path += "?since=" + time.Now().UTC().Add(-time.Hour).Format("2006-01-02T15:04")
		}
		all = append(all, r)
	}
	return all
}

// Every page and form of a guild is there for those alone who may manage the guild, and none
// reaches a thing of another guild.
// RELIABILITY.md, Guilds.
func TestPagesAreForTheManagersOfTheirGuild(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ids := s.things(t, guildID)
	s.things(t, neighbourID)
	manager, outsider, nobody := s.as(t, "manager"), s.as(t, "outsider"), s.browser(t)
	link, err := dashboard.NewLink(t.Context(), s.DB, neighbourID, time.Minute)
	must(t, err)
	neighbour := s.browser(t)
	neighbour.post(link.Path, nil).wants(303)
	foreign := map[string]route{}
	for _, r := range dashboardRoutes(t, neighbourID, ids) {
		foreign[r.method+r.pattern] = r
	}
	changes := func() int { return dbtest.Value[int](t, s.DB, `SELECT count(*) FROM audit_log`) }
	before, n := changes(), 0
	for _, r := range dashboardRoutes(t, guildID, ids) {
		n++
		var form url.Values
		if r.method == "POST" {
			form = url.Values{"confirm": {"a token"}, "name": {"x"}, "scopes": {"cases:read"}, "url": {"http://127.0.0.1:9/"}, "events": {"all"}}
		} else {
			manager.get(r.path).wants(r.want)
		}
		outsider.do(r.method, r.path, form).wants(404)
		neighbour.do(r.method, r.path, form).wants(404)
		nobody.do(r.method, r.path, form).wants(401)
		if r.owned {
			manager.do(r.method, foreign[r.method+r.pattern].path, form).wants(404)
		}
	}
	if after := changes(); after != before || n < 30 {
		t.Errorf("%d changes were made through %d routes by people who may not", after-before, n)
	}
}
