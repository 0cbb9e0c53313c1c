//go:build browser

package dashboard_test

import (
	"testing"

	"github.com/chromedp/chromedp"

	"guildhall/internal/base/db/dbtest"
)

// A page whose session has ended, or whose server is down, shows since when its numbers are old.
func TestOldNumbersSayThatTheyAreOldInABrowser(t *testing.T) {
	s := newSite(t)
	b := newTab(t, s, true)
	filled(t, s)
	b.signIn("manager")
	b.open(page(guildID))
	dbtest.Exec(t, s.DB, `UPDATE dashboard_sessions SET expires_at = now()`)
	b.has("Not refreshed since")
	b.has("your session has ended")
	b.look("overview-stale")
	b.run(chromedp.Click(chromedp.CSS("#stale a")), chromedp.WaitVisible(chromedp.CSS("main .primary")))
	b.has("Sign in first")
	b.run(chromedp.Click(chromedp.CSS("main .primary")), chromedp.Click(chromedp.CSS("#manager")),
		chromedp.WaitVisible(chromedp.CSS(".tiles")))
}

// The form of an ended session shows a message, and signing in leads to the empty form.
func TestAFormOfAnEndedSessionInABrowser(t *testing.T) {
	for name, scripts := range map[string]bool{"with scripts": true, "without scripts": false} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			b := newTab(t, s, scripts)
			b.signIn("manager")
			b.open(page(guildID, "tokens", "new"))
			b.run(chromedp.SendKeys(chromedp.CSS("#name"), "payday"),
				chromedp.Click(chromedp.CSS(`input[value="economy:read"]`)))
			dbtest.Exec(t, s.DB, `UPDATE dashboard_sessions SET expires_at = now()`)
			b.run(chromedp.Click(chromedp.CSS("form.form button.primary")), chromedp.WaitVisible(chromedp.CSS("main a.primary")))
			b.has("Your session has ended")
			if scripts {
				b.look("session-ended")
			}
			b.run(chromedp.Click(chromedp.CSS("main a.primary")), chromedp.Click(chromedp.CSS("#manager")),
				chromedp.WaitVisible(chromedp.CSS("#name")))
			if kept := get(b, chromedp.Value(chromedp.CSS("#name"))); kept != "" {
				t.Errorf("the form of the next session holds %q", kept)
			}
			b.run(chromedp.SendKeys(chromedp.CSS("#name"), "payday"), chromedp.Click(chromedp.CSS(`input[value="economy:read"]`)),
				chromedp.Click(chromedp.CSS("form.form button.primary")), chromedp.WaitVisible(chromedp.CSS("#secret")))
			buttons := get(b, chromedp.Evaluate[int](
				`[...document.querySelectorAll("button.copy")].filter(e => e.offsetParent !== null).length`))
			if scripts != (buttons > 0) {
				t.Errorf("%d buttons to copy are to be seen", buttons)
			}
			b.has("payday")
		})
	}
}
