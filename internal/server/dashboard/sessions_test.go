package dashboard_test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"guildhall/internal/access/audit"
	"guildhall/internal/base/db/dbtest"
)

func actions(t *testing.T, s *site, guild string) (list []string) {
	t.Helper()
	rows, err := audit.List(t.Context(), s.DB.Reader(), guild, audit.Filter{}, 100)
	must(t, err)
	for _, r := range rows {
		list = append([]string{r.Action + " by " + r.ActorType + ": " + r.Name}, list...)
	}
	return list
}

// Signing in and out, and everything that ends a session, is recorded in the audit log of each
// guild that the session may open, and in no other guild's.
func TestSessionsStandInTheAuditLog(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "manager")
	phone, other := s.as(t, "manager"), s.as(t, "manager")
	list := b.get("/dashboard/sessions").wants(200).body
	ids := regexp.MustCompile(`name="id" value="([^"]+)"`).FindAllStringSubmatch(list, -1)
	if len(ids) != 3 {
		t.Fatalf("%d sessions are listed", len(ids))
	}
	b.post("/dashboard/sessions", url.Values{"id": {ids[0][1]}}).wants(303) // the newest session
	other.get(page(guildID)).wants(401)
	b.post("/dashboard/sessions", nil).wants(303)
	phone.get(page(guildID)).wants(401)
	b.post("/dashboard/sessions", url.Values{"id": {"not mine"}}).wants(303)
	b.signIn("manager", "") // again, in the same browser
	b.post("/dashboard/logout", nil).wants(303)
	b.post("/dashboard/logout", nil).wants(303)
	s.as(t, "outsider")
	const by = " by user: session of "
	in, out, ended := audit.SignedIn+by, audit.SignedOut+by, audit.SessionEnded+by
	want := []string{in, in, in, ended, ended, out, in, out}
	for _, guild := range []string{guildID, neighbourID} {
		got := actions(t, s, guild)
		if len(got) != len(want) {
			t.Fatalf("guild %s: %q", guild, got)
		}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("line %d is %q, want %q", i, got[i], want[i])
			}
		}
	}
	if n := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM dashboard_sessions`); n != 1 {
		t.Errorf("%d sessions are left", n)
	}
}
