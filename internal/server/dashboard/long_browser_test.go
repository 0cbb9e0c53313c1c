//go:build browser

package dashboard_test

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db/dbtest"
)

// Names, addresses and descriptions without a possible line break fit on every page.
func TestLongNamesInABrowser(t *testing.T) {
	s := newSite(t)
	b := newTab(t, s, true)
	long := strings.Repeat("W", 100)
	dbtest.Exec(t, s.DB, `UPDATE guilds SET name = $2 WHERE id = $1`, guildID, long)
	b.signIn("manager")
	token := s.makeToken(t, guildID, func(n *auth.New) {
		n.Name, n.Scopes, n.ExpiresIn, n.AllowIP = long, auth.Scopes, 72*time.Hour, []string{"2001:db8:1234:5678:9abc:def0:1234:0/112"}
	})
	id, _ := b.register("http://127.0.0.1:9/"+strings.Repeat("x", 1500), "case.created")
	dbtest.Exec(t, s.DB, `
		UPDATE webhook_endpoints SET description = $2, enabled = false, disabled_reason = 'failing' WHERE id = $1`, id, long+long)
	dbtest.Exec(t, s.DB, `
		UPDATE audit_log SET actor_name = $1, target_name = $1 || $1, address = '2001:db8:1234:5678:9abc:def0:1234:5678'`, long)
	dbtest.Exec(t, s.DB, `
		INSERT INTO usage_refusals (guild_id, request_id, at, token_id, operation, status, code, address)
		VALUES ($1, '01900000-0000-7000-8000-000000000000', now(), $2, 'disqualifyFromGiveaway', 422, 'reference_already_used',
		        '2001:db8:1234:5678:9abc:def0:1234:5678')`, guildID, token.ID)
	one := page(guildID, "webhooks", id)
	for name, path := range map[string]string{
		"guilds": "/dashboard/", "overview": page(guildID), "tokens": page(guildID, "tokens"), "token": page(guildID, "tokens", token.ID),
		"webhooks": page(guildID, "webhooks"), "webhook": one, "edit": one + "/edit", "rotate": one + "/rotate",
		"recover": one + "/recover?since=", "requests": page(guildID, "requests"), "audit": page(guildID, "audit"),
		"sessions": "/dashboard/sessions",
	} {
		b.open(path)
		b.run(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("details").forEach(d => { d.open = true }); undefined`))
		b.look("long-" + name)
	}
}
