package dashboard_test

import (
	"net/url"
	"testing"

	"guildhall/internal/access/audit"
	"guildhall/internal/base/db/dbtest"
)

// The pages of tokens and endpoints show who created them and link to the rows of the audit log;
// the rows link back.
func TestMakersAreNamedAndLinkedBothWays(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "manager")
	b.post(page(guildID, "tokens"), url.Values{"name": {"Shop"}, "scopes": {"webhooks:manage"}}).wants(201)
	token := dbtest.Value[string](t, s.DB, `SELECT id FROM api_tokens`)
	hook := b.endpoint()
	id := dbtest.Value[string](t, s.DB, `SELECT id FROM webhook_endpoints`)
	for path, thing := range map[string]string{page(guildID, "tokens", token): token, hook: id} {
		lines := page(guildID, "audit") + "?target=" + thing
		b.get(path).wants(200, `<dt>Made by</dt><dd><span class="kind">Discord account</span> <bdi>Mara Manager</bdi>`, `href="`+lines+`"`)
		b.get(lines).wants(200, `<a href="`+path+`"><bdi>`)
	}
	// A token has created an endpoint through the API, and the endpoint was removed.
	s.record(t, audit.Actor{Type: audit.Token, ID: token, Name: "Shop"},
		audit.Change{Guild: guildID, Action: audit.WebhookCreated, Target: "gone", Name: "https://gone.example/"})
	b.get(page(guildID, "audit")).wants(200, `<a href="`+page(guildID, "tokens", token)+`"><bdi>Shop</bdi></a>`, "https://gone.example/").
		lacks(page(guildID, "webhooks", "gone"))
	// The audit log no longer has the row about the token's creator.
	dbtest.Exec(t, s.DB, `DELETE FROM audit_log WHERE target_id = $1`, token)
	b.get(page(guildID, "tokens", token)).wants(200, "not known: the audit log keeps a year")
	b.get(hook).wants(200, "Mara Manager")
	// The audit log of another guild shows nothing.
	dbtest.Exec(t, s.DB, `DELETE FROM audit_log WHERE target_id = $1`, id)
	s.record(t, audit.Actor{Type: audit.Token, ID: token, Name: "Shop"},
		audit.Change{Guild: neighbourID, Action: audit.WebhookCreated, Target: id, Name: "https://moved.example/"})
	b.get(hook).wants(200, "not known: the audit log keeps a year")
}

// Sign-ins are left out of the audit log until they are asked for. The file follows the page.
func TestSignInsAreAFilterOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	b.endpoint()
	log := page(guildID, "audit")
	const signedIn = `<code>dashboard.signed_in</code>`
	b.get(log).wants(200, "<code>webhook.created</code>", "Sign-ins too").lacks(signedIn, `value="1" checked`)
	b.get(log+"?sign_ins=1").wants(200, "<code>webhook.created</code>", signedIn, `value="1" checked`)
	b.get(log+"?action=dashboard.signed_in").wants(200, signedIn)
	b.get(log+"?format=csv").wants(200, "webhook.created").lacks("dashboard.signed_in")
	b.get(log+"?format=csv&sign_ins=1").wants(200, "dashboard.signed_in")
	// An edit shows what stood before and after without another click.
	edit := page(guildID, "webhooks", dbtest.Value[string](t, s.DB, `SELECT id FROM webhook_endpoints`))
	b.post(edit+"/edit", url.Values{
		"url": {"http://127.0.0.1:9/"}, "description": {"new"}, "events": {"case.updated"}, "enabled": {"true"},
	}).wants(303)
	b.get(log).wants(200, "<details open>", `<ins><span class="sr">after: </span>new</ins>`)
}
