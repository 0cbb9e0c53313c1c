//go:build browser

package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/usage"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/delivery"
)

// Pages with an error pass the same checks of layout and accessibility as the same pages without.
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
		does chromedp.Action[chromedp.Void] // nil means no action
	}{
		"ended-token":   {page(guildID, "tokens", made.ID), nil},
		"ended-tokens":  {page(guildID, "requests"), nil},
		"error-missing": {page(guildID, "tokens", "none"), nil},
		"error-revoke":  {page(guildID, "tokens", other.ID), press("button.bad", "#problems")},
		"error-remove":  {endpoint, press("button.bad", "#problems")},
		"error-edit": {
			endpoint + "/edit", chromedp.Steps(chromedp.Clear(chromedp.CSS("#url")), press("form.form button.primary", "#problems")),
		},
		"error-rotate": {endpoint + "/rotate", chromedp.Steps(
			chromedp.Evaluate[chromedp.Void](`document.querySelector("input:checked").value = "then"; undefined`),
			press("form.form button.primary", "#problems"),
		)},
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

// The pages with content that only some guilds have pass the checks, with and without scripts: a
// bot with keys and streams, and a pull endpoint.
func TestBotAndPullPagesInABrowser(t *testing.T) {
	for name, scripts := range map[string]bool{"": true, "-plain": false} {
		s := newSite(t)
		b := newTab(t, s, scripts)
		_, err := auth.CreateKey(t.Context(), s.DB, auth.NewKey{Env: "test", Name: "<b>bot"})
		must(t, err)
		dbtest.Exec(t, s.DB, `INSERT INTO bot_streams (id, name, events, echo) VALUES ('s', 'mirror', '{case.created}', false)`)
		dbtest.Exec(t, s.DB, `
			INSERT INTO stream_deliveries (guild_id, stream_id, event_id, event_at) VALUES ($1, 's', 'v', now())`, guildID)
		id := db.NewID()
		dbtest.Do(t, s.DB, func(ctx context.Context, tx *db.Tx) error {
			if _, err := tx.ExecContext(ctx, `
				INSERT INTO webhook_endpoints (guild_id, id, delivery, url, events, secret, secret_preview)
				VALUES ($1, $2, 'pull', '', '{case.created}', '', 'whsec_...1234')`, guildID, id); err != nil {
				return err
			}
			return delivery.Register(ctx, tx, guildID, id, true, true)
		})
		b.signIn("manager")
		for shown, path := range map[string]string{
			"bot-tokens": page(guildID, "tokens"), "pull-list": page(guildID, "webhooks"), "pull-endpoint": page(guildID, "webhooks", id),
			"pull-edit": page(guildID, "webhooks", id, "edit"), "pull-disable": page(guildID, "webhooks", id, "disable"),
			"error-delivery": page(guildID, "webhooks", id, "deliveries", "none"), "error-requests": page(guildID, "requests") + "?window=then",
			"sessions": "/dashboard/sessions", "error-sessions": "/dashboard/sessions?page=then", "overview": page(guildID),
			"audit": page(guildID, "audit"), "token-new": page(guildID, "tokens", "new"), "webhook-new": page(guildID, "webhooks", "new"),
		} {
			b.open(path)
			// Axe needs scripts; the scripts of a page that is already loaded do not run any more.
			b.scripts(true)
			b.look("some-" + shown + name)
			b.scripts(scripts)
		}
	}
}

// With the keyboard alone: sign in, create a token, revoke the token.
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

// reach presses the Tab key until the element has the focus, and checks that the focus is visible.
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

// enter goes to an element with the keyboard, presses Enter and waits for another element.
func (b *tab) enter(selector, then string) {
	b.t.Helper()
	b.reach(selector)
	b.run(chromedp.KeyEvent("\r"), chromedp.WaitVisible(chromedp.CSS(then)))
}
