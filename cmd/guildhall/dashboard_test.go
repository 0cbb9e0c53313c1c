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

// A server with the setting has the dashboard, under that host alone; one
// without it answers as to any unknown path.
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
