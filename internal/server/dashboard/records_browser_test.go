//go:build browser

package dashboard_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil/browsertest"
	"guildhall/internal/outbound/egress/egresstest"
)

// whyPages are the pages that say why an integration fails and who has changed what, by name.
// ids are those of things.
func whyPages(ids map[string]string) map[string]string {
	g := func(parts ...string) string { return page(guildID, parts...) }
	one := g("webhooks", ids["webhooks"])
	return map[string]string{
		"overview": g(), "webhooks": g("webhooks"), "endpoint": one, "endpoint-all": one + "?view=all", "endpoint-failed": one + "?status=failed",
		"delivery": one + "/deliveries/" + ids["deliveries"], "requests": g("requests"),
		"refusal": g("requests") + "?request_id=" + ids["tokens"], "no-refusal": g("requests") + "?request_id=none",
		"token": g("tokens", ids["tokens"]), "audit": g("audit") + "?sign_ins=1", "audit-target": g("audit") + "?target=" + ids["tokens"],
		"audit-wrong": g("audit") + "?since=then",
	}
}

// recordPages are the pages of the records of a guild, in each of their states, by name.
func (s *site) recordPages(t *testing.T) map[string]string {
	t.Helper()
	g := func(parts ...string) string { return page(guildID, parts...) }
	return map[string]string{
		"find": g("find"), "hits": g("find") + "?q=12", "nothing": g("find") + "?q=nobody",
		"member": g("members", mara), "unknown": g("members", "7"), "ledger": g("ledger", s.entry(t, guildID)),
		"cases": g("cases"), "cases-none": g("cases") + "?type=ban", "cases-wrong": g("cases") + "?number=x",
		"case": g("cases", "case-"+guildID), "tickets": g("tickets"), "tickets-none": g("tickets") + "?status=open",
		"tickets-wrong": g("tickets") + "?number=x", "ticket": g("tickets", "ticket-"+guildID), "giveaways": g("giveaways"),
		"giveaways-none": g("giveaways") + "?status=paused", "giveaway": g("giveaways", "giveaway-"+guildID),
		"giveaway-post": g("giveaways", "running-"+guildID), "drawn": g("giveaways", "g"), "verified": g("giveaways", "g") + "?verify=1",
		"missing": g("cases", "none"),
	}
}

// Each page of records, and each that says why or who, with hostile text wherever text may stand, passes the checks, with and
// without scripts, and with long words in every field; the keyboard alone leads to all that can be used.
func TestRecordsInABrowser(t *testing.T) {
	for name, way := range map[string]struct{ scripts, long bool }{
		"records": {scripts: true}, "records-plain": {}, "records-long": {scripts: true, long: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			ids := s.things(t, guildID)
			s.addMarcel(t)
			s.drawn(t)
			pages := s.recordPages(t)
			maps.Copy(pages, whyPages(ids))
			if way.long {
				dbtest.Exec(t, s.DB, spoil)
				s.spoil(t, strings.Repeat("W", 100))
			}
			b := newTab(t, s, way.scripts)
			b.signIn("owner")
			for shown, path := range pages {
				b.open(path)
				b.scripts(true) // axe needs them; those of a page that is loaded already do not run any more
				b.tabThrough(shown)
				b.look(name + "-" + shown)
				b.scripts(way.scripts)
			}
		})
	}
}

// tabThrough presses the Tab key until everything on the page that can be used has had the focus,
// and checks that the focus is visible.
func (b *tab) tabThrough(name string) {
	b.t.Helper()
	all := get(b, chromedp.Evaluate[int](`
		window.usable = new Set([...document.querySelectorAll(
			"a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']")]
			.filter(e => e.checkVisibility()));
		usable.size`))
	for range 4*all + 20 { // a field for a time has a place for each of its parts
		b.run(chromedp.KeyEvent("\t"))
		if get(b, chromedp.Evaluate[bool](`(() => {
			const e = document.activeElement;
			if (e.matches(":focus-visible") && getComputedStyle(e).outlineStyle !== "none") usable.delete(e);
			return usable.size === 0;
		})()`)) {
			return
		}
	}
	b.t.Errorf("%s: the keyboard does not lead to %s, or its focus is not to be seen", name,
		get(b, chromedp.Evaluate[string](`[...usable].map(e => e.outerHTML).join(" ")`)))
}

// "500 coins, who?": two clicks lead from the member to the token that made the change and to
// what each endpoint answered, on a desk, on a phone and without scripts.
func TestATraceInABrowser(t *testing.T) {
	for name, way := range map[string]struct {
		scripts bool
		width   int64
	}{"on a desk": {true, 1280}, "on a phone": {true, 360}, "without scripts": {false, 1280}} {
		t.Run(name, func(t *testing.T) {
			l := newLive(t)
			owner := l.as(t, "owner")
			owner.endpointAt(egresstest.NewReceiver(t, egresstest.Respond(200, "ok")).URL)
			owner.endpointAt(egresstest.NewReceiver(t, egresstest.Respond(401, hostile)).URL)
			l.listen(t, "economy.balance_changed")
			token := l.makeToken(t, guildID, func(n *auth.New) { n.Name, n.Scopes = "Shop", []string{"economy:write"} })
			if status, body := l.call(t, l.URL, token.Secret, "POST", "/economy/adjust",
				`{"user_id":"`+mara+`","delta":500,"reason":"order"}`); status != 200 {
				t.Fatal(body)
			}
			b := newTab(t, l.site, way.scripts)
			b.run(browsertest.Size(way.width, 800))
			b.signIn("manager")
			b.open(page(guildID, "find"))
			b.run(chromedp.SendKeys(chromedp.CSS("#q"), mara+"\r"), chromedp.WaitVisible(chromedp.CSS("#ledger")))
			b.has("Shop") // on the member's page already
			l.settled(t)
			b.run(chromedp.Click(chromedp.CSS(`a[href*="/ledger/"]`)), chromedp.WaitVisible(chromedp.CSS("#trace")))
			b.has("answered 200")
			b.has("answered 401")
			if way.scripts {
				b.look("trace")
			}
			b.run(chromedp.Click(chromedp.CSS(`.trace a[href*="/tokens/"]`)), chromedp.WaitVisible(chromedp.CSS("#confirm")))
			b.has("Shop")
		})
	}
}
