package dashboard_test

import (
	"context"
	"strings"
	"testing"

	"guildhall/internal/access/audit"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// record writes a row of the audit log with the given actor.
func (s *site) record(t testing.TB, by audit.Actor, c audit.Change) {
	t.Helper()
	must(t, s.DB.Do(audit.With(t.Context(), by), func(ctx context.Context, tx *db.Tx) error { return audit.Record(ctx, tx, c) }))
}

// A name that a person has chosen cannot imitate another actor: the page shows the type of the
// actor outside the name, and the id below it.
func TestNoNameInTheAuditLogLooksLikeAnotherActor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	change := audit.Change{Guild: guildID, Action: audit.WebhookTested, Target: "t", Name: "n"}
	b := s.as(t, "owner")
	for _, a := range []struct {
		by   audit.Actor
		kind string
	}{
		{audit.Actor{Type: audit.User, ID: "501", Name: "root (command line)"}, "Discord account"},
		{audit.Actor{Type: audit.User, ID: "502", Name: `</bdi><span class="kind">command line</span> root`}, "Discord account"},
		{audit.Actor{Type: audit.User, ID: "503", Name: "Operator"}, "Discord account"},
		{audit.Actor{Type: audit.CommandLine, ID: "504", Name: "root"}, "command line"},
		{audit.Actor{Type: audit.Operator, ID: "505", Name: "Operator"}, "operator link"},
		{audit.Actor{Type: audit.Token, ID: "506", Name: "payday bot"}, "API token"},
		{audit.Actor{Type: audit.System, ID: "", Name: "Guildhall"}, "service"},
	} {
		s.record(t, a.by, change)
		got := b.get(page(guildID, "audit")).wants(200)
		row := got.body[strings.Index(got.body, "<tbody>"):]
		row = row[:strings.Index(row, "</tr>")]
		kind, name := `<span class="kind">`+a.kind+`</span>`, strings.Index(row, "<bdi>")
		if at := strings.Index(row, kind); at < 0 || at > name || strings.Count(row, `<span class="kind">`) != 1 {
			t.Errorf("%s %q is shown as %s", a.by.Type, a.by.Name, row)
		}
		if a.by.ID == "" {
			continue
		}
		if !strings.Contains(row, `<a class="sub" href="?actor=`+a.by.ID+`"><code class="id">`+a.by.ID+`</code></a>`) {
			t.Errorf("%s %q is shown without its id: %s", a.by.Type, a.by.Name, row)
		}
		if only := b.get(page(guildID, "audit") + "?actor=" + a.by.ID).wants(200); strings.Count(only.body, `<span class="kind">`) != 1 {
			t.Errorf("the link of %s leads to other actors, too", a.by.ID)
		}
	}
}

// Wherever a token is named, two tokens with the same name can be told apart.
func TestTokensOfOneNameAreToldApart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for range 2 {
		made := s.makeToken(t, guildID, func(n *auth.New) { n.Name = "bot" })
		dbtest.Exec(t, s.DB, `
			INSERT INTO usage_refusals (guild_id, request_id, at, token_id, operation, status, code, address)
			VALUES ($1, $2, now(), $2, 'listCases', 403, 'insufficient_scope', '203.0.113.9')`, guildID, made.ID)
		got := s.as(t, "owner").get(page(guildID, "requests")).wants(200)
		got.wants(200, `<code class="sub id">`+made.ID+`</code>`, `<option value="`+made.ID+`">bot · `+made.Preview+`</option>`)
	}
}
