//go:build browser

package dashboard_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"guildhall/internal/access/usage"
	"guildhall/internal/base/db/dbtest"
)

// What a page looks like after a mistake, or where something is wrong, is as good as
// the page.
func TestErrorStatesInABrowser(t *testing.T) {
	s := newSite(t)
	b := newTab(t, s, true)
	made := filled(t, s)
	dbtest.Exec(t, s.DB, `UPDATE api_tokens SET revoked_at = now() WHERE id = $1`, made.ID)
	count := usage.NewCounter()
	count.Count(usage.Request{
		Guild: guildID, Token: made.ID, Ended: true, Status: http.StatusUnauthorized, From: netip.MustParseAddr("203.0.113.9"), At: time.Now(),
	})
	must(t, count.Flush(t.Context(), s.DB))
	b.open(page(guildID))
	b.look("error-signed-out")
	b.open("/dashboard/link/" + guildID + "/nothing")
	b.look("error-link")
	b.open("/dashboard/login/callback?state=x")
	b.look("error-sign-in")
	b.signIn("manager")
	other := s.makeToken(t, guildID)
	endpoint := func() string {
		dbtest.Exec(t, s.DB, `DELETE FROM webhook_endpoints`)
		id, _ := b.register("http://127.0.0.1:9/guildhall", "case.created")
		return page(guildID, "webhooks", id)
	}()
	press := func(button, then string) chromedp.Action[chromedp.Void] {
		return chromedp.Steps(chromedp.Click(chromedp.CSS(button)), chromedp.WaitVisible(chromedp.CSS(then)))
	}
	for name, c := range map[string]struct {
		at   string
		does chromedp.Action[chromedp.Void] // nil: nothing
	}{
		"ended-token":   {page(guildID, "tokens", made.ID), nil},
		"ended-tokens":  {page(guildID, "requests"), nil},
		"error-missing": {page(guildID, "tokens", "none"), nil},
		"error-revoke":  {page(guildID, "tokens", other.ID), press("button.bad", "#problems")},
		"error-remove":  {endpoint, press("button.bad", "#problems")},
		"error-edit": {
			endpoint + "/edit", chromedp.Steps(chromedp.Clear(chromedp.CSS("#url")), press("form.form button.primary", "#problems")),
		},
		"error-recover":    {endpoint + "/recover?since=then", chromedp.WaitVisible(chromedp.CSS("#problems"))},
		"error-audit":      {page(guildID, "audit") + "?since=then", chromedp.WaitVisible(chromedp.CSS("#problems"))},
		"ask-disable-form": {endpoint + "/edit", press(`input[name="enabled"]`, "form.form")},
	} {
		b.open(c.at)
		if c.does != nil {
			b.run(c.does)
		}
		if name == "ask-disable-form" {
			b.run(press("form.form button.primary", "button.bad"))
		}
		b.look(name)
	}
	dbtest.Exec(t, s.DB, `ALTER TABLE usage_totals RENAME TO lost`)
	b.open(page(guildID))
	b.look("error-ours")
}

// From signing in to a token that is made and revoked, with the keyboard alone.
func TestTheKeyboardAloneInABrowser(t *testing.T) {
	s := newSite(t)
	b := newTab(t, s, true)
	b.open("/dashboard/")
	b.enter(`a[href="/dashboard/login"]`, "#manager")
	b.enter("#manager", ".me")
	b.enter(`a[href$="/guilds/`+guildID+`/"]`, ".tabs")
	b.enter(`.tabs a[href$="/tokens"]`, ".head a.primary")
	b.enter(`.head a.primary`, "#name")
	b.reach("#name")
	b.run(chromedp.KeyEvent("payday"))
	b.reach(`input[value="economy:read"]`)
	b.run(chromedp.KeyEvent(" "))
	b.enter("form.form button.primary", "#secret")
	if secret := get(b, chromedp.Text(chromedp.CSS("#secret"))); len(secret) < 20 {
		t.Errorf("the secret is %q", secret)
	}
	b.enter(`.tabs a[href$="/tokens"]`, "th a")
	b.enter("th a", "#confirm")
	b.reach("#confirm")
	b.run(chromedp.KeyEvent("payday"))
	b.enter("button.bad", ".notice p")
	b.has("is revoked")
	if n := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM api_tokens WHERE revoked_at IS NOT NULL`); n != 1 {
		t.Errorf("%d tokens are revoked", n)
	}
}

// reach presses the tabulator until an element has the focus, which has to be seen.
func (b *tab) reach(selector string) {
	b.t.Helper()
	for range 200 {
		b.run(chromedp.KeyEvent("\t"))
		if get(b, chromedp.Evaluate[bool](fmt.Sprintf(`document.activeElement.matches(%q)`, selector))) {
			if !get(b, chromedp.Evaluate[bool](`document.activeElement.matches(":focus-visible") &&
				getComputedStyle(document.activeElement).outlineStyle !== "none"`)) {
				b.t.Errorf("that %s has the focus is not to be seen", selector)
			}
			return
		}
	}
	b.t.Fatalf("the keyboard does not lead to %s", selector)
}

// enter goes to an element with the keyboard, presses Enter and waits for another.
func (b *tab) enter(selector, then string) {
	b.t.Helper()
	b.reach(selector)
	b.run(chromedp.KeyEvent("\r"), chromedp.WaitVisible(chromedp.CSS(then)))
}
