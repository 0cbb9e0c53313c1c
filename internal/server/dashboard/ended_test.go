package dashboard_test

import (
	"net/netip"
	"testing"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/usage"
	"guildhall/internal/base/db/dbtest"
)

// A manager of a guild sees that a token of the guild is used after its end: when, how often and
// from which address. Other people do not see that.
func TestAnEndedTokenThatIsStillUsedIsShown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	mine := s.makeToken(t, guildID, func(n *auth.New) { n.Name = "Old payday" })
	theirs := s.makeToken(t, neighbourID, func(n *auth.New) { n.Name = "Neighbour" })
	b := s.as(t, "manager")
	one := page(guildID, "tokens", mine.ID)
	b.get(one).wants(200).lacks("Still used")
	b.get(page(guildID, "requests")).wants(200).lacks("Ended tokens")

	must(t, auth.Revoke(t.Context(), s.DB, guildID, mine.ID))
	must(t, auth.Revoke(t.Context(), s.DB, neighbourID, theirs.ID))
	node, err := auth.NewTokens(auth.Config{DB: s.DB, URL: s.Database.URL, Env: "test"})
	must(t, err)
	count := usage.NewCounter()
	for n := range 3 {
		from := netip.MustParseAddr([]string{"203.0.113.9", "198.51.100.7", "203.0.113.9"}[n])
		for _, token := range []auth.Token{mine, theirs} {
			by, err := node.Authenticate(t.Context(), token.Secret, from)
			count.Count(usage.Request{
				Guild: by.GuildID, Token: by.ID, Ended: err != nil, Operation: "getMe", RequestID: token.ID + from.String(), Status: 401, From: from,
				At: time.Now(),
			})
		}
	}
	must(t, count.Flush(t.Context(), s.DB))
	b.get(one).wants(200, "Still used after its end", "3 requests with this token were refused",
		"<code>203.0.113.9</code>", "<code>198.51.100.7</code>").
		lacks("Neighbour")
	b.get(page(guildID, "requests")).wants(200, "Ended tokens that are still used", one+"#after", "Old payday").lacks("Neighbour", theirs.ID)
	b.get(page(neighbourID, "requests")).wants(200, "Ended tokens that are still used", "Neighbour").lacks("Old payday", mine.ID)
	b.get(page(neighbourID, "tokens", mine.ID)).wants(404)
}

// A guild may have any number of ended tokens. Pages that are opened often read the active tokens,
// and only those ended tokens that they name.
func TestPagesNameNoTokensThatHaveEndedForNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	used := s.makeToken(t, guildID, func(n *auth.New) { n.Name = "Long gone" })
	s.makeToken(t, guildID, func(n *auth.New) { n.Name = "At work" })
	must(t, auth.Revoke(t.Context(), s.DB, guildID, used.ID))
	b := s.as(t, "manager")
	requests := page(guildID, "requests")
	dbtest.Exec(t, s.DB, `
		INSERT INTO usage_refusals (guild_id, request_id, at, token_id, operation, status, code, address)
		VALUES ($1, 'r', now(), '', 'listCases', 401, 'invalid_token', '203.0.113.9')`, guildID) // otherwise the page is only one sentence
	b.get(requests).wants(200, "At work").lacks("Long gone")
	b.get(requests+"?token="+used.ID).wants(200, "At work", `value="`+used.ID+`" selected`, "Long gone")
	b.get(page(guildID)).wants(200, "<b>1</b>").lacks("<b>Done:</b> <a href=\"/docs\">")
	dbtest.Exec(t, s.DB, `INSERT INTO api_token_uses (token_id, last_used_at) VALUES ($1, now())`, used.ID)
	b.get(page(guildID)).wants(200, "<b>1</b>", "<b>Done:</b> <a href=\"/docs\">")
}
