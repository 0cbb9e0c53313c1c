//go:build browser

package dashboard_test

import (
	"testing"

	"github.com/chromedp/chromedp"

	"guildhall/internal/access/auth"
	"guildhall/internal/outbound/egress/egresstest"
)

// recordPages are the pages of the records of a guild, by name.
func (s *site) recordPages(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{
		"find": page(guildID, "find"), "hits": page(guildID, "find") + "?q=mar", "nothing": page(guildID, "find") + "?q=nobody",
		"member": page(guildID, "members", mara), "unknown": page(guildID, "members", "7"), "ledger": page(guildID, "ledger", s.entry(t,
			guildID)),
		"cases": page(guildID, "cases"), "cases-wrong": page(guildID, "cases") + "?number=x", "case": page(guildID, "cases", "case-"+guildID),
		"tickets": page(guildID, "tickets"), "tickets-none": page(guildID, "tickets") + "?status=open", "ticket": page(guildID, "tickets",
			"ticket-"+guildID),
		"giveaways": page(guildID, "giveaways"), "giveaway": page(guildID, "giveaways", "giveaway-"+guildID), "verified": page(guildID,
			"giveaways", "g") + "?verify=1",
	}
}

// Axe judges each page of records, with hostile text wherever text may stand.
func TestRecordsInABrowser(t *testing.T) {
	s := newSite(t)
	s.records(t, guildID)
	s.addMarcel(t)
	s.drawn(t)
	b := newTab(t, s, true)
	b.signIn("owner")
	for name, path := range s.recordPages(t) {
		b.open(path)
		b.look("records-" + name)
	}
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
			b.run(size(way.width))
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
